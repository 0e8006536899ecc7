"""The maze of LMRL-Gym (arXiv 2311.18232), whose player writes its moves: docs/wordle.md.

A move into a wall costs 1 too. After 100 texts, another one costs 1 and ends the episode. Scripted players: `random`
draws one of the four moves, `optimal` takes a shortest way.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from motif_jax.config.table import Flag
from motif_jax.envs.own_code import OPTIONS_FLAG
from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.text_world import TextWorld, without_arguments
from motif_jax.envs.world import GREY, WHITE, Pieces
from motif_jax.structs import EndStatus, Meaning

MAZE = (
    "#############",
    "#     #     #",
    "### ##### ###",
    "### ##### ###",
    "### ##### ###",
    "###       ###",
    "###### ######",
    "###### ######",
    "###### ######",
    "#############",
)
GOAL = 8, 6  # row and column, from 0
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
SIDES = {"up": "above", "down": "below", "left": "left", "right": "right"}
MOST = 100  # texts, before the one that ends the walk
LOST = "a hundred moves were made"
YELLOW, GREEN = 11, 10

Cell = tuple[int, int]
FREE: tuple[Cell, ...] = tuple((y, x) for y, row in enumerate(MAZE) for x, cell in enumerate(row) if cell == " ")


class Walk(NamedTuple):
    """The state of an episode."""

    at: Cell
    start: Cell
    others: int = 0  # texts other than moves


def neighbour(cell: Cell, way: Cell) -> Cell:
    """The next cell in a direction."""
    return cell[0] + way[0], cell[1] + way[1]


@functools.cache
def distances() -> Mapping[Cell, int]:
    """The number of moves from each free cell to the goal."""
    moves = {GOAL: 0}
    for cell in (reached := [GOAL]):  # in the order of their distances; it grows
        for there in (neighbour(cell, way) for way in MOVES.values()):
            if there in FREE and there not in moves:
                moves[there] = moves[cell] + 1
                reached.append(there)
    return moves


class MazeGame(TextGame):
    """See the module docstring."""

    hidden: Walk

    def __init__(self, world: MazeWorld):
        super().__init__(world.written, world.heard, world.time_limit)
        self._tells_position = world.tells_position
        self.hidden = Walk(GOAL, GOAL)

    def open(self) -> str:
        start = self.random.choice([cell for cell in FREE if cell != GOAL])
        self.hidden = Walk(start, start)
        return f"goal {GOAL[0]} {GOAL[1]} {self._described()}"

    def answer(self, text: str) -> Answer:
        if self.steps >= MOST:
            return Answer("failure", -1.0, EndStatus.ENDED, LOST)
        if text not in MOVES:
            self.hidden = self.hidden._replace(others=self.hidden.others + 1)
            return Answer(self._described(), -4.0)
        if (there := neighbour(self.hidden.at, MOVES[text])) in FREE:
            self.hidden = self.hidden._replace(at=there)
        if self.hidden.at == GOAL:
            return Answer("success", 0.0, EndStatus.TASK_SUCCESSFUL)
        return Answer(self._described(), -1.0)

    def draw(self, chance: float) -> str:
        return tuple(MOVES)[int(chance * len(MOVES))]

    def measure(self) -> tuple[float, ...]:
        return distances()[self.hidden.start], self.hidden.others

    def caption(self) -> str:
        text = next((turn.text for turn in reversed(self.turns) if turn.is_action), None)
        where = f"row {self.hidden.at[0]}, column {self.hidden.at[1]}"
        if self.end == EndStatus.TASK_SUCCESSFUL:
            return f"You go {text} and reach the goal"
        if text is None:
            return f"You are in a maze at {where}"
        return f"You go {text} and are at {where}" if text in MOVES else f'"{text[:100]}" is no move'

    def drawn(self) -> Sequence[Pieces]:
        rows: list[Pieces] = [[(cell, GREY) for cell in row] for row in MAZE]
        rows[GOAL[0]][GOAL[1]] = (">", GREEN)
        rows[self.hidden.at[0]][self.hidden.at[1]] = ("@", YELLOW)
        return [*rows, [], [(f"{self.steps} of {MOST} moves", WHITE)]]

    def _described(self) -> str:
        at = self.hidden.at
        walls = [SIDES[move] for move, way in MOVES.items() if neighbour(at, way) not in FREE]
        position = f"at {at[0]} {at[1]} " if self._tells_position else ""
        return f"{position}walls {' '.join(walls) or 'none'}"


def shortest_way(game: MazeGame, rng: random.Random) -> str:
    """The scripted player `optimal`."""
    at, left = game.hidden.at, distances()
    return next(move for move, way in MOVES.items() if left.get(neighbour(at, way), left[at]) < left[at])


class MazeWorld(TextWorld):
    """See the module docstring."""

    name = "maze"
    about = "a maze, through which the agent walks by writing its moves"
    figures = {"distance": int, "others": int}  # noqa: RUF012  (moves from the start to the goal; other texts)
    meanings = (Meaning("distance", note="moves from the start to the goal"),
                Meaning("others", "other texts", "that are no moves", better="lower"))  # fmt: skip
    written, heard = 16, 64
    moves = tuple(MOVES)
    makers = {"optimal": without_arguments(shortest_way)}  # noqa: RUF012

    def __init__(self, max_episode_steps: int = 5000, position: bool = True):
        super().__init__(max_episode_steps)
        Flag().check("position", OPTIONS_FLAG, position)
        self.tells_position = position

    def game(self, shown: bool = True) -> MazeGame:
        return MazeGame(self)

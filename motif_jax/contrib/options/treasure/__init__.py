"""The world `treasure`: a corridor with stairs at one end and gold the other way, whose optimum is known.

These are the geometry and the rules of Treasure Dash, a MiniHack task; what lies on top of its gold is left out.

The corridor has 71 squares, in columns 1 to 71. The hero starts in column 5. The stairs are in column 1, and one gold
piece each in columns 6, 8, ..., 52. A piece is picked up without a step of its own. The reward is 1 per piece, and 20
for standing on the stairs, which ends the episode. So does the 40th step: this is an end (`terminated`) and not a cut.

The stairs alone give 20, gold alone at most 20. The best return is 29: 17 steps out, with 9 pieces, and 21 back to the
stairs. A tenth piece would take 42 steps.

    view     kinds of the squares around the hero, who is in the middle.  [1, 17] uint8
    numbers  squares to the stairs, steps left, gold.  [3] float32

Readings of each step: `event_gold`, the pieces picked up; `event_stairs`, 1 if the hero stands on the stairs, else 0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from motif_jax.envs.sequential import SequentialGame, SequentialWorld
from motif_jax.envs.world import CAPTIONS, CHOICE, GREY, WHITE, GameSeed, Pieces, Screen, Viewpoint, World, draw_screen
from motif_jax.structs import ArraySpec, EndStatus, Meaning

LENGTH = 71  # columns 1..71
STAIRS_COLUMN, START = 1, 5
GOLD_COLUMNS = range(6, 53, 2)
STEPS = 40  # so the hero cannot walk beyond column 45
FOR_STAIRS = 20.0
SIGHT = 8  # squares seen on each side
KINDS = ROCK, FLOOR, GOLD, STAIRS = range(4)  # of squares
DRAWN = {ROCK: (" ", GREY), FLOOR: (".", GREY), GOLD: ("$", 11), STAIRS: (">", GREY)}
MOVES = {"east": 1, "west": -1}
ACTIONS = ("north", "east", "south", "west", "northeast", "southeast", "southwest", "northwest", "search")
PICKED_UP, DOWN, WALL = b"You pick up a gold piece.", b"You stand on the stairs down.", b"It's a wall."
KIND_OF = {STAIRS_COLUMN: STAIRS} | dict.fromkeys(GOLD_COLUMNS, GOLD)  # other columns are FLOOR
CORRIDOR = [KIND_OF.get(column, FLOOR) for column in range(1, LENGTH + 1)]
SQUARES = np.pad(np.array(CORRIDOR, np.uint8), SIGHT, constant_values=ROCK)  # at the start of an episode


class TreasureGame(SequentialGame):
    """One game; all its episodes begin alike."""

    num_actions = len(ACTIONS)

    def __init__(self, max_episode_steps: int = STEPS):
        self._max_steps = max_episode_steps

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        self.start_episode(episode)
        self._squares, self._column, self._gold = SQUARES.copy(), START, 0
        self._look(b"", gold=0)

    def step(self, action: int) -> float:
        name = ACTIONS[action]
        self._column += MOVES.get(name, 0)
        here = SIGHT + self._column - 1
        text = b"" if name in MOVES or name == "search" else WALL
        gold, arrived = int(self._squares[here] == GOLD), self._column == STAIRS_COLUMN
        reward = gold + FOR_STAIRS * arrived
        self.count_step(reward)
        self._gold += gold
        if gold:
            self._squares[here], text = FLOOR, PICKED_UP
        if arrived:
            text = DOWN
        if arrived or self._steps >= STEPS:
            self.finish(arrived, "the time is up")
        elif self._steps >= self._max_steps:
            self.end = EndStatus.ABORTED
        self._look(text, gold)
        return reward

    def _look(self, text: bytes, gold: int) -> None:
        numbers = self._column - STAIRS_COLUMN, STEPS - self._steps, self._gold
        self.seen = {
            "view": self._squares[None, self._column - 1 : self._column + 2 * SIGHT].copy(),
            "numbers": np.array(numbers, np.float32),
            "gold": np.array(gold, np.float32),
            "stairs": np.array(self._success, np.float32),
        } | self.show_caption(text)

    def measure(self) -> tuple[float, ...]:
        return self._gold, self._success

    def screen(self) -> Screen:
        cells: Pieces = [DRAWN[kind] for kind in self._squares[SIGHT : SIGHT + LENGTH].tolist()]
        cells[self._column - 1] = "@", WHITE
        wall: Pieces = [("-" * (LENGTH + 2), GREY)]
        numbers = f"Gold {self._gold}   Steps left {STEPS - self._steps}   Return {self._return:g}"
        rows = [wall, [("|", GREY), *cells, ("|", GREY)], wall, [], [(numbers, GREY)]]
        return draw_screen(self.message.decode(), rows)


class TreasureWorld(SequentialWorld, World):
    """See the module docstring."""

    name = "treasure"
    about = "a game in which a hero has 40 steps to collect gold in a corridor and to walk back to the stairs down"
    action, action_names = CHOICE, ACTIONS
    figures = {"gold": int, "stairs": bool}  # noqa: RUF012
    meanings = (Meaning("stairs", better="higher"), Meaning("gold", note="at the end", better="higher"))
    specs = {
        "view": ArraySpec((1, 2 * SIGHT + 1), "uint8", "grid", len(KINDS)),
        "numbers": ArraySpec((3,), "float32"),
        "event_gold": ArraySpec((), "float32"),
        "event_stairs": ArraySpec((), "float32"),
    } | CAPTIONS
    numbers = {"stairs_distance": ("numbers", 0), "steps_left": ("numbers", 1), "gold": ("numbers", 2)}  # noqa: RUF012
    viewpoints = {"view": Viewpoint(0, SIGHT)}  # noqa: RUF012
    still = "stairs_distance", "gold"
    reads = "view", "numbers"  # the caption adds no information, and would double the cost of the encoder
    pairs = ("message",)
    players = ("random",)
    texts = Path(__file__).parent / "texts"

    def __init__(self, max_episode_steps: int = STEPS):
        self._max_steps = max_episode_steps

    def game(self, shown: bool = True) -> TreasureGame:
        return TreasureGame(self._max_steps)

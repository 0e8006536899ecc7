"""A tiny world with NetHack's frames and actions: find the stairs in a small room. Solvable in seconds.

It is the world `toy`, and, for older configs, the task `toy` of the world `nethack`. The hero starts on a random square
of a room of 5 x 5 squares. The reward is 1 for walking onto `>`, and -0.01 per step. An episode is cut after 50 steps.
The best return is 1 - 0.01 * (king's distance to the stairs), about 0.975 on average.
"""

from __future__ import annotations

import random

import numpy as np

from motif_jax.envs.nethack.world import FrameWorld, GameSettings
from motif_jax.envs.sequential import SequentialGame
from motif_jax.envs.world import GREY, WHITE, GameSeed
from motif_jax.structs import EndStatus

SIZE = 5  # squares on a side
TOP, LEFT = 8, 30  # terminal cell of the room's first square
MAX_STEPS = 50
MOVES = {1: (0, -1), 2: (1, 0), 3: (0, 1), 4: (-1, 0), 5: (1, -1), 6: (1, 1), 7: (-1, 1), 8: (-1, -1)}  # (dx, dy)
NAMES = ("north", "east", "south", "west", "northeast", "southeast", "southwest", "northwest")  # of MOVES, in order
WALL, STAIRS = b"It's a wall.", b"You descend the stairs."


class ToyGame(SequentialGame):
    """The game, with NetHack's figures, which are constant here, or its own."""

    num_actions = 23
    on_stairs = opened_question = False  # stairs end the episode

    def __init__(self, buffers: dict[str, np.ndarray], *, max_episode_steps: int = MAX_STEPS, own: bool = False):
        self.buffers, self._own = buffers, own  # `own`: its own figures
        self.last_frame = {key: array.copy() for key, array in buffers.items()}
        self._max_steps = min(max_episode_steps, MAX_STEPS)

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        squares = [(x, y) for x in range(SIZE) for y in range(SIZE)]
        self._hero, self._stairs = random.Random(seed.core).sample(squares, 2)
        self.start_episode(episode)
        self.walls = 0  # number of times the hero walked into a wall
        self._show(b"")

    def step(self, action: int) -> float:
        dx, dy = MOVES.get(action, (0, 0))
        x, y = self._hero[0] + dx, self._hero[1] + dy
        reward, text = -0.01, b""
        if not (0 <= x < SIZE and 0 <= y < SIZE):
            text = WALL
            self.walls += 1
        else:
            self._hero = x, y
            if self._hero == self._stairs:
                self.finish(True, "")
                reward, text = reward + 1.0, STAIRS
        self.count_step(reward)
        if not self.end and self._steps >= self._max_steps:
            self.end = EndStatus.ABORTED
        self._show(text)
        if self.end:
            for key, array in self.buffers.items():
                self.last_frame[key][...] = array
        return reward

    def measure(self) -> tuple[float, ...]:
        return (self.walls,) if self._own else (False, 0, self._steps, 1, 1, 0, 1, SIZE * SIZE, 0)

    def _show(self, text: bytes) -> None:
        message = self.show_caption(text)["message"]
        room = np.full((2, SIZE, SIZE), GREY)  # characters and colours
        room[0] = ord(".")
        for (x, y), char, color in ((self._stairs, ">", GREY), (self._hero, "@", WHITE)):
            room[:, y, x] = ord(char), color
        for key, array in self.buffers.items():
            if key == "message":
                array[:] = message
            elif key == "blstats":
                array[:] = 0
                array[:2] = LEFT + self._hero[0], TOP - 1 + self._hero[1]  # map row = terminal row - 1
                array[12], array[20], array[24] = 1, self._steps, 1
            elif key in ("tty_chars", "chars", "tty_colors", "colors"):
                row, plane = TOP - (not key.startswith("tty")), 0 if key.endswith("chars") else 1
                array[:] = (ord(" "), 0)[plane]
                array[row : row + SIZE, LEFT : LEFT + SIZE] = room[plane]
                if key == "tty_chars":
                    array[0, : len(text)] = np.frombuffer(text, np.uint8)


class ToySettings(GameSettings):
    """Settings of the world `toy`."""

    def make(self, buffers: dict[str, np.ndarray]) -> ToyGame:
        return ToyGame(buffers, max_episode_steps=self.max_episode_steps, own=True)


class ToyWorld(FrameWorld):
    """See the module docstring."""

    name = "toy"
    about = "a game in which a hero looks for the stairs in a small room"
    figures = {"walls": int}  # noqa: RUF012
    players = ("random",)
    has_one_screen = True
    action_names = ("wait", *NAMES, *(f"wait {number}" for number in range(1, 15)))

    def __init__(self, max_episode_steps: int = MAX_STEPS):
        super().__init__(ToySettings(max_episode_steps=max_episode_steps))

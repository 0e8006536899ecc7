"""Replays for tests, with rewards that are easy to check, and a terminal to look at them (what pyte makes of bytes)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyte

from motif_jax.actors.recorder import RecordedFrames, unpacked
from motif_jax.captions import encode
from motif_jax.envs.nethack.game import ACTION_NAMES
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.envs.worlds import make_world
from motif_jax.replays.replay import ARRAYS, COLUMNS, ROWS, Replay
from motif_jax.replays.scene import STATUS_LINES, Canvas
from motif_jax.screens import REVERSED

NEEDED = COLUMNS, ROWS + len(STATUS_LINES)  # columns and rows that show everything of a game that uses the whole screen
ABOUT: dict[str, Any] = {
    "player": "policy-7680", "task": "score", "episode": 17, "chosen": ["best"], "end": "death",
    "cause": "killed by a jackal", "action_names": list(ACTION_NAMES), "threshold": 0.0, "count_exponent": 1.0,
    "goal": None, "figures": {"score": 12, "max_depth": 1, "steps": 60},
}  # fmt: skip
COLORS = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")


class Emulator:
    """Takes text with escape sequences, and says what is to be seen then."""

    def __init__(self, rows: int, columns: int):
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self._screen)

    def feed(self, text: str) -> None:
        self._stream.feed(text)

    @property
    def lines(self) -> list[str]:
        return list(self._screen.display)

    def assert_shows(self, canvas: Canvas) -> None:
        """Character by character and colour by colour, with reversal, as the game numbers them."""
        assert self.lines == canvas.text()
        for (row, column), style in np.ndenumerate(canvas.styles):
            cell = self._screen.buffer[row][column]
            color = COLORS.index(cell.fg.removeprefix("bright")) + 8 * cell.fg.startswith("bright")
            assert color + REVERSED * cell.reverse == (style if style % REVERSED else style + 8)  # black is grey


@functools.cache
def play(steps: int = 60) -> Replay:
    """A game of so many steps; every new message is worth its length / 10, the n-th time an n-th of it."""
    game, actions = make_world({}).game(), np.random.default_rng(0).integers(len(ACTION_NAMES), size=steps)
    game.reset(game_seed(3, SeedStream.EVALUATE, 0), 0)
    frames = RecordedFrames(game)
    for action in actions.tolist():
        frames.step(action)
    game.close()
    arrays = unpacked(frames.packed()) | {"action": actions, "value": np.full(steps, 0.25)}
    arrays |= {"probability": np.full(steps, 0.5), "z": np.count_nonzero(arrays["message"][1:], axis=1) / 10}
    arrays |= {"intrinsic": arrays["z"] / arrays["count"][1:]}
    return Replay(ABOUT, **{name: array.astype(ARRAYS[name][0]) for name, array in arrays.items()})


def made(messages: list[str], reward: list[float], intrinsic: list[float] | None = None, **about: Any) -> Replay:
    """A replay of a screen with a dot in its last line on which these messages appear, one more than rewards."""
    steps = len(reward)
    paid = np.full(steps, np.nan) if intrinsic is None else np.array(intrinsic)
    arrays = {
        "chars": np.full((steps + 1, ROWS, COLUMNS), ord(" ")), "colors": np.zeros((steps + 1, ROWS, COLUMNS)),
        "cursor": np.zeros((steps + 1, 2)), "message": np.array([encode(message) for message in messages]),
        "count": np.array([messages[: at + 1].count(message) for at, message in enumerate(messages)]),
        "action": np.arange(steps), "reward": np.array(reward), "z": 2 * paid, "intrinsic": paid,
        "value": np.full(steps, np.nan), "probability": np.full(steps, np.nan),
    }  # fmt: skip
    arrays["chars"][:, -1, 0] = ord(".")
    return Replay(ABOUT | about, **{name: array.astype(ARRAYS[name][0]) for name, array in arrays.items()})

"""Tests whether a game is reproducible, and reads the recordings of games that are not."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.actors.recorder import caption_of, file_of
from motif_jax.actors.worker import Ended, FilledSlot
from motif_jax.captions import WIDTH
from motif_jax.envs.own_code import owner, reported
from motif_jax.envs.world import WAIT, World
from motif_jax.envs.worlds import make_world
from motif_jax.episodes.playback import EpisodeEvents, Happenings, begin, count_events
from motif_jax.structs import EpisodeInfo

EPISODES, STEPS = 3, 70  # number of test episodes, and most steps of each
EVENTS = ("cause", "captions", "times")  # in a recording; the rest is its frames


def plays_the_same_twice(env: Mapping[str, Any], seed: int, beside: bool) -> bool:
    """Whether a short piece of the user's game is the same when it is played twice with the same seed and actions.

    Always True for the program's own games, which have tests. `beside`: workers play several games. Then another game
    runs beside the second play, which reveals games that share a source of randomness.
    """
    if owner(env) is None:
        return True
    with reported(env):
        world = make_world(env)
        return all(
            _play(world, seed, episode, beside=False) == _play(world, seed, episode, beside)
            for episode in range(EPISODES)
        )


def _play(world: World, seed: int, episode: int, beside: bool) -> list[Any]:
    """Plays a short piece of an episode; returns what is seen at each step, and the state at the end."""
    rng, frames, reward = random.Random(episode), [], 0.0

    def draw(game: Any, rng: random.Random) -> Any:
        return game.draw(rng.random()) if world.action.shape else rng.randrange(len(world.action_names))

    with contextlib.ExitStack() as stack:
        game, *others = (stack.enter_context(contextlib.closing(_make(world))) for _ in range(1 + beside))
        for number, one in enumerate((game, *others)):
            begin(one, seed, episode + EPISODES * number)
        for step in range(STEPS):
            seen = game.seen.values() if hasattr(game, "seen") else game.screen()
            arrays = [np.asarray(array).tobytes() for array in seen]
            frames.append([caption_of(game), game.message_count, reward, *arrays])
            if game.end:
                break
            reward = game.step(draw(game, rng))
            for other in others:
                if other.end:
                    begin(other, seed, EPISODES + episode)
                other.step(draw(other, random.Random(step)))
        return [*frames, game.info(), game.end, game.cause]


def _make(world: World) -> Any:
    """A game for comparison: with observations, which contain more than a screen, if the world has them."""
    game = world.game(shown=False)
    if hasattr(game, "seen"):
        return game
    game.close()
    return world.game()


class Recordings:
    """The workers' recordings of episodes, with the methods of `playback.EventCounter`, and `take`.

    A recording is on disk from the end of its episode until `take`.
    """

    def __init__(self, happenings: Happenings):
        self._happenings = happenings
        self._temporary = tempfile.TemporaryDirectory(prefix="motif_jax-")
        self.folder = self._temporary.name  # for `ActorPool`

    def close(self) -> None:
        self._temporary.cleanup()

    def _read(self, episode: int, events: bool) -> dict[str, np.ndarray]:
        """Reads the EVENTS of a recording, or else its frames."""
        file = file_of(Path(self.folder), episode)
        if not file.is_file():
            return {}
        with np.load(file) as arrays:
            return {name: arrays[name] for name in arrays.files if (name in EVENTS) == events}

    def describe(self, info: EpisodeInfo, actions: np.ndarray) -> EpisodeEvents:
        """The events of an episode; unknown without a recording."""
        arrays = self._read(info.episode, events=True)
        # A recording of another length is from an earlier attempt at this episode, whose worker died.
        if not arrays or arrays["times"].sum() != len(actions):
            return EpisodeEvents()
        captions = [row.tobytes().rstrip(b"\0") for row in arrays["captions"].reshape(-1, WIDTH)]
        times = dict(zip(captions, arrays["times"].tolist(), strict=True))
        return EpisodeEvents(arrays["cause"].tobytes().decode(), count_events(times, self._happenings))

    def take(self, episode: int) -> dict[str, np.ndarray]:
        """Reads an episode's frames (`recorder.RecordedFrames.packed`), and removes its file; {} if it was too long."""
        frames = self._read(episode, events=False)
        file_of(Path(self.folder), episode).unlink(missing_ok=True)
        return frames


# Assembles complete episodes from rollouts.

StepArrays = dict[str, np.ndarray]  # one row per step of an episode. [T, ...] each


def without_waits(steps: StepArrays) -> StepArrays:
    """Returns the steps without those in which the game waited."""
    actions = steps.get("action")
    if actions is None or actions.ndim > 1 or not (waits := actions == WAIT).any():
        return steps
    return {key: array[~waits] for key, array in steps.items()}


class Pieces:
    """Collects the steps of every game until its episode ends."""

    def __init__(self) -> None:
        # By worker, group and game: arrays of the open episode's steps, in parts.
        self._open: dict[tuple[int, int, int], list[StepArrays]] = {}

    def take(
        self, full: FilledSlot, rows: Mapping[str, np.ndarray], first: np.ndarray, ended: Iterable[Ended]
    ) -> list[tuple[EpisodeInfo, StepArrays]]:
        """Appends a rollout's steps to their episodes; returns summary and steps of each episode that ended.

        `rows`: arrays of the rollout, by name, [T, E, ...]. `first`: whether its first step begins an episode, [E].
        `ended`: episodes that ended in it.
        """
        games = [(full.worker, full.group, game) for game in range(len(first))]
        # An episode whose worker died is played again, so its steps are dropped.
        parts = [[] if begins else self._open[game] for game, begins in zip(games, first, strict=True)]
        start, finished = [0] * len(first), []

        def keep(game: int, stop: int | None) -> list[StepArrays]:
            parts[game].append({key: array[start[game] : stop, game].copy() for key, array in rows.items()})
            return parts[game]

        for step, game, info in ended:
            chunks = keep(game, step + 1)
            finished.append((info, without_waits({key: np.concatenate([one[key] for one in chunks]) for key in rows})))
            parts[game], start[game] = [], step + 1
        for game, key in enumerate(games):
            self._open[key] = keep(game, None)
        return finished

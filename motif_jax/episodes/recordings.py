"""Games that do not play the same twice: finding them out, and what was recorded of their episodes instead."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.actors.recorder import Frames, file_of
from motif_jax.captions import WIDTH
from motif_jax.envs.own_code import owner, reported
from motif_jax.envs.settings import make_world
from motif_jax.envs.world import World, is_text
from motif_jax.episodes.playback import EpisodeEvents, Happenings, begin
from motif_jax.files import read_arrays
from motif_jax.structs import EpisodeInfo

EPISODES, STEPS = 3, 70  # that are tried, and the most steps of each
FRAMES = ("chars", "colors", "cursor", "message", "count", "reward")


def plays_the_same_twice(env: Mapping[str, Any], seed: int) -> bool:
    """Whether a short piece of the game, played twice from the same seed with the same actions, is the same.

    The second time another game is played beside it, as workers do: games that share what is random differ then. Only
    games of the user's own are tried; those of the program are tested.
    """
    if owner(env) is None:
        return True
    with reported(env):
        world = make_world(env)
        return all(
            _alike(_play(world, seed, episode, beside=False), _play(world, seed, episode, beside=True))
            for episode in range(EPISODES)
        )


def _play(world: World, seed: int, episode: int, beside: bool) -> tuple[dict[str, np.ndarray] | None, list[Any]]:
    """The frames of a short piece of an episode, and how it then stands."""
    games, rng = [world.game() for _ in range(1 + beside)], random.Random(episode)
    try:
        for number, game in enumerate(games):
            begin(game, seed, episode + EPISODES * number)
        frames = Frames(games[0])
        for step in range(STEPS):
            if games[0].end:
                break
            frames.step(_draw(world, games[0], rng))
            for other in games[1:]:
                if other.end:
                    begin(other, seed, EPISODES + episode)
                other.step(_draw(world, other, random.Random(step)))
        return frames.arrays(), [games[0].info(), games[0].end, games[0].cause]
    finally:
        for game in games:
            game.close()


def _draw(world: World, game: Any, rng: random.Random) -> Any:
    return game.draw(rng.random()) if is_text(world.action) else rng.randrange(len(world.action_names))


def _alike(one: tuple[Any, list[Any]], other: tuple[Any, list[Any]]) -> bool:
    frames, others = one[0], other[0]
    same = frames.keys() == others.keys() and all(np.array_equal(frames[name], others[name]) for name in frames)
    return same and one[1] == other[1]


class Recordings:
    """What workers recorded of episodes; a context manager with the methods of `playback.EventCounter`, and `take`.

    A recording is on the disk from the end of its episode until it is taken.
    """

    def __init__(self, happenings: Callable[[str], Iterable[str]]):
        """Takes the events that a message reports."""
        self._happenings = Happenings(happenings)
        self._folder = tempfile.TemporaryDirectory(prefix="motif_jax-")

    def __enter__(self) -> Recordings:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    @property
    def folder(self) -> str:
        """The directory for `ActorPool`."""
        return self._folder.name

    def describe(self, info: EpisodeInfo, actions: np.ndarray) -> EpisodeEvents | None:
        """The events of an episode; None if nothing was recorded of it."""
        file = file_of(Path(self.folder), info.episode)
        if not file.is_file():
            return None
        arrays = read_arrays(file, ("cause", "captions", "times"))
        captions = [row.tobytes().rstrip(b"\0") for row in arrays["captions"].reshape(-1, WIDTH)]
        cause = arrays["cause"].tobytes().decode()
        if arrays["times"].sum() != len(actions):  # of another attempt at this episode, whose worker died
            return None
        return EpisodeEvents(cause, self._happenings.count(dict(zip(captions, arrays["times"].tolist(), strict=True))))

    def take(self, episode: int) -> dict[str, np.ndarray] | None:
        """The frames of an episode (`recorder.Frames.arrays`), whose file is removed; None if there are none."""
        file = file_of(Path(self.folder), episode)
        if not file.is_file():
            return None
        try:
            return read_arrays(file, FRAMES, optional=("pictures", "picture_ends"))
        except ValueError:  # too long to be kept
            return None
        finally:
            file.unlink()

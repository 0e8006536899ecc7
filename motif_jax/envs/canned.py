"""A world without a game: observations that were recorded before are shown again, whatever the actions are.

It passes through the same workers, shared memory and messages as any world, and a step of a whole group is a few copies
in NumPy. So what remains to be measured is the program around the games (`stages/benchmark/pipeline.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.envs.nethack.observations import EVENTS, OBSERVATIONS, POLICY_OBSERVATIONS
from motif_jax.envs.seeding import GameSeed, game_seed
from motif_jax.envs.world import CHOICE, Game, Rows, World
from motif_jax.structs import EndStatus, EpisodeInfo, UserError
from motif_jax.system.files import LARGEST_ARRAY, read_arrays

NUM_ACTIONS = 23  # as many as NetHack's


class CannedVector:
    """A group of E games that show columns of the recording; game i shows column i modulo its number of columns."""

    games: Sequence[Any]

    def __init__(
        self,
        num_games: int,
        recording: Mapping[str, np.ndarray],
        *,
        episode_steps: int,
        seed: int,
        stream: int,
        next_episode: Callable[[int], int],
    ):
        """Takes `recording`: observations and rewards by name, [M, C, ...]; see `World.vector` for the others."""
        columns = np.arange(num_games) % next(iter(recording.values())).shape[1]
        shown = {key: array[:, columns] for key, array in recording.items()}
        self._moments = len(shown["reward"])
        self._rewards = shown.pop("reward")
        self._plain = {key: array for key, array in shown.items() if not key.startswith("event_")}
        self._events = {key: array for key, array in shown.items() if key.startswith("event_")}
        self._seed, self._stream, self._next_episode = seed, stream, next_episode
        self._episode_steps = episode_steps
        self.games = [None] * num_games
        self._now = 0  # number of steps so far, of all games
        self._episodes = [0] * num_games
        self._begun = np.zeros(num_games, np.int64)  # value of `_now` at which each game's episode began
        self._ends = np.zeros(num_games, np.int64)  # and at which it ends
        self._sums = np.zeros(num_games)  # of the rewards of each game's episode
        self.first = np.ones(num_games, bool)
        self.finished: list[tuple[int, EpisodeInfo]] = []

    def open_rows(self, rows: dict[str, np.ndarray]) -> Rows:
        """See `Vector`: the arrays as they are."""
        return dict(rows)

    def reset(self) -> None:
        """Starts an episode in every game."""
        for index in range(len(self.games)):
            self._start(index)
        self.first[:] = True

    def seed_of(self, episode: int) -> GameSeed:
        """Seeds of an episode of this vector."""
        return game_seed(self._seed, self._stream, episode)

    def play_on(self, index: int, chances: Iterable[float]) -> None:
        """Does nothing: all moments are alike."""

    def observe(self, rows: Rows) -> None:
        """Writes the recorded moment whose turn it is."""
        moment = self._now % self._moments
        for key, array in self._plain.items():
            rows[key][:] = array[moment]

    def step(self, actions: Sequence[Any], rows: Rows) -> None:
        """Goes on to the next moment; ends the episodes that are long enough."""
        moment = self._now % self._moments
        rewards = self._rewards[moment]
        rows["reward"][:] = rewards
        for key, array in self._events.items():
            rows[key][:] = array[moment]
        self._sums += rewards
        self._now += 1
        if self.finished:
            self.first[:] = False
            self.finished = []
        elif self._now == 1:
            self.first[:] = False
        for index in np.flatnonzero(self._ends == self._now).tolist():
            steps = int(self._now - self._begun[index])
            info = EpisodeInfo(self._episodes[index], steps, float(self._sums[index]), int(EndStatus.ENDED), False)
            self.finished.append((index, info))
            rows["terminated"][index] = self.first[index] = True
            self._start(index)

    def close(self) -> None:
        """Nothing to free."""

    def _start(self, index: int) -> None:
        """Begins an episode; its length follows from its number, so that the games do not end all at once."""
        self._episodes[index] = episode = self._next_episode(index)
        length = self._episode_steps // 2 + 1 + 37 * episode % self._episode_steps
        self._begun[index], self._ends[index], self._sums[index] = self._now, self._now + length, 0.0


class CannedWorld(World):
    """See the module docstring; the config names it as `env.world="motif_jax.envs.canned:CannedWorld"`."""

    name = "canned"
    about = "a recording of a game"
    action = CHOICE
    action_names = tuple(map(str, range(NUM_ACTIONS)))
    figures: Mapping[str, type] = {}
    specs = {key: (OBSERVATIONS | EVENTS)[key] for key in POLICY_OBSERVATIONS}  # noqa: RUF012
    reads = ("crop", "blstats", "message")
    pairs = ("message",)
    players = ("random",)
    texts = None

    def __init__(self, recording: str, episode_steps: int = 1000, max_episode_steps: int = 0):
        """Takes the file to show, and how long episodes are on average.

        The file is NumPy's: `npz` with observations and `reward` by name, [M, C, ...] each: M moments of C games.
        """
        self._file, self._episode_steps = Path(recording), episode_steps

    def check(self) -> None:
        """See `World.check`."""
        if not self._file.is_file():
            raise UserError(f"there is no recording {str(self._file)!r} (--config.env.options)")

    def vector(
        self,
        num_games: int,
        observations: tuple[str, ...],
        *,
        seed: int,
        stream: int,
        next_episode: Callable[[int], int] | None = None,
        extra_frames: Iterable[str] = (),
        stepping: Any = None,
    ) -> CannedVector:
        """See `World.vector`."""
        try:
            recording = read_arrays(self._file, (*observations, "reward"), limit=LARGEST_ARRAY)
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read the recording {str(self._file)!r}: {error} (--config.env.options)") from error
        return CannedVector(
            num_games,
            recording,
            episode_steps=self._episode_steps,
            seed=seed,
            stream=stream,
            next_episode=next_episode or (lambda index: index),
        )

    def game(self, shown: bool = True) -> Game:
        """Raises UserError: there is no game that could be played again."""
        raise UserError("a recording cannot be played again (--config.env.world)")

    def plays(self, facts: Mapping[str, Any]) -> str:
        """See `World.plays`."""
        return "was not trained on a recording"

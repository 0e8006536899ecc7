"""Measures what our Python adds to the engine where many games step in turn: the same games, with and without it.

Games that step in turn push each other out of the processor's caches, so this is slower per step than one game alone.
Both ways play the same steps of the same episodes from their beginning; starting them is not counted.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from motif_jax.envs.nethack.game import NetHackGame
from motif_jax.envs.nethack.keys import KEYS
from motif_jax.envs.nethack.observations import POLICY_OBSERVATIONS, open_rows
from motif_jax.envs.nethack.settings import GameSettings
from motif_jax.envs.nethack.vector import GameVector
from motif_jax.envs.world import step_specs

STEPS = 400


class Recorder:
    """Stands before an engine and keeps the keys that it is sent."""

    def __init__(self, engine: Any):
        self.keys: list[int] = []
        self._engine = engine

    def step(self, key: int) -> None:
        """Sends a key."""
        self.keys.append(key)
        self._engine.step(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class Lockstep:
    """Games in one process, and STEPS random actions for each, in which none of their episodes ends."""

    def __init__(self, games: int, screen: str = "terminal"):
        """Finds episodes that last long enough, and the keys that their actions become."""
        self._episodes: list[int] = []
        self._vector = GameVector(
            games, GameSettings(screen=screen), POLICY_OBSERVATIONS, next_episode=lambda index: self._episodes[index]
        )
        self._actions = np.random.default_rng(0).integers(len(KEYS), size=(STEPS, games)).tolist()
        episode, keys = 0, []
        for index, game in enumerate(self._vector.games):
            assert isinstance(game, NetHackGame)
            while (found := self._record(game, index, episode)) is None:
                episode += 1
            keys.append(found)
            self._episodes.append(episode)
            episode += 1
        self._keys = list(zip(*keys, strict=True))  # by step, then by game
        specs = step_specs() | self._vector.observer.specs
        self._rows = open_rows({key: np.zeros((games, *spec.shape), spec.dtype) for key, spec in specs.items()})

    def _record(self, game: NetHackGame, index: int, episode: int) -> list[list[int]] | None:
        """The keys of each step of an episode; None if it ends before."""
        game.reset(self._vector.seed_of(episode), episode)
        engine, recorder = game._raw, Recorder(game._raw)
        game._raw, game._send = recorder, recorder.step
        keys = []
        for actions in self._actions:
            recorder.keys = []
            game.step(actions[index])
            keys.append(recorder.keys)
            if game.end:
                break
        game._raw = engine
        return None if game.end else keys

    def engines(self) -> float:
        """Steps per second of the processor, of the engines alone."""
        self._vector.reset()
        sends = [game._raw.step for game in self._vector.games]  # type: ignore[attr-defined]
        start = time.thread_time()
        for step in self._keys:
            for send, keys in zip(sends, step, strict=True):
                for key in keys:
                    send(key)
        return STEPS * len(sends) / (time.thread_time() - start)

    def stepper(self) -> float:
        """Steps per second of the processor, with task, observations and events."""
        vector, rows = self._vector, self._rows
        vector.reset()
        start = time.thread_time()
        for actions in self._actions:
            vector.step(actions, rows)
            vector.observe(rows)
        return STEPS * len(vector.games) / (time.thread_time() - start)

    def close(self) -> None:
        """Closes the games."""
        self._vector.close()

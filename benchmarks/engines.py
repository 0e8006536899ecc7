"""The ways of playing NetHack that `games.py` measures, each in steps per second."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.random_policy import RandomPolicy
from benchmarks.rows import rate_of
from motif_jax.actors.acting import answer
from motif_jax.actors.pool import ActorPool
from motif_jax.envs.nethack.game import KEYS, NetHackGame
from motif_jax.envs.nethack.observations import POLICY_OBSERVATIONS, Observer, open_rows
from motif_jax.envs.nethack.world import GameSettings, GameVector
from motif_jax.envs.world import GameSeed, game_seed, step_specs

RAW_KEYS = ("tty_chars", "tty_colors", "tty_cursor", "blstats", "message", "glyphs")  # what the content is made from
ROLLOUT = 128
LONGEST = 3000  # steps of the game whose keys are sent to the engine alone


def gymnasium_single(seconds: float, keys: tuple[str, ...] | None) -> float:
    """NLE's own environment, stepped in a loop."""
    import gymnasium
    import nle.env  # noqa: F401  (registers)

    options: dict[str, Any] = {"observation_keys": keys} if keys else {}
    env = gymnasium.make("NetHackScore-v0", **options)
    rng = np.random.default_rng(0)
    env.reset()

    def play() -> int:
        for action in rng.integers(23, size=1000).tolist():
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return 1000

    rate = rate_of(play, seconds)
    env.close()
    return rate


def gymnasium_async(seconds: float, games: int) -> float:
    """gymnasium's own pool: one process per game."""
    import gymnasium
    import nle.env  # noqa: F401

    def make() -> gymnasium.Env:
        return gymnasium.make("NetHackScore-v0", observation_keys=RAW_KEYS)

    envs = gymnasium.vector.AsyncVectorEnv([make] * games)
    rng = np.random.default_rng(0)
    envs.reset()

    def play() -> int:
        for _ in range(8):
            envs.step(rng.integers(23, size=games))
        return 8 * games

    rate = rate_of(play, seconds)
    envs.close()
    return rate


def stepper(seconds: float, games: int, screen: str) -> float:
    """Our games in lock-step in this process, with everything that a policy is shown."""
    vector = GameVector(games, GameSettings(screen=screen), POLICY_OBSERVATIONS)
    vector.reset()
    specs = step_specs() | vector.observer.specs
    rows = open_rows({key: np.zeros((games, *spec.shape), spec.dtype) for key, spec in specs.items()})
    rng = np.random.default_rng(0)

    def play() -> int:
        for actions in rng.integers(23, size=(1024 // games, games)).tolist():
            vector.step(actions, rows)
            vector.observe(rows)
        return 1024 // games * games

    rate = rate_of(play, seconds)
    vector.close()
    return rate


def pool(seconds: float, games: int, workers: int, player: str) -> float:
    """Our pool, with random actions chosen beside the games or by a policy in this process."""
    with ActorPool(
        {}, POLICY_OBSERVATIONS, num_workers=workers, games_per_worker=max(games // workers // 2 * 2, 2),
        rollout_length=ROLLOUT, player=player,
    ) as actors:  # fmt: skip
        policy = RandomPolicy(len(KEYS))
        per_slot = ROLLOUT * actors.layout.group_size
        start = 0.0
        count = -2 * actors.layout.num_workers * actors.layout.groups * per_slot  # not before all have begun
        while not start or not count or time.perf_counter() - start < seconds:
            requests, full = actors.poll()
            answer(actors, requests, policy)
            for rollout in full:
                count += per_slot
                actors.release(rollout)
                if count >= 0 and not start:
                    count, start = 0, time.perf_counter()
        return count / (time.perf_counter() - start)


def engine_limit(seconds: float) -> float:
    """The engine alone: the keys of a recorded game are sent again, with nothing in between."""
    game = GameSettings().make(Observer(1, POLICY_OBSERVATIONS).views(0))
    assert isinstance(game, NetHackGame)
    seed = game_seed(0, 1, 0)
    steps = record_keys(game, seed)
    keys = [key for step in steps for key in step]
    engine, passed, count = game._raw, 0.0, 0
    while passed < seconds:
        game.reset(seed)
        start = time.perf_counter()
        send = engine.step
        for key in keys:
            send(key)
        passed += time.perf_counter() - start
        count += len(steps)
    game.close()
    return count / passed


class Recorder:
    """Stands before an engine and keeps the keys that it is sent."""

    def __init__(self, engine: Any):
        self.keys: list[int] = []
        self._engine = engine

    def step(self, key: int) -> None:
        self.keys.append(key)
        self._engine.step(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def record_keys(game: NetHackGame, seed: GameSeed) -> list[list[int]]:
    """The keys of each step of random play, up to the step that ends the episode, or LONGEST steps."""
    game.reset(seed)
    engine, recorder = game._raw, Recorder(game._raw)
    game._raw, game._send = recorder, recorder.step
    steps = []
    for action in np.random.default_rng(1).integers(len(KEYS), size=LONGEST).tolist():
        recorder.keys = []
        game.step(action)
        if game.end:
            break
        steps.append(recorder.keys)
    game._raw = engine
    return steps

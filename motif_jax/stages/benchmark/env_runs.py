"""The runs that `env.py` measures: each function plays for about `seconds` and returns steps per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from motif_jax.actors.inference import RandomPolicy, answer
from motif_jax.actors.pool import ActorPool
from motif_jax.envs.nethack.game import NetHackGame
from motif_jax.envs.nethack.keys import KEYS
from motif_jax.envs.nethack.observations import POLICY_OBSERVATIONS, Frames, frame_keys, open_rows
from motif_jax.envs.nethack.settings import GameSettings
from motif_jax.envs.nethack.vector import GameVector
from motif_jax.envs.seeding import game_seed
from motif_jax.envs.world import step_specs

RAW_KEYS = ("tty_chars", "tty_colors", "tty_cursor", "blstats", "message", "glyphs")  # what the content is made from
ROLLOUT = 128


def steps_per_second(seconds: float, steps: int, play: Callable[[], None]) -> float:
    """Rate of `play`, which plays `steps` steps, over about `seconds`."""
    play()  # first games, caches
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        play()
        count += steps
    return count / passed


def gymnasium_single(seconds: float, keys: tuple[str, ...] | None) -> float:
    """NLE's own environment, stepped in a loop."""
    import gymnasium
    import nle.env  # noqa: F401  (registers)

    options: dict[str, Any] = {"observation_keys": keys} if keys else {}
    env = gymnasium.make("NetHackScore-v0", **options)
    rng = np.random.default_rng(0)
    env.reset()

    def play() -> None:
        for action in rng.integers(23, size=1000).tolist():
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    rate = steps_per_second(seconds, 1000, play)
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

    def play() -> None:
        for _ in range(8):
            envs.step(rng.integers(23, size=games))

    rate = steps_per_second(seconds, 8 * games, play)
    envs.close()
    return rate


def stepper(seconds: float, games: int, screen: str) -> float:
    """Our games in lock-step in this process, with everything that a policy is shown."""
    vector = GameVector(games, GameSettings(screen=screen), POLICY_OBSERVATIONS)
    vector.reset()
    specs = step_specs() | vector.observer.specs
    rows = open_rows({key: np.zeros((games, *spec.shape), spec.dtype) for key, spec in specs.items()})
    rng = np.random.default_rng(0)

    def play() -> None:
        for actions in rng.integers(23, size=(1024 // games, games)).tolist():
            vector.step(actions, rows)
            vector.observe(rows)

    rate = steps_per_second(seconds, 1024 // games * games, play)
    vector.close()
    return rate


def engine_limit(seconds: float) -> float:
    """The engine alone: the keys of a recorded game are sent again, with nothing in between."""
    frames = Frames(1, frame_keys(POLICY_OBSERVATIONS, "terminal"))
    game = GameSettings().make(frames.views(0))
    assert isinstance(game, NetHackGame)
    keys, steps = _record_keys(game)
    seed, engine = game_seed(0, 1, 0), game._raw
    passed = count = 0.0
    while passed < seconds:
        game.reset(seed)
        start = time.perf_counter()
        send = engine.step
        for key in keys:
            send(key)
        passed += time.perf_counter() - start
        count += steps
    game.close()
    return count / passed


def _record_keys(game: NetHackGame) -> tuple[list[int], int]:
    """The keys of the longest stretch of random play that does not end, and its number of steps."""

    class Recorder:
        def __init__(self, engine: object):
            self.keys: list[int] = []
            self._engine = engine

        def step(self, key: int) -> None:
            self.keys.append(key)
            self._engine.step(key)  # type: ignore[attr-defined]

        def __getattr__(self, name: str) -> object:
            return getattr(self._engine, name)

    engine, game._raw = game._raw, Recorder(game._raw)
    game.reset(game_seed(0, 1, 0))
    recorder, game._raw.keys = game._raw, []
    rng = np.random.default_rng(1)
    steps, settled = 0, 0
    while steps < 3000:
        game.step(int(rng.integers(len(KEYS))))
        if game.end:
            break
        steps, settled = steps + 1, len(recorder.keys)
    game._raw = engine
    return recorder.keys[:settled], steps


def pool(seconds: float, games: int, workers: int, player: str) -> float:
    """Our pool, with random actions chosen beside the games or by a policy in this process."""
    with ActorPool(
        {},
        POLICY_OBSERVATIONS,
        num_workers=workers,
        games_per_worker=max(games // workers // 2 * 2, 2),
        rollout_length=ROLLOUT,
        player=player,
    ) as actors:
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

"""How fast games can be played here: plain NLE, gymnasium's ways, our stepper, our pool, and what the engine allows.

All play the score task with random actions and give the same content: the terminal's characters and colours around
the hero, bottom line, message. Plain gymnasium gives the raw arrays; ours include the task, crop, counts and events.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.actors.capacity import usable_cores
from motif_jax.actors.inference import RandomPolicy, answer
from motif_jax.actors.pool import ActorPool
from motif_jax.envs.nethack import KEYS, NetHackGame
from motif_jax.envs.observations import POLICY_OBSERVATIONS, Frames, frame_keys, open_rows
from motif_jax.envs.seeding import game_seed
from motif_jax.envs.vector import STEP_SPECS, GameSettings, GameVector
from motif_jax.metrics import resident_mib
from motif_jax.stages import collect
from motif_jax.stages.benchmark import Row, say

RAW_KEYS = ("tty_chars", "tty_colors", "tty_cursor", "blstats", "message", "glyphs")  # what the content is made from
GAMES = (16, 64)
WORKERS = 2
RESETS = 2000
ROLLOUT = 128


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """All rows of this part, printed as they come."""
    seconds, repeats = config.benchmark.seconds, config.benchmark.repeats
    rows: dict[str, Row] = {}

    def add(name: str, value: float, unit: str, **sizes: object) -> None:
        rows[name] = say(Row(name, round(value, 3), unit, sizes))

    # ---- one core
    rates = take_turns(
        {
            "env.gymnasium_single": lambda: gymnasium_single(seconds, RAW_KEYS),
            "env.gymnasium_single.all_keys": lambda: gymnasium_single(seconds, None),
            "env.stepper_single": lambda: stepper(seconds, 1, "terminal"),
            "env.stepper_single.map": lambda: stepper(seconds, 1, "map"),
            "env.stepper.16": lambda: stepper(seconds, 16, "terminal"),
            "env.engine_limit": lambda: engine_limit(seconds),
        },
        repeats,
    )
    sizes = {"env.stepper.16": 16}
    for name, rate in rates.items():
        add(name, rate, "steps/s", games=sizes.get(name, 1), cores=1)

    # ---- many games
    runs: dict[str, Callable[[], float]] = {}
    for games in GAMES:
        runs[f"env.gymnasium_async.{games}"] = partial(gymnasium_async, seconds, games)
        for workers in worker_counts():
            runs[f"env.pool.{workers}x{games}"] = partial(pool, seconds, games, "random", workers)
        for workers in worker_counts():
            runs[f"env.pool_policy.{workers}x{games}"] = partial(pool, seconds, games, "", workers)
    rates |= take_turns(runs, repeats)
    for name in runs:
        workers, games = sizes_of(name)
        actions = "in the workers" if ".pool." in name else "from the parent"
        add(name, rates[name], "steps/s", games=games, workers=workers, actions=actions)
    for games in GAMES:
        ratio = rates[f"env.pool.{WORKERS}x{games}"] / rates[f"env.gymnasium_async.{games}"]
        add(f"env.pool_over_async.{games}", ratio, "times")
    add("env.stepper_over_gymnasium", rates["env.stepper_single"] / rates["env.gymnasium_single"], "times")
    add("env.stepper_over_limit", rates["env.stepper_single"] / rates["env.engine_limit"], "of the engine")
    both_cores = WORKERS * rates["env.stepper_single"]
    add("env.pool_over_steppers", rates[f"env.pool.{WORKERS}x64"] / both_cores, "of two cores")

    # ---- sizes
    add("env.bytes_per_step", bytes_per_step(), "bytes", observations=len(POLICY_OBSERVATIONS))
    per_game, growth = memory()
    add("env.memory_per_game", per_game, "MiB", games=32)
    add("env.memory_growth", growth, "MiB", resets=RESETS)
    add("collect.steps_per_s", collect_rate(config, workdir), "steps/s", collector="random", workers=WORKERS)

    recommend(rates)
    return list(rows.values())


def take_turns(runs: dict[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Median of each run over `repeats` rounds, in each of which all of them have their turn."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            found[name].append(run())
            gc.collect()
    return {name: statistics.median(values) for name, values in found.items()}


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
    specs = STEP_SPECS | vector.observer.specs
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


def worker_counts() -> list[int]:
    """Numbers of workers to try here."""
    return sorted({1, WORKERS, usable_cores()})


def sizes_of(name: str) -> tuple[int, int]:
    """Workers and games, from a row's name."""
    workers, _, games = name.rpartition(".")[2].rpartition("x")
    return int(workers or games), int(games)


def pool(seconds: float, games: int, player: str, workers: int = WORKERS) -> float:
    """Our pool, with random actions chosen beside the games or by a policy in this process."""
    with ActorPool(
        GameSettings(),
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


def bytes_per_step() -> int:
    """What one game ships per step."""
    with ActorPool(
        GameSettings(task="toy"), POLICY_OBSERVATIONS, num_workers=0, games_per_worker=2, rollout_length=2
    ) as actors:
        return actors.layout.bytes_per_step


def memory() -> tuple[float, float]:
    """MiB per game, and MiB by which this process grows over many resets."""
    make = GameSettings().make
    keys = frame_keys(POLICY_OBSERVATIONS, "terminal")
    before = resident_mib()
    games = [make(Frames(1, keys).views(0)) for _ in range(32)]
    for number, game in enumerate(games):
        game.reset(game_seed(0, 1, number), 0)
        for action in range(200):
            if not game.end:
                game.step(action % len(KEYS))
    per_game = (resident_mib() - before) / len(games)
    game = games[0]
    for number in range(RESETS):
        if number == RESETS // 10:  # once allocators have settled
            before = resident_mib()
        game.reset(game_seed(1, 1, number), 0)
        for action in range(20):
            if not game.end:
                game.step(action)
    growth = resident_mib() - before
    for game in games:
        game.close()
    return per_game, growth


def collect_rate(config: ConfigDict, workdir: Path) -> float:
    """Steps per second of the collect stage, from its start to the finished dataset."""
    config = config.copy_and_resolve_references()
    config.collect.update({"collector": "random", "num_pairs": 100_000, "keep_empty": 1.0, "dataset": ""})
    config.collect.update({"segment_length": 1, "save_screen": False, "num_workers": WORKERS})
    with tempfile.TemporaryDirectory(dir=workdir) as folder:
        start = time.perf_counter()
        collect.run(config, Path(folder))
        return 2 * config.collect.num_pairs / (time.perf_counter() - start)


def recommend(rates: dict[str, float]) -> None:
    """Says what was fastest on this machine."""
    for kind, words in (("pool", "scripted players"), ("pool_policy", "a policy")):
        best = max((name for name in rates if name.startswith(f"env.{kind}.")), key=lambda name: rates[name])
        workers, games = sizes_of(best)
        print(
            f"benchmark: for {words}, num_workers={workers} and games_per_worker={games // workers} were fastest here"
        )

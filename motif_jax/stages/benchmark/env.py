"""Measures how fast games run: NLE in gymnasium, alone and in parallel, our stepper, our pool, the engine alone.

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

from ml_collections import ConfigDict

from motif_jax.actors.pool import ActorPool
from motif_jax.console import print_line
from motif_jax.envs.nethack.keys import KEYS
from motif_jax.envs.nethack.observations import POLICY_OBSERVATIONS, Frames, frame_keys
from motif_jax.envs.nethack.settings import GameSettings
from motif_jax.envs.seeding import game_seed
from motif_jax.stages import collect
from motif_jax.stages.benchmark.env_lockstep import Lockstep
from motif_jax.stages.benchmark.env_runs import RAW_KEYS, engine_limit, gymnasium_async, gymnasium_single, pool, stepper
from motif_jax.stages.benchmark.rows import Row, say, take_turns
from motif_jax.system.machine import usable_cores
from motif_jax.system.metrics import resident_mib

GAMES = (16, 64)
WORKERS = 2
RESETS = 2000
PAIRS = 100_000  # that the stage collect is timed with


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Measures this part of the benchmark; returns its rows, each printed as soon as it is known."""
    seconds, repeats = config.benchmark.seconds, config.benchmark.repeats
    rows: dict[str, Row] = {}

    def add(name: str, value: float, unit: str, **sizes: object) -> None:
        rows[name] = say(Row(name, round(value, 3), unit, sizes))

    # ---- one core
    gc.collect()
    gc.freeze()  # so that collections do not scan what the launcher has loaded
    rounds = take_turns(
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
    for name, rates in rounds.items():
        add(name, statistics.median(rates), "steps/s", games=sizes.get(name, 1), cores=1)

    # ---- many games in turn, and what our Python adds to their engines
    for games in GAMES:
        lockstep = Lockstep(games)
        names = {f"env.lockstep_engines.{games}": lockstep.engines, f"env.lockstep_stepper.{games}": lockstep.stepper}
        found = take_turns(names, repeats + 1)
        rounds |= {name: rates[1:] for name, rates in found.items()}  # without the first, in which memory is touched
        lockstep.close()
        for name in names:
            add(name, statistics.median(rounds[name]), "steps/s", games=games, cores=1, time="of the processor")

    # ---- many games
    runs: dict[str, Callable[[], float]] = {}
    for games in GAMES:
        runs[f"env.gymnasium_async.{games}"] = partial(gymnasium_async, seconds, games)
        for workers in worker_counts():
            runs[f"env.pool.{workers}x{games}"] = partial(pool, seconds, games, workers, "random")
        for workers in worker_counts():
            runs[f"env.pool_policy.{workers}x{games}"] = partial(pool, seconds, games, workers, "")
    rounds |= take_turns(runs, repeats)
    for name in runs:
        workers, games = sizes_of(name)
        actions = "in the workers" if ".pool." in name else "from the parent"
        add(name, statistics.median(rounds[name]), "steps/s", games=games, workers=workers, actions=actions)

    # ---- compared, round by round
    def compare(name: str, one: str, other: str, unit: str) -> None:
        ratios = [a / b for a, b in zip(rounds[one], rounds[other], strict=True)]
        add(name, statistics.median(ratios), unit, least=round(min(ratios), 2), most=round(max(ratios), 2))

    compare("env.stepper_over_gymnasium", "env.stepper_single", "env.gymnasium_single", "times")
    compare("env.stepper_over_engine", "env.stepper_single", "env.engine_limit", "times")
    for games in GAMES:
        one, other = f"env.lockstep_stepper.{games}", f"env.lockstep_engines.{games}"
        compare(f"env.lockstep_stepper_over_engines.{games}", one, other, "times")
        compare(f"env.pool_over_async.{games}", f"env.pool.{WORKERS}x{games}", f"env.gymnasium_async.{games}", "times")
        compare(f"env.pool_over_stepper.{games}", f"env.pool.{WORKERS}x{games}", "env.stepper_single", "times")

    # ---- sizes
    add("env.bytes_per_step", bytes_per_step(), "bytes", observations=len(POLICY_OBSERVATIONS))
    per_game, growth = memory()
    add("env.memory_per_game", per_game, "MiB", games=32)
    add("env.memory_growth", growth, "MiB", resets=RESETS)
    add("collect.steps_per_s", collect_rate(config, workdir), "steps/s", collector="random", workers=WORKERS)

    recommend({name: statistics.median(rates) for name, rates in rounds.items()})
    return list(rows.values())


def worker_counts() -> list[int]:
    """The numbers of workers to try on this machine."""
    return sorted({1, WORKERS, usable_cores()})


def sizes_of(name: str) -> tuple[int, int]:
    """Workers and games, from a row's name."""
    workers, _, games = name.rpartition(".")[2].rpartition("x")
    return int(workers or games), int(games)


def bytes_per_step() -> int:
    """Bytes of a rollout per game and step, with all observations of a policy."""
    with ActorPool({"task": "toy"}, POLICY_OBSERVATIONS, num_workers=0, games_per_worker=2, rollout_length=2) as actors:
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
    config.collect.update({"collector": "random", "num_pairs": PAIRS, "keep_empty": 1.0, "dataset": ""})
    config.collect.update({"segment_length": 1, "save_screen": False, "save_glyphs": False, "num_workers": WORKERS})
    with tempfile.TemporaryDirectory(dir=workdir) as folder:
        start = time.perf_counter()
        collect.run(config, Path(folder))
        return 2 * config.collect.num_pairs / (time.perf_counter() - start)


def recommend(rates: dict[str, float]) -> None:
    """Prints the numbers of workers and games that were fastest on this machine."""
    for kind, words in (("pool", "scripted players"), ("pool_policy", "a policy")):
        best = max((name for name in rates if name.startswith(f"env.{kind}.")), key=lambda name: rates[name])
        workers, games = sizes_of(best)
        print_line(
            f"benchmark: for {words}, num_workers={workers} and games_per_worker={games // workers} were fastest here"
        )

"""Games: how fast NetHack runs, beside gymnasium and the engine alone, and how fast Wordle is played.

NetHack is played with random actions on the score task, and every way gives the same content: the terminal's characters
and colours around the hero, bottom line, message. Plain gymnasium gives the raw arrays; ours include the task, crop,
counts and events.
"""

from __future__ import annotations

import gc
import itertools
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ml_collections import ConfigDict

from benchmarks.engines import RAW_KEYS, engine_limit, gymnasium_async, gymnasium_single, pool, stepper
from benchmarks.rows import Row, Rows, bytes_per_step, medians, rate_of, take_turns
from motif_jax.actors.pool import ActorPool
from motif_jax.actors.recorder import play_episodes
from motif_jax.console import print_line
from motif_jax.envs.nethack.engine import DLPATH, find_library
from motif_jax.envs.nethack.game import KEYS
from motif_jax.envs.nethack.observations import POLICY_OBSERVATIONS, Observer
from motif_jax.envs.nethack.recorded import play
from motif_jax.envs.nethack.world import GameSettings
from motif_jax.envs.wordle.world import WordleWorld
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.stages import collect
from motif_jax.system.machine import usable_cores
from motif_jax.system.metrics import resident_mib

GAMES = (16, 64)
AT_A_TIME = 16
WORKERS = 2
RESETS = 2000
PAIRS = 100_000  # that the stage collect is timed with
PLAYER = "repeat*0.6+candidate*0.4"  # of Wordle
AT_ONCE = 64  # games of Wordle in the pool
BLOCK = 500  # games of Wordle between two looks at the clock


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `env.*` and `collect.*`: steps per second and memory of NetHack."""
    seconds, repeats = config.benchmark.seconds, config.benchmark.repeats
    rows, libraries = Rows(), {"wheel": DLPATH}
    if (built := find_library().path) != DLPATH:
        libraries["built"] = built

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
        }
        | {f"env.learnt.{name}": partial(learnt, path) for name, path in libraries.items()},
        repeats,
    )
    for name, rate in medians(rounds).items():
        games = AT_A_TIME if name.startswith("env.learnt.") or name == "env.stepper.16" else 1
        rows.add(name, rate, "steps/s", games=games, cores=1)
    if "built" in libraries:
        rows.compare("env.built_over_wheel", rounds["env.learnt.built"], rounds["env.learnt.wheel"], digits=2)

    # ---- many games
    runs: dict[str, Callable[[], float]] = {}
    sizes: dict[str, tuple[int, int]] = {}  # workers and games
    for games in GAMES:
        name = f"env.gymnasium_async.{games}"
        runs[name], sizes[name] = partial(gymnasium_async, seconds, games), (games, games)
        for kind, player in (("pool", "random"), ("pool_policy", "")):
            for workers in sorted({1, WORKERS, usable_cores()}):
                name = f"env.{kind}.{workers}x{games}"
                runs[name], sizes[name] = partial(pool, seconds, games, workers, player), (workers, games)
    rounds |= take_turns(runs, repeats)
    rates = medians(rounds)
    for name, (workers, games) in sizes.items():
        actions = "in the workers" if ".pool." in name else "from the parent"
        rows.add(name, rates[name], "steps/s", games=games, workers=workers, actions=actions)

    # ---- compared, round by round
    def compare(name: str, one: str, other: str) -> None:
        rows.compare(f"env.{name}", rounds[f"env.{one}"], rounds[f"env.{other}"], digits=2)

    compare("stepper_over_gymnasium", "stepper_single", "gymnasium_single")
    compare("stepper_over_engine", "stepper_single", "engine_limit")
    for games in GAMES:
        compare(f"pool_over_async.{games}", f"pool.{WORKERS}x{games}", f"gymnasium_async.{games}")
        compare(f"pool_over_stepper.{games}", f"pool.{WORKERS}x{games}", "stepper_single")

    # ---- sizes
    rows.add("env.bytes_per_step", bytes_of_toy(), "bytes", observations=len(POLICY_OBSERVATIONS))
    per_game, growth = memory()
    rows.add("env.memory_per_game", per_game, "MiB", games=32)
    rows.add("env.memory_growth", growth, "MiB", resets=RESETS)
    rows.add("collect.steps_per_s", collect_rate(config, workdir), "steps/s", collector="random", workers=WORKERS)

    for kind, words in (("pool", "scripted players"), ("pool_policy", "a policy")):
        workers, games = sizes[max((name for name in sizes if f".{kind}." in name), key=lambda name: rates[name])]
        print_line(
            f"benchmark: for {words}, num_workers={workers} and games_per_worker={games // workers} were fastest here"
        )
    return rows


def learnt(library: str) -> float:
    """Steps per second of recorded games of the released agent, which are the same on every machine."""
    return 1e6 / play(library, slice(-AT_A_TIME, None))[0]


def bytes_of_toy() -> int:
    """Bytes of a rollout per game and step, with all observations of a policy."""
    with ActorPool({"task": "toy"}, POLICY_OBSERVATIONS, num_workers=0, games_per_worker=2, rollout_length=2) as actors:
        return bytes_per_step(actors.layout)


def memory() -> tuple[float, float]:
    """MiB per game, and MiB by which this process grows over many resets."""
    make = GameSettings().make
    before = resident_mib()
    games = [make(Observer(1, POLICY_OBSERVATIONS).views(0)) for _ in range(32)]
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
        collect.run(collect.STAGE.view(config.to_dict()), Path(folder))
        return 2 * config.collect.num_pairs / (time.perf_counter() - start)


# ---- Wordle


def measure_texts(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `wordle.*`: games per second on one core, as turns and through a pool as arrays.

    `wordle.seeding` is the limit: games that only draw their random numbers' seeds.
    """
    world, seconds, numbers = WordleWorld(), config.benchmark.seconds, itertools.count()

    def recorded() -> int:
        return len(list(play_episodes(world, PLAYER, itertools.islice(numbers, BLOCK), seed=0)))

    def seeded() -> int:
        for number in itertools.islice(numbers, BLOCK):
            seed = game_seed(0, SeedStream.COLLECT, number)
            random.Random(seed.core), random.Random(seed.player)
        return BLOCK

    runs: dict[str, Callable[[], float]] = {
        "wordle.games": lambda: rate_of(recorded, seconds),
        "wordle.games.pool": lambda: wordle_pool(seconds),
        "wordle.seeding": lambda: rate_of(seeded, seconds),
    }
    rows = Rows()
    for name, rate in medians(take_turns(runs, config.benchmark.repeats)).items():
        rows.add(name, rate, "games/s", 1, words=len(world.vocabulary.words), player=PLAYER, cores=1)
    return rows


def wordle_pool(seconds: float) -> float:
    """The same games through a pool in this process, with the observations that `recorded.from_steps` needs."""
    with ActorPool(
        {"world": "wordle"}, ("heard", "event_heard"), num_workers=0, games_per_worker=AT_ONCE, rollout_length=64,
        player=PLAYER,
    ) as actors:  # fmt: skip

        def play() -> int:
            games = 0
            while not games:
                for full in actors.poll()[1]:
                    games += len(actors.ended(full))
                    actors.release(full)
            return games

        return rate_of(play, seconds)

"""Measures worlds that are played by writing: games per second on one core, as turns and through a pool as arrays.

`wordle.seeding` is the limit: games that only draw their random numbers' seeds.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.actors.pool import ActorPool
from motif_jax.actors.recorded import play_episodes
from motif_jax.envs.seeding import SeedStream, game_seed
from motif_jax.envs.wordle.world import WordleWorld
from motif_jax.stages.benchmark.rows import Row, say, take_turns

ENV: dict[str, Any] = {"world": "wordle"}
PLAYER = "repeat*0.6+candidate*0.4"
AT_ONCE = 64  # games of the pool
BLOCK = 500  # games between two looks at the clock


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Measures this part of the benchmark; returns its rows, each printed as soon as it is known."""
    world, seconds = WordleWorld(), config.benchmark.seconds
    numbers = itertools.count()

    def recorded() -> int:
        return len(list(play_episodes(world, PLAYER, itertools.islice(numbers, BLOCK), seed=0)))

    def seeded() -> int:
        for number in itertools.islice(numbers, BLOCK):
            seed = game_seed(0, SeedStream.COLLECT, number)
            random.Random(seed.core), random.Random(seed.player)
        return BLOCK

    runs: dict[str, Callable[[], float]] = {
        "wordle.games": lambda: _rate(recorded, seconds),
        "wordle.games.pool": lambda: _pool_rate(seconds),
        "wordle.seeding": lambda: _rate(seeded, seconds),
    }
    sizes = {"words": len(world.vocabulary.words), "player": PLAYER, "cores": 1}
    found = take_turns(runs, config.benchmark.repeats)
    return [say(Row(name, round(statistics.median(rates), 1), "games/s", sizes)) for name, rates in found.items()]


def _rate(play: Callable[[], int], seconds: float) -> float:
    """Games per second of what plays some of them and says how many."""
    play()  # fills the caches of the vocabulary
    games, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < seconds or not games:
        games += play()
    return games / passed


def _pool_rate(seconds: float) -> float:
    """The same games through a pool in this process, with the observations that `recorded.from_steps` needs."""
    with ActorPool(
        ENV, ("heard", "event_heard"), num_workers=0, games_per_worker=AT_ONCE, rollout_length=64, player=PLAYER
    ) as pool:

        def play() -> int:
            games = 0
            while not games:
                for full in pool.poll()[1]:
                    games += len(pool.ended(full))
                    pool.release(full)
            return games

        return _rate(play, seconds)

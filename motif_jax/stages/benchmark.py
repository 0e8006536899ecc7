"""Benchmark: runs `benchmarks/`, which is beside the package in a checkout and measures this machine.

The values of its section are declared here, because every config has them.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motif_jax.config.table import PATH, List, Number, Text, Whole, value
from motif_jax.names import PROMPT_NETWORKS
from motif_jax.networks.kinds import BY_SPECS, FIXED
from motif_jax.stages import Stage
from motif_jax.stages.collect import CollectConfig
from motif_jax.stages.train_policy import TrainConfig
from motif_jax.stages.train_reward import RewardConfig

PARTS = (
    "env", "annotation", "reward", "limits", "policy", "options", "texts", "online", "questions", "language",
    "offline", "peers", "numerics", "profile", "train",
)  # fmt: skip


@dataclass(frozen=True)
class Benchmark:
    """Benchmarks of this machine."""

    parts: tuple[str, ...] = value(
        ("env", "annotation", "reward", "policy"), List(Text(PARTS), "part"), "parts to measure"
    )
    networks: tuple[str, ...] = value(
        ("reference", "small"), List(Text((*FIXED, *BY_SPECS, *PROMPT_NETWORKS)), "network"), "networks of the policy"
    )
    pairs: tuple[int, ...] = value((10_000, 50_000, 200_000), List(Whole(1, 10**9), "number of pairs"), "dataset sizes")
    seconds: float = value(2.0, Number(0, 1e6, above=True), "seconds per measurement")
    repeats: int = value(3, Whole(1), "measurements of each figure; their median is reported")
    train_seconds: float = value(180.0, Number(0, 1e6, above=True), "seconds of part train, for GPUs (configs/gpu.py)")
    limit_s: float = value(0.0, Number(0, 1e6), "seconds after which the remaining parts are left out; 0: no limit")
    peers_dir: str = value("", PATH, "environments of the part peers; empty: peers/ of the workdir")


@dataclass(frozen=True)
class BenchmarkConfig(CollectConfig, RewardConfig, TrainConfig):
    """The values that the stage reads, including the values of the stages that it measures."""

    benchmark: Benchmark = Benchmark()


def benchmarks() -> Any:
    """The package `benchmarks` of the checkout that this file belongs to."""
    if (checkout := str(Path(__file__).parents[2])) not in sys.path:
        sys.path.append(checkout)
    return importlib.import_module("benchmarks")


STAGE = Stage(
    config=BenchmarkConfig,
    sections=("benchmark",),
    check=lambda config: benchmarks().check(config),
    is_complete=lambda config, workdir: False,  # each run measures again
    run=lambda config, workdir: benchmarks().run(config, workdir),
    writes="--config.benchmark.pairs",
    memory="--config.benchmark.pairs, .parts",
    device_memory="--config.policy.batch_size, .num_minibatches, .network",
    loads_jax=lambda config: benchmarks().loads_jax(config),
)

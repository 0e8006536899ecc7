"""Measures this machine: prints a row per figure and writes them to `benchmark.json` of the workdir.

    python -m benchmarks --parts=env,reward,policy,language

Every figure is the median of several repeats. Figures that are compared are measured in turn, because machines are
shared and their speed drifts. Rows of `benchmark.json` are `{name, value, unit, sizes}`.

The parts of GPU are for a machine with an accelerator (launch/gpu.sh): with one of them, `benchmark.json` describes the
device, and `benchmark.md` has a table for the README.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from benchmarks.rows import Row
from motif_jax.config.table import PATH, List, Number, Text, Whole, value
from motif_jax.console import clean, print_line, print_lines
from motif_jax.files import write_json, write_whole
from motif_jax.learner.settings import PolicyGradient, find_algorithm
from motif_jax.names import ACTING, PROMPT_NETWORKS, import_named
from motif_jax.networks.kinds import BY_SPECS, FIXED
from motif_jax.stages import collect, train_policy, train_reward, values_of
from motif_jax.structs import Stopped, UserError
from motif_jax.system.machine import processor

PARTS = {  # the function of each; it is given the config and the workdir, and returns rows
    "env": "benchmarks.games:measure",
    "texts": "benchmarks.games:measure_texts",
    "annotation": "benchmarks.reward:measure_annotation",
    "reward": "benchmarks.reward:measure",
    "online": "benchmarks.online:measure",
    "questions": "benchmarks.questions:measure",
    "limits": "benchmarks.limits:measure",
    "policy": "benchmarks.policy:measure",
    "options": "benchmarks.policy:measure_options",
    "language": "benchmarks.language:measure",
    "offline": "benchmarks.offline:measure",
    "peers": "benchmarks.peers:measure",
    "numerics": "benchmarks.numerics:measure",
    "profile": "benchmarks.gpu:measure_profile",
    "train": "benchmarks.gpu:measure_train",
}
GPU = {"numerics", "profile", "train"}
TRAINING = {"limits", "policy", "options", "online", "language"} | GPU  # those that need what train_policy needs
if "options" not in ACTING:  # the plugin
    del PARTS["options"]
DEFAULT = tuple(
    part
    for part in ("env", "texts", "annotation", "reward", "online", "limits", "policy", "options", "language", "offline")
    if part in PARTS
)
LEAST_S = 20.0  # no measurement is begun with less time left, and as much is kept for the next ones


@dataclass(frozen=True)
class Benchmark:
    """The flags of `python -m benchmarks`."""

    parts: tuple[str, ...] = value(DEFAULT, List(Text(tuple(PARTS)), "part"), "parts to measure")
    networks: tuple[str, ...] = value(
        ("reference", "small"), List(Text((*FIXED, *BY_SPECS, *PROMPT_NETWORKS)), "network"), "networks of the policy"
    )
    pairs: tuple[int, ...] = value((10_000, 50_000, 200_000), List(Whole(1, 10**9), "number of pairs"), "dataset sizes")
    seconds: float = value(2.0, Number(0, 1e6, above=True), "seconds per measurement")
    repeats: int = value(3, Whole(1), "measurements of each figure; their median is reported")
    train_seconds: float = value(180.0, Number(0, 1e6, above=True), "seconds of part train, for GPUs (launch/gpu.sh)")
    limit_s: float = value(0.0, Number(0, 1e6), "seconds after which the remaining parts are left out; 0: no limit")
    peers_dir: str = value("", PATH, "environments of the part peers; empty: peers/ of the workdir")


@dataclass(frozen=True)
class BenchmarkConfig(collect.CollectConfig, train_reward.RewardConfig, train_policy.TrainConfig):
    """All values that are read: the flags, and the config of the stages that are measured."""

    benchmark: Benchmark = Benchmark()


def check(config: BenchmarkConfig, workdir: Path) -> None:
    """Raises UserError for values that the measured stages would refuse."""
    names = set(config.benchmark.parts)
    if {"env", "annotation", "reward", "train"} & names:
        collect.check(config, workdir)
    if {"reward", "train"} & names:
        train_reward.check(config, workdir)
    if TRAINING & names:
        train_policy.check(config, workdir)
        if not isinstance(find_algorithm(config.policy.algorithm), PolicyGradient):
            raise UserError(f"{config.policy.algorithm!r} is not measured (--config.policy.algorithm, --parts)")


def run(config: BenchmarkConfig, workdir: Path) -> None:
    """Makes the measurements and writes `workdir/benchmark.json`."""
    start, limit = time.monotonic(), config.benchmark.limit_s or math.inf
    result: dict[str, Any] = {"machine": describe_machine(), "skipped": {}, "seconds": {}, "rows": []}
    print_line(f"benchmark: {result['machine']}")
    on_gpu = GPU & set(config.benchmark.parts)
    if on_gpu:
        result |= import_named("benchmarks.gpu:describe_run")(changeable(config))
    rows: list[Row] = []
    errors: list[Exception] = []
    for name in dict.fromkeys(config.benchmark.parts):
        begun = time.monotonic()
        left = limit - (begun - start)
        if left < LEAST_S:
            result["skipped"][name] = "no time was left"
            print_line(f"benchmark: {name} is left out, as no time is left (--limit_s)")
            continue
        try:
            rows += import_named(PARTS[name])(changeable(config, left - LEAST_S), workdir)
        except Stopped:
            raise
        except Exception as error:  # raised below: the machine may be there for minutes only, for the others
            result["skipped"][name] = f"failed: {clean(error, 200)}"
            print_line(f"benchmark: {name} {result['skipped'][name]}", sys.stderr)
            errors.append(error)
        gc.collect()  # it may have filled the device's memory
        result["seconds"][name] = round(time.monotonic() - begun, 1)
        result["rows"] = [row._asdict() for row in rows]
        write_json(workdir / "benchmark.json", result)  # after each, so that a kill costs one
    write_json(workdir / "benchmark.json", result)
    if on_gpu:
        table = import_named("benchmarks.gpu:make_table")(result)
        write_whole(workdir / "benchmark.md", table.encode())
        print_lines(table)
    print_line(f"benchmark: written to {workdir / 'benchmark.json'}")
    if errors:
        raise errors[0]
    if "numerics" in on_gpu:
        import_named("benchmarks.numerics:check_agreement")(rows)


def changeable(config: BenchmarkConfig, seconds: float = math.inf) -> ConfigDict:
    """A copy of the config whose values measurements may change, and that trains for at most `seconds`."""
    copy = ConfigDict(values_of(config))
    copy.benchmark.train_seconds = min(copy.benchmark.train_seconds, max(seconds, LEAST_S / 2))
    return copy


def describe_machine() -> str:
    """This machine in one line: processor, cores, memory, version of Python."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"

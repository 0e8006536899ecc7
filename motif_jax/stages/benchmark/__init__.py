"""Benchmark: measures this machine, prints a table, and recommends numbers of workers and games.

Every figure is the median of several repeats. Figures that are compared are measured in turn, because machines are
shared and their speed drifts. Rows of `benchmark.json` are `{name, value, unit, sizes}`.
"""

from __future__ import annotations

import importlib
import os
import platform
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.config_table import List, Number, Tables, Text, Value, Whole, check_values
from motif_jax.console import print_line
from motif_jax.files import write_json
from motif_jax.stages import collect, train_policy, train_reward
from motif_jax.stages.benchmark.outlook import outlook
from motif_jax.stages.benchmark.rows import Row

WRITES = "--config.benchmark.pairs"
MEMORY = "--config.benchmark.pairs, .parts"
PARTS = {
    "env": "motif_jax.stages.benchmark.env",
    "annotation": "motif_jax.stages.benchmark.annotation",
    "reward": "motif_jax.stages.benchmark.reward",
    "policy": "motif_jax.stages.benchmark.policy",
    "pipeline": "motif_jax.stages.benchmark.pipeline",
}
TRAINING = {"policy", "pipeline"}  # parts that train a policy

TABLES: Tables = {
    "benchmark": {
        "parts": Value(List(Text(tuple(PARTS)), "part")),
        "networks": Value(List(train_policy.TABLES["policy"]["network"].kind, "network")),
        "pairs": Value(List(Whole(1, 10**9), "number of pairs")),
        "seconds": Value(Number(0, 1e6, above=True)),
        "repeats": Value(Whole(1)),
    }
}
READS: Tables = collect.READS | train_reward.READS | train_policy.READS | TABLES
IDENTITY = ()


def artefacts(workdir: Path) -> list[Path]:
    """Returns no paths: nothing is kept that a later run must agree with."""
    return []


def shared(config: ConfigDict) -> bool:
    """Returns False: only one job at a time may run in a workdir."""
    return False


def loads_jax(config: ConfigDict) -> bool:
    """Whether one of the parts that use JAX is measured."""
    return bool({"reward", *TRAINING} & set(config.benchmark.parts))


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Returns False: each run measures again."""
    return False


def check(config: ConfigDict) -> None:
    """Raises UserError for values that the measured stages would refuse."""
    check_values(config, READS)
    if set(config.benchmark.parts) - TRAINING:
        collect.check(config)
    if "reward" in config.benchmark.parts:
        train_reward.check(config)
    if TRAINING & set(config.benchmark.parts):
        train_policy.check(config)


def run(config: ConfigDict, workdir: Path) -> None:
    """Measures the parts and writes `workdir/benchmark.json`."""
    machine = describe_machine()
    print_line(f"benchmark: {machine}")
    rows: list[Row] = []
    for part in config.benchmark.parts:
        rows += importlib.import_module(PARTS[part]).measure(config, workdir)
    rows += outlook(rows)
    write_json(workdir / "benchmark.json", {"machine": machine, "rows": [row._asdict() for row in rows]})
    print_line(f"benchmark: written to {workdir / 'benchmark.json'}")


def describe_machine() -> str:
    """This machine in one line: processor, cores, memory, version of Python."""
    model = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
        memory = f", {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (OSError, ValueError):
        memory = ""
    return f"{model}, {os.cpu_count()} cores{memory}, Python {platform.python_version()}"

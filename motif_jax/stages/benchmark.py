"""Benchmark: measures this machine, prints a table, and recommends numbers of workers and games.

Every figure is the median of several repeats, taken in turn with those that it is compared with, because machines are
shared and their speed drifts. Rows of `benchmark.json` are `{name, value, unit, sizes}`.
"""

from __future__ import annotations

import gc
import importlib
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from motif_jax.config_table import List, Number, Tables, Text, Value, Whole, check_values
from motif_jax.console import print_line
from motif_jax.files import write_json
from motif_jax.stages import collect, train_policy, train_reward

WRITES = "--config.benchmark.pairs"
MEMORY = "--config.benchmark.pairs, .parts"
PARTS = {
    "env": "motif_jax.stages.measure_env",
    "annotation": "motif_jax.stages.measure_annotation",
    "reward": "motif_jax.stages.measure_reward",
    "policy": "motif_jax.stages.measure_policy",
}
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


class Row(NamedTuple):
    """One measured figure."""

    name: str
    value: float
    unit: str
    sizes: dict[str, Any]  # what it was measured on


def artefacts(workdir: Path) -> list[Path]:
    """Nothing that a later run must agree with."""
    return []


def shared(config: ConfigDict) -> bool:
    """No: one job at a time."""
    return False


def loads_jax(config: ConfigDict) -> bool:
    """For two of its parts."""
    return bool({"reward", "policy"} & set(config.benchmark.parts))


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Never: to measure again is the point."""
    return False


def check(config: ConfigDict) -> None:
    """Refuses what the stages that are measured would refuse."""
    check_values(config, READS)
    if set(config.benchmark.parts) != {"policy"}:
        collect.check(config)
    if "reward" in config.benchmark.parts:
        train_reward.check(config)
    if "policy" in config.benchmark.parts:
        train_policy.check(config)


def run(config: ConfigDict, workdir: Path) -> None:
    """Measures the parts and writes `workdir/benchmark.json`."""
    machine = describe_machine()
    print_line(f"benchmark: {machine}")
    rows: list[Row] = []
    for part in config.benchmark.parts:
        rows += importlib.import_module(PARTS[part]).measure(config, workdir)
    write_json(workdir / "benchmark.json", {"machine": machine, "rows": [row._asdict() for row in rows]})
    print_line(f"benchmark: written to {workdir / 'benchmark.json'}")


def say(row: Row) -> Row:
    """Prints a row as soon as it is known."""
    value = f"{row.value:,.0f}" if abs(row.value) >= 100 else f"{row.value:,.2f}"
    sizes = ", ".join(f"{name} {value}" for name, value in row.sizes.items())
    print_line(f"  {row.name:34} {value:>12} {row.unit:16} {sizes}")
    return row


def take_turns(runs: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Rates of each run over `repeats` rounds, in each of which all of them have their turn."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            found[name].append(run())
            gc.collect()
    return found


def describe_machine() -> str:
    """Processor, cores, memory, Python."""
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

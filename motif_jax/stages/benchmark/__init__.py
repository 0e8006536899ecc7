"""Benchmark: measures this machine, prints a table, and recommends numbers of workers and games.

Every figure is the median of several repeats. Figures that are compared are measured in turn, because machines are
shared and their speed drifts. Rows of `benchmark.json` are `{name, value, unit, sizes}`.

The parts in DEVICE are for a machine with an accelerator (launch/gpu.sh); with one of them, the device is described in
`benchmark.json`, and `benchmark.md` holds a table for the README.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.config.table import List, Number, Tables, Text, Value, Whole, check_values
from motif_jax.console import clean, print_line, print_lines
from motif_jax.learner.settings import Q_LEARNING
from motif_jax.stages import Stage, collect, train_policy, train_reward
from motif_jax.stages.benchmark.outlook import outlook
from motif_jax.stages.benchmark.rows import Row
from motif_jax.structs import Stopped, UserError
from motif_jax.system.files import write_json, write_whole

PARTS = {
    "env": "motif_jax.stages.benchmark.env",
    "annotation": "motif_jax.stages.benchmark.annotation",
    "reward": "motif_jax.stages.benchmark.reward",
    "policy": "motif_jax.stages.benchmark.policy",
    "pipeline": "motif_jax.stages.benchmark.pipeline",
    "texts": "motif_jax.stages.benchmark.texts",
    "online": "motif_jax.stages.benchmark.online",
    "language": "motif_jax.stages.benchmark.language",
    "offline": "motif_jax.stages.benchmark.offline",
    "numerics": "motif_jax.stages.benchmark.numerics",
    "profile": "motif_jax.stages.benchmark.profile",
    "train": "motif_jax.stages.benchmark.train",
}
DEVICE = {"numerics", "profile", "train"}
TRAINING = {"policy", "pipeline", "online", "language"} | DEVICE  # parts that need what train_policy needs
LEAST_S = 20.0  # no part is begun with less time left, and so much is kept for what follows

TABLES: Tables = {
    "benchmark": {
        "parts": Value(List(Text(tuple(PARTS)), "part")),
        "networks": Value(List(train_policy.TABLES["policy"]["network"].kind, "network")),
        "pairs": Value(List(Whole(1, 10**9), "number of pairs")),
        "seconds": Value(Number(0, 1e6, above=True)),
        "repeats": Value(Whole(1)),
        "train_seconds": Value(Number(0, 1e6, above=True), older=180.0),
        "limit_s": Value(Number(0, 1e6), older=0.0),
    }
}
READS: Tables = collect.READS | train_reward.READS | train_policy.READS | TABLES


def loads_jax(config: ConfigDict) -> bool:
    """Whether one of the parts that use JAX is measured."""
    return bool(({"reward", "offline"} | TRAINING) & set(config.benchmark.parts))


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Returns False: each run measures again."""
    return False


def check(config: ConfigDict) -> None:
    """Raises UserError for values that the measured stages would refuse."""
    check_values(config, READS)
    parts = set(config.benchmark.parts)
    if parts - {"policy", "pipeline", "texts", "online", "language", "offline", "numerics", "profile"}:
        collect.check(config)
    if {"reward", "train"} & parts:
        train_reward.check(config)
    if TRAINING & parts:
        train_policy.check(config)
        if config.policy.algorithm == Q_LEARNING:
            raise UserError(f"{Q_LEARNING!r} is not measured (--config.policy.algorithm, --config.benchmark.parts)")
    if "language" in parts and (config.policy.network, config.policy.language.model) != ("language", ""):
        raise UserError(
            "the part 'language' measures a policy that is a new language model, as in "
            "--config=configs/glam_quickstart.py:goto_small,unread (--config.benchmark.parts)"
        )


def run(config: ConfigDict, workdir: Path) -> None:
    """Measures the parts and writes `workdir/benchmark.json`."""
    start = time.monotonic()
    limit = config.benchmark.limit_s or math.inf
    result: dict[str, Any] = {"machine": describe_machine(), "skipped": {}, "seconds": {}, "rows": []}
    print_line(f"benchmark: {result['machine']}")
    if on_device := bool(DEVICE & set(config.benchmark.parts)):
        result |= describe_run(config)
    rows: list[Row] = []
    errors: list[Exception] = []
    for part in config.benchmark.parts:
        begun = time.monotonic()
        left = limit - (begun - start)
        if left < LEAST_S:
            result["skipped"][part] = "no time was left"
            print_line(f"benchmark: {part} is left out, as no time is left (--config.benchmark.limit_s)")
        else:
            try:
                rows += importlib.import_module(PARTS[part]).measure(within(config, left - LEAST_S), workdir)
            except Stopped:
                raise
            except Exception as error:  # raised below: the machine may be there for minutes only, for the other parts
                result["skipped"][part] = f"failed: {clean(error, 200)}"
                print_line(f"benchmark: {part} {result['skipped'][part]}", sys.stderr)
                errors.append(error)
            gc.collect()  # a part may have filled the device's memory
            result["seconds"][part] = round(time.monotonic() - begun, 1)
        result["rows"] = [row._asdict() for row in rows]
        write_json(workdir / "benchmark.json", result)  # after each part, so that a kill costs one
    if "pipeline" in config.benchmark.parts:
        rows += outlook(rows)
        result["rows"] = [row._asdict() for row in rows]
        write_json(workdir / "benchmark.json", result)
    if on_device:
        write_table(result, workdir)
    print_line(f"benchmark: written to {workdir / 'benchmark.json'}")
    if errors:
        raise errors[0]
    if "numerics" in config.benchmark.parts:
        check_agreement(rows)


def check_agreement(rows: list[Row]) -> None:
    """Raises UserError if the part numerics has found differences that are larger than tolerated."""
    wrong = [row for row in rows if row.name.startswith("numerics.") and not row.sizes["agrees"]]
    if wrong:
        names = ", ".join(
            f"{row.name.removeprefix('numerics.')} by {row.value:g} in {row.sizes['worst']} (tolerated: "
            f"{row.sizes['tolerance']:g})"
            for row in wrong
        )
        raise UserError(f"this device computes something else than the CPU: {names}")


def within(config: ConfigDict, seconds: float) -> ConfigDict:
    """The config with at most so many seconds for training."""
    config = config.copy_and_resolve_references()
    config.benchmark.train_seconds = min(config.benchmark.train_seconds, max(seconds, LEAST_S / 2))
    return config


def describe_run(config: ConfigDict) -> dict[str, Any]:
    """What `benchmark.json` says of the device and of this run; each is printed."""
    from motif_jax.stages.benchmark.device import describe_device, is_accelerated

    device, asked = describe_device(), set(config.benchmark.parts)
    print_line("benchmark: " + ", ".join(f"{name} {value}" for name, value in device.items()))
    if rehearsal := not is_accelerated():
        print_line(
            "benchmark: JAX has no accelerator here: this is a rehearsal, and its figures are not those of a GPU"
        )
    return {
        "device": device,
        "rehearsal": rehearsal,
        "network": config.benchmark.networks[0],
        "dtype": config.policy.dtype,
        "skipped": {part: "not asked for" for part in ("reward", "policy", *sorted(DEVICE)) if part not in asked},
    }


def write_table(result: dict[str, Any], workdir: Path) -> None:
    """Prints the table and writes it to `workdir/benchmark.md`."""
    from motif_jax.stages.benchmark.summary import make_table

    table = make_table(result)
    write_whole(workdir / "benchmark.md", lambda file: file.write(table.encode()))
    print_lines(table)


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


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    check=check,
    is_complete=is_complete,
    run=run,
    makes=(),
    writes="--config.benchmark.pairs",
    memory="--config.benchmark.pairs, .parts",
    device_memory=train_policy.DEVICE_MEMORY,
    loads_jax=loads_jax,
)

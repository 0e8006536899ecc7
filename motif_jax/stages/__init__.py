"""The stages. Each is a sub-package with a declaration, `STAGE`, whose `run(config, workdir)` connects the rooms.

Importing a declaration is quick and does not load JAX.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.config.table import List, Tables, Text, Whole, table_of, value
from motif_jax.system.files import checkpoint_steps
from motif_jax.system.meeting import find_meeting


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The declaration of a stage, for the command line and the experiment. Messages name the flags."""

    tables: Tables  # the values of its own sections
    reads: Tables  # the values of all sections that it reads
    identity: tuple[str, ...] = ()  # sections whose decisive values may not change once there is a result
    more_identity: Callable[[ConfigDict], Iterable[str]] = lambda config: ()  # decisive values of other sections
    unused: Callable[[ConfigDict], Iterable[str]] = lambda config: ()  # values that this config does not use
    check: Callable[[ConfigDict], None]  # raises UserError for bad values before anything starts
    is_complete: Callable[[ConfigDict, Path], bool]
    run: Callable[[ConfigDict, Path], None]
    artefacts: Callable[[Path], list[Path]] = lambda workdir: []  # directories with results and their config.json
    begun: Callable[[ConfigDict, Path], list[Path]] = lambda config, workdir: []  # other signs that it has begun
    makes: tuple[str, ...]  # directories that it writes to; until it is complete, links in them are refused
    shared: Callable[[ConfigDict], bool | None] = lambda config: False  # whether the lock is shared; None: no lock
    loads_jax: Callable[[ConfigDict], bool] = lambda config: True
    writes: str  # flags that decide how much it writes, and where
    memory: str  # flags that decide how much memory and how many processes and files it uses
    device_memory: str = ""  # flags that decide how much GPU memory it uses


NAMES = (
    "collect",
    "annotate",
    "train_reward",
    "train_policy",
    "train_language",
    "train_values",
    "evaluate",
    "audit",
    "write_reward",
    "report",
    "visualize",
    "export",
    "benchmark",
)


@dataclass(frozen=True)
class Experiment:
    """The experiment."""

    seed: int = value(777, Whole(0, 2**62), "seed of all random generators", decides=True)  # they take 64 bits
    stages: tuple[str, ...] = value(
        ("collect", "annotate", "train_reward", "train_policy", "evaluate", "report"),
        List(Text(NAMES), "stage"),
        "stages to run, unless --stage names others",
    )
    seeds: str = value(
        "", Text(longest=4000), "several runs, in folders of the workdir; 5: seeds 0 to 4; 3,7: these; empty: one run"
    )
    seeds_at_once: int = value(1, Whole(1, 1000), "runs at the same time, each on its share of the cores")
    cpu_devices: int = value(1, Whole(1, 256), "JAX devices on the CPU; batches are split among them")


@dataclass(frozen=True)
class Distributed:
    """Several hosts that run the same command."""

    coordinator: str = value(
        "auto", Text(longest=300), "host:port of process 0; auto: from SLURM, if it has several tasks"
    )
    num_processes: int = value(1, Whole(1, 100_000), "number of hosts")
    process_id: int = value(0, Whole(0, 100_000), "index of this host, from 0")


EXPERIMENT: Tables = {"": table_of(Experiment), "distributed": table_of(Distributed)}  # read by every stage


def with_result(folder: Path, *names: str) -> list[Path]:
    """`[folder]` if it contains a checkpoint or one of the files, otherwise `[]`: then its config may still change."""
    found = checkpoint_steps(folder / "checkpoints") or any((folder / name).exists() for name in names)
    return [folder] if found else []


def find_stage(name: str) -> Stage:
    """The declaration of a stage."""
    found: Stage = importlib.import_module(f"motif_jax.stages.{name}").STAGE
    return found


def is_distributed(config: ConfigDict) -> bool:
    """Whether other hosts take part; they share the workdir."""
    return find_meeting(config.distributed) is not None


def without_lock(config: ConfigDict) -> None:
    """`shared` of stages that need no lock: they only read other stages' files, also during training."""

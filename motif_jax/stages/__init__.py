"""One module per stage, each with one `run(config, workdir)` that reads from top to bottom and connects the rooms.

A stage's module declares it as `STAGE`, and is quick to import: a declaration does not load JAX.
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
    """What the command line and the experiment know of a stage; flags are named in messages."""

    tables: Tables  # the values of its own sections
    reads: Tables  # those of all sections that it reads
    identity: tuple[str, ...] = ()  # sections whose decisive values may not change once there is a result
    more_identity: Callable[[ConfigDict], Iterable[str]] = lambda config: ()  # values of other sections that decide
    unused: Callable[[ConfigDict], Iterable[str]] = lambda config: ()  # values that do not count for this config
    check: Callable[[ConfigDict], None]  # refuses bad values before anything is started
    is_complete: Callable[[ConfigDict, Path], bool]
    run: Callable[[ConfigDict, Path], None]
    artefacts: Callable[[Path], list[Path]] = lambda workdir: []  # directories with results beside their config.json
    begun: Callable[[ConfigDict, Path], list[Path]] = lambda config, workdir: []  # others that show that it began
    makes: tuple[str, ...]  # directories that it writes to; while it is due, they and all below may not be links
    shared: Callable[[ConfigDict], bool | None] = lambda config: False  # may others use the workdir; None: no lock
    loads_jax: Callable[[ConfigDict], bool] = lambda config: True
    writes: str  # flags that decide how much it writes, and where
    memory: str  # flags that decide how much memory, how many processes and how many files it uses
    device_memory: str = ""  # flags that decide how much memory of a GPU it uses


NAMES = (
    "collect",
    "annotate",
    "train_reward",
    "train_policy",
    "train_language",
    "train_values",
    "evaluate",
    "audit",
    "report",
    "visualize",
    "export",
    "benchmark",
)


@dataclass(frozen=True)
class Experiment:
    """The experiment."""

    seed: int = value(777, Whole(0, 2**62), "seed of all generators", decides=True)  # they take 64 bits
    stages: tuple[str, ...] = value(
        ("collect", "annotate", "train_reward", "train_policy", "evaluate", "report"),
        List(Text(NAMES), "stage"),
        "stages to run, unless --stage names others",
    )
    seeds: str = value(
        "", Text(longest=4000), "runs in folders of the workdir: 5: seeds 0 to 4; 3,7: these; empty: one, with `seed`"
    )
    seeds_at_once: int = value(1, Whole(1, 1000), "runs side by side, each on its part of the cores")
    cpu_devices: int = value(1, Whole(1, 256), "JAX devices that the CPU is divided into; batches are cut among them")


@dataclass(frozen=True)
class Distributed:
    """Many hosts, each of which runs the same command."""

    coordinator: str = value(
        "auto", Text(longest=300), "host:port of process 0; auto: SLURM's tasks, if there are several"
    )
    num_processes: int = value(1, Whole(1, 100_000), "number of hosts")
    process_id: int = value(0, Whole(0, 100_000), "number of this host, from 0")


EXPERIMENT: Tables = {"": table_of(Experiment), "distributed": table_of(Distributed)}  # what every stage reads


def with_result(folder: Path, *names: str) -> list[Path]:
    """The directory, if it has a checkpoint or a named file: a folder without a result is bound to no config."""
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
    """For stages that only read other stages' files, also during training, and write whole files of their own."""

"""One module per stage, each with one `run(config, workdir)` that reads from top to bottom and connects the rooms.

A stage's module declares it as `STAGE`, and is quick to import: a declaration does not load JAX.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.config.table import List, Tables, Text, Value, Whole
from motif_jax.system.files import checkpoint_steps
from motif_jax.system.meeting import find_meeting


@dataclasses.dataclass(frozen=True, kw_only=True)
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
    "report",
    "visualize",
    "export",
    "benchmark",
)

EXPERIMENT: Tables = {  # what every stage reads
    "": {
        "seed": Value(Whole(0, 2**62), decides=True),  # generators take 64 bits, and numbers are added to it
        "stages": Value(List(Text(NAMES), "stage")),
        "seeds": Value(Text(longest=4000), older=""),
        "seeds_at_once": Value(Whole(1, 1000), older=1),
        "cpu_devices": Value(Whole(1, 256), older=1),
    },
    "distributed": {
        "coordinator": Value(Text(longest=300)),
        "num_processes": Value(Whole(1, 100_000)),
        "process_id": Value(Whole(0, 100_000)),
    },
}


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

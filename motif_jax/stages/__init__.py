"""One module per stage, each with one `run(config, workdir)` that reads from top to bottom and connects the rooms.

A stage also has `TABLES`, the allowed values of its own sections, and `READS`, those of all sections that it reads;
`check(config)`, which refuses bad values before anything is started; `is_complete(config, workdir)`;
`artefacts(workdir)`, the directories with results of one config, each beside that config (`with_result`); `IDENTITY`,
the sections whose decisive values may not change once there is a result; `shared(config)`, whether other jobs may work
in the workdir meanwhile, or None where it needs no lock at all; and `loads_jax(config)`. `MAKES`: directories of the
workdir that the stage writes to. While it is due, none of them, and no directory below, may be a link. `WRITES` and
`MEMORY` are the flags that decide how much the stage writes, or where else than in the workdir, and how much memory,
how many processes and files it takes: what to change when the system refuses (system/errors.py). A stage that fills the
memory of a GPU names the flags that decide how much of it as `DEVICE_MEMORY`. `more_identity(config)` adds values that
may not change; `unused(config)` names values that do not count. A stage whose artefacts do not show that it began names
the directories that do by `begun(config, workdir)`.
"""

from dataclasses import dataclass
from pathlib import Path

from motif_jax.config.table import List, Tables, Text, Whole, table_of, value
from motif_jax.system.files import checkpoint_steps

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

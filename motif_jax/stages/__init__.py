"""The stages. Each is a module or sub-package with a declaration, `STAGE`, whose `run(config, workdir)` connects rooms.

Importing a declaration is quick and does not load JAX. A stage takes a frozen dataclass of all values that it reads
(`Stage.config`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from motif_jax.actors.pool import Pools
from motif_jax.config.table import (
    Flag,
    List,
    Tables,
    Text,
    Whole,
    check_values,
    sections,
    tables_of,
    typed,
    value,
)
from motif_jax.files import checkpoint_steps, read_json
from motif_jax.names import PLUGINS, POOLS, RUNNERS, STAGES, import_named
from motif_jax.run import Lock
from motif_jax.structs import Need
from motif_jax.system.meeting import find_meeting
from motif_jax.system.runs import Runner

Config = TypeVar("Config")


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[Config]):
    """The declaration of a stage, for the command line and the experiment. Messages name the flags."""

    config: type[Config]  # of all values that it reads
    sections: tuple[str, ...]  # those of the config that are its own; it reads others, too
    identity: tuple[str, ...] = ()  # sections whose decisive values may not change once there is a result
    more_identity: Callable[[Config], Iterable[str]] = lambda config: ()  # decisive values of other sections
    unused: Callable[[Config], Iterable[str]] = lambda config: ()  # values that this config does not use
    check: Callable[[Config], None]  # raises UserError for bad values before anything starts
    needs: Callable[[Config, Path], Iterable[Need]] = lambda config, workdir: ()  # from outside, looked at then, too
    is_complete: Callable[[Config, Path], bool]
    run: Callable[[Config, Path], None]
    artefacts: Callable[[Path], list[Path]] = lambda workdir: []  # directories with results and their config.json
    begun: Callable[[Config, Path], list[Path]] = lambda config, workdir: []  # other signs that it has begun
    lock: Callable[[Config], Lock] = lambda config: Lock.EXCLUSIVE  # of the workdir
    loads_jax: Callable[[Config], bool] = lambda config: True
    outside: Callable[[Config], list[Path]] = lambda config: []  # what it writes beside the workdir for later stages
    writes: str  # flags that decide how much it writes, and where
    memory: str  # flags that decide how much memory and how many processes and files it uses
    device_memory: str = ""  # flags that decide how much GPU memory it uses

    @functools.cached_property
    def reads(self) -> Tables:
        return tables_of(self.config)

    @property
    def tables(self) -> Tables:
        return {name: self.reads[name] for name in self.sections}

    def view(self, values: Mapping[str, Any]) -> Config:
        """The config of this stage, made of nested values; raises UserError for a value that is not of its kind."""
        check_values(values, self.reads)
        return typed(self.config, values)


SUMMARY = "summary.json"  # the last file of a training
NAMES = tuple(STAGES)


@dataclass(frozen=True)
class Distributed:
    """Several hosts that run the same command."""

    coordinator: str = value("auto", Text(longest=300), "host:port of process 0; auto: from SLURM with several tasks")
    num_processes: int = value(1, Whole(1, 100_000), "number of hosts")
    process_id: int = value(0, Whole(0, 100_000), "index of this host, from 0")


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
        "", Text(longest=4000), "several seeds, each in its own directory; 5: seeds 0 to 4; 3,7: these two; empty: one"
    )
    seeds_at_once: int = value(1, Whole(1, 1000), "runs in parallel, each on a share of the cores and GPUs")
    sized: bool = value(False, Flag(), "config chose policy.batch_size for this machine; a begun workdir keeps its own")
    measured: str = value("", Text(longest=1000), "values that config has measured in the game; a dry run tells them")
    cpu_devices: int = value(1, Whole(1, 256), "JAX devices on the CPU; batches are split among them")
    distributed: Distributed = Distributed()
    plugins: Mapping[str, Any] = sections(PLUGINS.sections)


EXPERIMENT: Tables = tables_of(Experiment)


def find_pools(config: Experiment) -> Pools:
    """What makes the pools of this config: of a plugin if the config asks for it, or of this host alone."""
    return _asked_for(POOLS, config) or Pools()


def find_runner(config: Experiment) -> Runner:
    """What plays several runs of this config: of a plugin if the config asks for it, or this machine."""
    return _asked_for(RUNNERS, config) or Runner(config.seeds_at_once)


def _asked_for(table: Mapping[str, str], config: Experiment) -> Any:
    return next(filter(None, (import_named(path)(config) for path in table.values())), None)


def with_result(folder: Path, *names: str) -> list[Path]:
    """`[folder]` if it contains a checkpoint or one of the files, otherwise `[]`: then its config may still change."""
    has_result = checkpoint_steps(folder / "checkpoints") or any((folder / name).exists() for name in names)
    return [folder] if has_result else []


def offline_stage(name: str, folder: str, result: str = SUMMARY, *, config: type[Config], **own: Any) -> Stage[Config]:
    """A stage with the section `name` that learns from transcripts; it is complete when there is a `result` as well."""

    def is_complete(config: Any, workdir: Path) -> bool:
        """Whether it was trained for as many epochs as the config asks."""
        if not all((workdir / folder / one).is_file() for one in (SUMMARY, result)):
            return False
        return bool(read_json(workdir / folder / SUMMARY)["epoch"] >= getattr(config, name).num_epochs)

    return Stage(
        config=config,
        identity=("", "transcripts", "language", name),
        is_complete=is_complete,
        writes=f"--config.{name}.keep_checkpoints",
        memory=f"--config.{name}.batch_size, .max_length",
        device_memory=f"--config.{name}.num_parts, .chunk, .max_length, .batch_size",
        artefacts=lambda workdir: with_result(workdir / folder, SUMMARY),
        lock=lock_of_hosts,  # type: ignore[arg-type]  # each such config is an `Experiment`
        **own,
    )


def values_of(config: Any) -> dict[str, Any]:
    """The nested values of a stage's config, of which `Stage.view` makes it again."""
    values = asdict(config)
    return values | values.pop("plugins")


@functools.cache
def find_stage(name: str) -> Stage[Any]:
    """The declaration of a stage, whose identity has the sections of plugins that decide its results."""
    stage: Stage[Any] = import_named(STAGES[name])
    of_plugins = (section for section, plugin in PLUGINS.by_name.items() if name in plugin.decides)
    return replace(stage, identity=(*stage.identity, *of_plugins))


def later(path: str) -> Callable[[Any, Path], None]:
    """The function `module:name`, whose module is imported when it is called: it may load JAX."""
    return lambda config, workdir: import_named(path)(config, workdir)


def is_first_host(config: Experiment) -> bool:
    """Whether this process is the first of the hosts that run the same command, or the only one."""
    meeting = find_meeting(config.distributed)
    return not (meeting and meeting.process_id)


def lock_of_hosts(config: Experiment) -> Lock:
    """The lock of a stage in which other hosts may take part; they share the workdir."""
    return Lock.SHARED if find_meeting(config.distributed) else Lock.EXCLUSIVE


def without_lock(config: Any) -> Lock:
    """The lock of stages that only read other stages' files, also during training."""
    return Lock.NONE

"""The stages. Each is a module or sub-package with a declaration, `STAGE`, whose `run(config, workdir)` connects rooms.

Importing a declaration is quick and does not load JAX. A stage takes a frozen dataclass of all values that it reads
(`Stage.config`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from motif_jax.actors.pool import Pools
from motif_jax.config.table import (
    Flag,
    List,
    Tables,
    Text,
    Value,
    Whole,
    check_values,
    keys,
    sections,
    tables_of,
    typed,
    value,
)
from motif_jax.files import checkpoint_steps, read_json
from motif_jax.names import PLUGINS, POOLS, RUNNERS, STAGES, import_named
from motif_jax.run import Lock
from motif_jax.structs import Need, UserError
from motif_jax.system.errors import Limits
from motif_jax.system.meeting import find_meeting
from motif_jax.system.runs import Runner

Config = TypeVar("Config")


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[Config]):
    """The declaration of a stage, for the command line and the experiment. Messages name the flags."""

    name: str
    sections: tuple[str, ...]  # those of the config that are its own; it reads others, too
    config: type[Config]  # of all values that it reads; its `decisive` says which may not change
    folders: Callable[[Config, Path], list[Path]]  # that have results and their config.json, or lie elsewhere
    check: Callable[[Config, Path], Iterable[Need]]  # before anything starts; raises UserError for bad values
    is_complete: Callable[[Config, Path], bool]  # whether its last file is there, and covers what the config asks
    run: Callable[[Config, Path], None]  # makes what is missing
    lock: Callable[[Config], Lock]  # of the workdir
    limits: Limits

    @functools.cached_property
    def reads(self) -> Tables:
        return tables_of(self.config)

    @property
    def tables(self) -> Tables:
        return {name: self.reads[name] for name in self.sections}

    def decisive(self, config: Experiment) -> dict[str, Value]:
        """The values that may not change in a workdir with results, by name; also those of plugins that decide them."""
        of_plugins = (section for section, plugin in PLUGINS.by_name.items() if self.name in plugin.decides)
        known = keys(self.reads)
        return {name: known[name] for name in sorted(config.decisive() | decisive_in(config, *of_plugins))}

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

    def decisive(self) -> set[str]:
        """The values, by name, that may not change in a workdir where a stage with this config has results.

        Here all that are declared to decide results, except plugins', which name the stages that they are for.
        """
        return decisive_in(self, *(name for name in tables_of(type(self)) if name not in self.plugins))


def decisive_in(config: Experiment, *names: str) -> set[str]:
    """The values that are declared to decide results in the sections of these names; the seed is in ""."""
    tables = tables_of(type(config))
    return {key for key, value in keys({name: tables[name] for name in names}).items() if value.decides}


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
        name=name,
        config=config,
        folders=lambda config, workdir: with_result(workdir / folder, SUMMARY),
        is_complete=is_complete,
        lock=lock_of_hosts,  # type: ignore[arg-type]  # each such config is an `Experiment`
        limits=Limits(
            f"--config.{name}.keep_checkpoints",
            f"--config.{name}.batch_size, .max_length",
            f"--config.{name}.num_parts, .chunk, .max_length, .batch_size",
        ),
        **own,
    )


def values_of(config: Any) -> dict[str, Any]:
    """The nested values of a stage's config, of which `Stage.view` makes it again."""
    values = asdict(config)
    return values | values.pop("plugins")


def find_stage(name: str) -> Stage[Any]:
    """The declaration of a stage; raises UserError if a plugin declares it under another name."""
    stage: Stage[Any] = import_named(STAGES[name])
    if stage.name != name:
        raise UserError(f"{STAGES[name]!r}, which a plugin names {name!r}, is the stage {stage.name!r}")
    return stage


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


def exclusive_lock(config: Any) -> Lock:
    """The lock of a stage that works alone."""
    return Lock.EXCLUSIVE


def without_lock(config: Any) -> Lock:
    """The lock of stages that only read other stages' files, also during training."""
    return Lock.NONE

"""Runs the stages of an experiment in its workdir, which is locked and keeps a record of the config."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from motif_jax.config.file import new_config
from motif_jax.config.table import Tables, check_values, flatten, keys, shown, typed
from motif_jax.console import clean, print_line, suggest
from motif_jax.files import to_plain, write_config
from motif_jax.names import PLUGINS, check_plugins
from motif_jax.run import CONFIG, Run, read_record
from motif_jax.stages import EXPERIMENT, NAMES, Experiment, Stage, find_stage, is_first_host, lock_of_hosts
from motif_jax.structs import UserError
from motif_jax.system.errors import explained
from motif_jax.system.foreign import leads_out
from motif_jax.system.sizing import describe_machine, sizes_of
from motif_jax.system.startup import divide_cpu

Values = Mapping[str, Any]  # of the whole config, nested


def experiment_of(config: Values) -> Experiment:
    """The values of the experiment itself; raises UserError for one that is not of its kind."""
    check_values(config, EXPERIMENT)
    return typed(Experiment, config)


def check(config: Values, names: list[str], workdir: Path, made: Iterable[Path] = ()) -> list[Stage[Any]]:
    """The stages of these names; raises UserError for unknown stages, values that cannot work, and unmet needs.

    `made`: directories in which other runs may still write what this one needs.
    """
    check_values(config, EXPERIMENT)
    for name in names:
        if name not in NAMES:
            raise UserError(f"unknown stage {name!r} (--stage): {suggest(name, NAMES)}")
    stages = [find_stage(name) for name in names]
    if any(stage.loads_jax(stage.view(config)) for stage in stages):
        divide_cpu(config["cpu_devices"])  # now, as the user's code, which the checks import, may load JAX
    for stage in stages:
        stage.check(stage.view(config))
    check_needs(config, stages, workdir, made)
    return stages


def check_needs(config: Values, stages: Iterable[Stage[Any]], workdir: Path, made: Iterable[Path]) -> None:
    """Raises UserError if a stage lacks what it needs, unless an earlier stage may still write it."""
    made = [*made]
    for stage in stages:
        view = stage.view(config)
        try:
            for need in stage.needs(view, workdir):
                if need.path is None or all(leads_out(need.path, folder) for folder in made):
                    need.check()
        except UserError:
            if not stage.is_complete(view, workdir):  # a complete one needs nothing any more
                raise
        made += [workdir, *stage.outside(view)]


def run(config: Values, workdir: Path, names: list[str] | None) -> None:
    """Runs the named stages in the workdir; those that the config lists if `names` is None. Skips complete ones."""
    stages = check_start(config, workdir, names)
    workdir.mkdir(parents=True, exist_ok=True)
    with Run(workdir).lock(stage.lock(stage.view(config)) for stage in stages.values()):
        for stage in stages.values():  # conflicts are reported before the first stage has worked for hours
            check_artefacts(config, workdir, stage)
        for name, stage in stages.items():
            with explained(workdir, name, stage.writes, stage.memory, stage.device_memory):
                check_artefacts(config, workdir, stage)
                view = stage.view(config)
                if stage.lock is not lock_of_hosts or is_first_host(view):
                    write_config(workdir, config)
                if stage.is_complete(view, workdir):
                    print_line(f"{name}: complete in {str(workdir)!r}, skipped")
                else:
                    stage.run(view, workdir)


def dry_run(config: Values, workdir: Path, names: list[str] | None, made: Iterable[Path] = ()) -> None:
    """Makes the checks that `run` begins with, and prints for each stage what `run` would do. Writes nothing."""
    stages = check_start(config, workdir, names, made)
    if config["sized"]:
        print_line(f"for this machine ({describe_machine()}): {sizes_of(config['policy']).describe()}")
    if config["measured"]:
        values = flatten(to_plain(config))
        told = ", ".join(f"{name} {values[name]:,}" for name in config["measured"].split(",") if name in values)
        print_line(f"measured in games of random play, with room for more: {told}")
    for name, stage in stages.items():
        check_artefacts(config, workdir, stage)
        view = stage.view(config)
        begun = stage.artefacts(workdir) or stage.begun(view, workdir)
        if stage.is_complete(view, workdir):
            print_line(f"{name}: complete in {str(workdir)!r}, would be skipped")
        elif any(folder.exists() for folder in begun):
            print_line(f"{name}: begun in {str(workdir)!r}, would go on")
        else:
            print_line(f"{name}: would run")


def check_start(
    config: Values, workdir: Path, names: list[str] | None, made: Iterable[Path] = ()
) -> dict[str, Stage[Any]]:
    """The stages to run, by name; raises UserError if they cannot work in this workdir. `made`: as in `check`."""
    names = names or [*config["stages"]]
    stages = dict(zip(names, check(config, names, workdir, made), strict=True))
    if (workdir / CONFIG).exists():
        read_record(workdir / CONFIG)  # whose layout may be another one
    return stages


def check_artefacts(config: Values, workdir: Path, stage: Stage[Any]) -> None:
    """Raises UserError if what the stage has made in the workdir belongs to another experiment."""
    for made in stage.artefacts(workdir):
        check_same_experiment(config, workdir, made / CONFIG, stage)


def tables() -> Tables:
    """The tables of all values of a config: the experiment's own, the game's, and each stage's. Does not load JAX."""
    every = {**EXPERIMENT, "env": importlib.import_module("motif_jax.envs.worlds").TABLE}
    of_stages = {name: table for stage in NAMES for name, table in find_stage(stage).tables.items()}
    check_plugins(["env", *of_stages, *vars(Experiment())])
    return every | of_stages


def plugin_sections() -> set[str]:
    """The sections of the config that plugins declare, for themselves and for their stages."""
    stages = {stage for plugin in PLUGINS.by_name.values() for stage in plugin.stages}
    return {*PLUGINS.sections, *(section for stage in stages for section in find_stage(stage).sections)}


def defaults() -> Any:
    """A config of all values with their defaults, with which config files begin."""
    return new_config(tables())


def check_same_experiment(config: Values, workdir: Path, recorded: Path, stage: Stage[Any]) -> None:
    """Raises UserError if a deciding value differs from that in `recorded`, an earlier config.json, or its default."""
    if not recorded.exists():
        return
    before, now, view = read_record(recorded), flatten(to_plain(config)), stage.view(config)
    known, values = keys({name: stage.reads[name] for name in stage.identity}), keys(stage.reads)
    deciding = {key: value for key, value in known.items() if value.decides}
    deciding |= {key: values[key] for key in stage.more_identity(view)}
    for key in sorted(deciding.keys() - {*stage.unused(view)}):
        value = deciding[key]
        old = before.get(key, to_plain(value.default))
        if old != now[key]:
            raise UserError(
                f"workdir {str(workdir)!r} belongs to an experiment with {key} = {shown(old)}, not {shown(now[key])}: "
                f"choose another --workdir, or --config.{key}={clean(old)}"
            )
    for key in sorted(before.keys() - known.keys()):
        if key.partition(".")[0] in stage.identity:
            raise UserError(
                f"workdir {str(workdir)!r} belongs to an experiment with {clean(key)} = {shown(before[key])}, a value "
                "that this version does not know: use the version that made it, or choose another --workdir"
            )

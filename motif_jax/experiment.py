"""Runs the stages of an experiment in its workdir, which is locked and keeps a record of the config."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from motif_jax.config.file import new_config
from motif_jax.config.table import Tables, check_values, flatten, shown, typed
from motif_jax.console import clean, print_line, suggest
from motif_jax.files import to_plain, write_config
from motif_jax.names import PLUGINS, check_plugins
from motif_jax.run import CONFIG, Run, read_record
from motif_jax.stages import EXPERIMENT, NAMES, Experiment, Stage, find_stage, is_first_host
from motif_jax.structs import DetailedError, Need, UserError
from motif_jax.system.errors import explained
from motif_jax.system.foreign import leads_out
from motif_jax.system.sizing import describe_machine, sizes_of
from motif_jax.system.startup import divide_cpu

Values = Mapping[str, Any]  # of the whole config, nested


def experiment_of(config: Values) -> Experiment:
    """The values of the experiment itself; raises UserError for one that is not of its kind."""
    check_values(config, EXPERIMENT)
    return typed(Experiment, config)


Job = tuple[Stage[Any], Any]  # a stage and its config


def check(config: Values, names: Iterable[str] | None, workdir: Path, made: Iterable[Path] = ()) -> list[Job]:
    """The stages of these names, or those that the config lists; raises UserError for whatever would stop one later.

    `made`: directories in which other runs may still write what this one needs.
    """
    check_values(config, EXPERIMENT)
    names = dict.fromkeys(names or config["stages"])
    for name in names:
        if name not in NAMES:
            raise UserError(f"unknown stage {name!r} (--stage): {suggest(name, NAMES)}")
    divide_cpu(config["cpu_devices"])  # now, as the user's code, which the checks import, may load JAX
    jobs = [(stage, stage.view(config)) for stage in map(find_stage, names)]
    needs = [stage.check(view, workdir) for stage, view in jobs]
    for (stage, view), needed in zip(jobs, needs, strict=True):
        check_needs(stage, view, workdir, needed, made)
        made = [*made, workdir, *stage.folders(view, workdir)]
    if (workdir / CONFIG).exists():
        read_record(workdir / CONFIG)  # which may have a different layout
    check_results(jobs, workdir)
    return jobs


def check_needs(stage: Stage[Any], view: Any, workdir: Path, needed: Iterable[Need], made: Iterable[Path]) -> None:
    """Raises UserError if a stage lacks what it needs, unless it is complete or an earlier one may still write it."""
    try:
        for need in needed:
            if need.path is None or all(leads_out(need.path, folder) for folder in made):
                need.check()
    except UserError:
        if not stage.is_complete(view, workdir):
            raise


def run(config: Values, workdir: Path, names: Iterable[str] | None) -> None:
    """Runs the named stages in the workdir; those that the config lists if `names` is None. Skips complete ones."""
    jobs = check(config, names, workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    with Run(workdir).lock(stage.lock(view) for stage, view in jobs):
        check_results(jobs, workdir)  # again, as another run may have ended in between
        for stage, view in jobs:
            with explained(workdir, stage.name, stage.limits):
                if is_first_host(view):
                    write_config(workdir, config)
                if stage.is_complete(view, workdir):
                    print_line(f"{stage.name}: complete in {str(workdir)!r}, skipped")
                else:
                    stage.run(view, workdir)


def dry_run(config: Values, workdir: Path, names: Iterable[str] | None, made: Iterable[Path] = ()) -> None:
    """Makes the checks that `run` begins with, and prints for each stage what `run` would do. Writes nothing."""
    jobs = check(config, names, workdir, made)
    if config["sized"]:
        print_line(f"for this machine ({describe_machine()}): {sizes_of(config['policy']).describe()}")
    if config["measured"]:
        values = flatten(to_plain(config))
        told = ", ".join(f"{name} {values[name]:,}" for name in config["measured"].split(",") if name in values)
        print_line(f"measured in games of random play, with room for more: {told}")
    for stage, view in jobs:
        begun = (one.exists() and one.is_relative_to(workdir) for one in stage.folders(view, workdir))
        if stage.is_complete(view, workdir):
            print_line(f"{stage.name}: complete in {str(workdir)!r}, would be skipped")
        elif any(begun):
            print_line(f"{stage.name}: begun in {str(workdir)!r}, would go on")
        else:
            print_line(f"{stage.name}: would run")


def check_results(jobs: Iterable[Job], workdir: Path) -> None:
    """Raises UserError if results in the workdir are of another experiment."""
    for stage, view in jobs:
        for folder in stage.folders(view, workdir):
            check_same_experiment(stage, view, workdir, folder / CONFIG)


def check_same_experiment(stage: Stage[Any], view: Any, workdir: Path, record: Path) -> None:
    """Raises UserError, with a table, if decisive values differ from those in `record`, an earlier config.json."""
    decisive = stage.decisive(view)
    if not (decisive and record.exists()):
        return
    before, now = read_record(record), flatten(to_plain(view))
    known = ((key, before.get(key, to_plain(value.default)), now[key]) for key, value in decisive.items())
    rows = [(key, shown(old), shown(new)) for key, old, new in known if old != new]
    sections = {key.partition(".")[0] for key in decisive}
    unknown = sorted(key for key in before.keys() - now.keys() if key.partition(".")[0] in sections)
    rows += [(clean(key), shown(before[key]), "not known to this version") for key in unknown]
    if rows:
        rows = [("", "in the workdir", "now"), *((f"--config.{key}", old, new) for key, old, new in rows)]
        flags, olds = (max(len(row[at]) for row in rows) for at in (0, 1))
        table = [f"  {flag:{flags}}  {old:{olds}}  {new}" for flag, old, new in rows]
        remedy = "use the version that made it" if unknown else "give the values in the workdir"
        raise DetailedError(
            f"workdir {str(workdir)!r} belongs to another experiment, whose results these values decided:",
            "\n".join([*table, f"Choose another --workdir, or {remedy}."]),
        )


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

"""What adds to the program by name: the folders of contrib, and installed packages of others.

A folder of contrib has its declaration in its `__init__.py`, an installed package under the entry point group
`motif_jax`; the folder or the entry point names the plugin:

    PLUGIN = Plugin(worlds={"garden": "garden.game:Garden"})

    [project.entry-points.motif_jax]  # of pyproject.toml
    garden = "garden.plugin:PLUGIN"

The module with the declaration is imported at every start, so it imports nothing but this file; so is the one with the
section of the config, which imports config/table.py alone.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.config.table import OfPlugin, tables_of
from motif_jax.console import clean
from motif_jax.structs import UserError

GROUP = "motif_jax"
CONTRIB = Path(__file__).with_name("contrib")
TARGET = re.compile(r"[\w.]+:\w+")
Names = Mapping[str, str]  # the short name of a thing -> module:attribute, imported when it is used


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A declaration: what is found by which name. The tables of core's own names are in names.py."""

    worlds: Names = field(default_factory=dict)  # envs/world.py
    networks: Names = field(default_factory=dict)  # that read prompts: networks/kinds.py
    algorithms: Names = field(default_factory=dict)  # learner/settings.py
    judges: Names = field(default_factory=dict)  # annotation/backends.py
    sources: Names = field(default_factory=dict)  # of rewards: `SourceKind` of rewards/registry.py
    online_rewards: Names = field(default_factory=dict)  # rewards/online/source.py
    acting: Names = field(default_factory=dict)  # what acts in a step: learner/acting.py
    pools: Names = field(default_factory=dict)  # games elsewhere: actors/pool.py
    runners: Names = field(default_factory=dict)  # of several runs, elsewhere: system/runs.py
    readers: Names = field(default_factory=dict)  # of language models: language/hub.py
    reward_readers: Names = field(default_factory=dict)  # rewards/statistics.py
    transcript_formats: Names = field(default_factory=dict)  # transcripts/imports.py
    protocols: Names = field(default_factory=dict)  # of evaluation: envs/protocols.py
    films: Names = field(default_factory=dict)  # by the end of the file's name: stages/visualize.py
    stages: Names = field(default_factory=dict)  # stages/__init__.py
    training_hooks: Names = field(default_factory=dict)  # stages/train_policy/hooks.py
    api: Names = field(default_factory=dict)  # public names of the package: motif_jax.NAME
    section: str = ""  # module:Dataclass of the config's section with the plugin's name
    decides: tuple[str, ...] = ()  # stages whose results depend on the deciding values of the section

    def tables(self) -> dict[str, Names]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.type == "Names"}


class Plugins(NamedTuple):
    """The plugins that were found, and what is wrong with others."""

    by_name: dict[str, Plugin]
    sections: dict[str, type]  # of the config, by plugin
    broken: list[str]  # sentences about plugins that are left out
    conflicts: list[str]  # sentences about names that two plugins have

    def join(self, **tables: dict[str, str]) -> None:
        """Adds the plugins' names to the program's own tables; the first one that has a name keeps it."""
        for table, names in tables.items():
            owner = dict.fromkeys(names, "the program itself")
            for plugin, declared in self.by_name.items():
                for name, target in declared.tables()[table].items():
                    if names.setdefault(OfPlugin(name), target) != target:
                        kind, other = table.rstrip("s").replace("_", " "), owner[name]
                        self.conflicts.append(
                            f"the plugin {plugin!r} has a {kind} {clean(name, 80)!r}, as has {other}: uninstall one"
                        )
                    owner.setdefault(name, f"the plugin {plugin!r}")


def find_plugins() -> Plugins:
    """Imports the declarations of contrib's folders and of installed packages."""
    found = Plugins({}, {}, [], [])
    for name, load in _declared():
        try:
            plugin = _checked(load())
            section = _section(plugin) if plugin.section else None
        except (Exception, SystemExit) as error:  # of others' code, which must not stop what does not use it
            reason = clean(str(error) or type(error).__name__, 200)
            found.broken.append(f"the plugin {clean(name, 80)!r} is left out: {reason}")
            continue
        if name in found.by_name:
            found.conflicts.append(f"two plugins have the name {clean(name, 80)!r}: uninstall one")
            continue
        found.by_name[name] = plugin
        if section:
            found.sections[name] = section
    return found


def _declared() -> Iterator[tuple[str, Callable[[], Any]]]:
    for file in sorted(CONTRIB.glob("*/__init__.py")):
        module = f"{__package__}.{CONTRIB.name}.{file.parent.name}"
        yield file.parent.name, lambda module=module: importlib.import_module(module).PLUGIN  # type: ignore[misc]
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        yield point.name, point.load


def _section(plugin: Plugin) -> type:
    """The class of its section; raises UserError if it declares no values."""
    module, _, name = plugin.section.partition(":")
    kind = getattr(importlib.import_module(module), name)
    if not (isinstance(kind, type) and is_dataclass(kind) and tables_of(kind)):
        raise UserError(f"its section {plugin.section!r} must be a dataclass of values (config/table.py)")
    return kind


def _checked(plugin: Any) -> Plugin:
    """The declaration; raises UserError if it is none."""
    if not isinstance(plugin, Plugin):
        raise UserError(f"its declaration must be a {__name__}.Plugin, not {clean(repr(plugin), 80)}")
    if not isinstance(plugin.decides, tuple) or (plugin.decides and not plugin.section):
        raise UserError(f"`decides` is a tuple of stages whose results depend on its section, not {plugin.decides!r}")
    for table, names in [*plugin.tables().items(), ("section", {"section": plugin.section or "none:none"})]:
        if not isinstance(names, Mapping):
            raise UserError(f"its {table} must be names with their 'module:attribute', not {clean(repr(names), 80)}")
        for name, target in names.items():
            if not (isinstance(name, str) and isinstance(target, str) and TARGET.fullmatch(target)):
                raise UserError(f"{name!r} in its {table} must be 'module:attribute', not {clean(repr(target), 80)}")
    return plugin

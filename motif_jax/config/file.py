"""Finds and runs a config file, and adds missing values."""

from __future__ import annotations

import contextlib
import contextvars
import difflib
import inspect
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from motif_jax.config.renamed import CHOICES, RENAMED
from motif_jax.config.table import LARGEST, Number, Tables, flatten, keys, shown
from motif_jax.console import clean
from motif_jax.structs import UserError

PACKAGE = Path(__file__).parents[1]
SHIPPED = ("configs/*.py", "contrib/*/configs/*.py")  # in a checkout, configs/ is a link to the directory at its top
MODULE = "motif_jax_config"  # the name of the file as a module
_in_a_file = contextvars.ContextVar("_in_a_file", default=False)  # whether the function of a config file runs


def shipped() -> dict[str, Path]:
    """The configs that come with the program, by the names that `--config` takes without a path."""
    return {file.stem: file for pattern in reversed(SHIPPED) for file in sorted(PACKAGE.glob(pattern))}


def find_config(name: str) -> str:
    """The path of a shipped config: "motif" -> ".../configs/motif.py". An existing file of that name has precedence.

    "configs/NAME.py" is where one lay that a plugin has now.
    """
    if os.path.isfile(name):
        return name
    of_plugins = {f"configs/{file.name}": file for file in PACKAGE.glob(SHIPPED[1])}
    return str((shipped() | of_plugins).get(name, name))


def load(file: str, argument: str | None, tables: Tables) -> ConfigDict:
    """The config that `get_config(argument)` of a file returns, with the values that it lacks; None: `get_config()`."""
    if not os.path.isfile(file):
        *names, last = sorted(shipped())
        raise UserError(
            f"there is no config file {shown(file)} (--config); {', '.join(names)} and {last} come with the program"
        )
    module = ModuleType(MODULE)
    module.__file__ = file
    sys.modules[MODULE] = module  # dataclasses look for their module there
    exec(compile(Path(file).read_bytes(), file, "exec"), module.__dict__)
    get, given = getattr(module, "get_config", None), () if argument is None else (argument,)
    if not callable(get):
        raise UserError(f"the config file {shown(file)} has no function get_config (--config)")
    with contextlib.suppress(ValueError):  # of a function without a signature
        try:
            inspect.signature(get).bind(*given)
        except TypeError as error:
            what = "no argument" if argument is None else f"the argument {shown(argument)}"
            raise UserError(
                f"get_config of the config file {shown(file)} cannot be called with {what}: {error} (--config)"
            ) from None
    token = _in_a_file.set(True)
    try:
        config = get(*given)
    finally:
        _in_a_file.reset(token)
    if not isinstance(config, ConfigDict):
        raise UserError(
            f"get_config of the config file {shown(file)} returned {shown(config)}, not a ConfigDict (--config)"
        )
    complete(config, tables)
    return config


def new_config(tables: Tables) -> ConfigDict:
    """All values with their defaults; in a config file also by their old names."""
    config = ConfigDict()
    complete(config, tables)
    if _in_a_file.get():
        _add_old_names(config)
    return config


def complete(config: ConfigDict, tables: Tables) -> None:
    """Adds missing values to a config, in place, with their defaults; raises UserError for unknown values."""
    known = keys(tables)
    _take_old_names(config, {key: value.default for key, value in known.items()})
    flat = flatten(config.to_dict())
    for key in flat:
        if key not in known:
            raise UserError(
                f"the config file sets {clean(key, 80)!r}, which is not a value of the config (--config): did you mean "
                f"{nearest(key, known)!r}?"
            )
    with config.unlocked():
        for key, value in known.items():
            given = flat.get(key, value.default)
            if isinstance(value.kind, Number) and type(given) is int and abs(given) < LARGEST:
                given = float(given)  # so that the command line may set a fraction
            elif key in flat:
                continue
            inner, (*sections, name) = config, key.split(".")
            for section in sections:
                if section not in inner:
                    inner[section] = ConfigDict()
                inner = inner[section]
            if name in inner:
                del inner[name]  # a ConfigDict keeps the type of an existing value
            inner[name] = given


def nearest(key: str, known: Iterable[str]) -> str:
    """The known key most similar to `key` in name and section; `lr` matches `learning_rate`."""

    def alike(one: str, other: str) -> float:
        return difflib.SequenceMatcher(None, one, other).ratio()

    def score(other: str) -> float:
        (section, _, name), (its_section, _, its_name) = key[:80].rpartition("."), other.rpartition(".")
        initials = "".join(word[0] for word in its_name.split("_"))
        return alike(section, its_section) + 2 * (1.0 if name == initials else alike(name, its_name))

    return max(known, key=score)


# ---- values that were renamed (renamed.py)


def _add_old_names(config: ConfigDict) -> None:
    """Makes the old names references to the values with the new ones: setting one sets both."""
    with config.unlocked():
        for old, new in RENAMED.items():
            inner, name = _parent(config, new)
            if inner is not None:
                outer, old_name = _parent(config, old, make=True)
                outer[old_name] = inner.get_ref(name)


def _take_old_names(config: ConfigDict, defaults: Mapping[str, Any]) -> None:
    """Removes the old names. What one was set to, in a config without references, becomes the value of the new one.

    `defaults`: by the new names.
    """
    with config.unlocked():
        for old, new in RENAMED.items():
            outer, name = _parent(config, old)
            if outer is None or name not in outer:
                continue
            if new in defaults and outer[name] != defaults[new]:
                inner, new_name = _parent(config, new, make=True)
                inner[new_name] = outer[name]
            del outer[name]
            while not outer and (section := old.rpartition(".")[0]):
                old = section
                outer, name = _parent(config, section)
                del outer[name]
        for name, words in CHOICES.items():
            inner, last = _parent(config, name)
            if inner is not None and isinstance(inner.get(last), str):
                inner[last] = words.get(inner[last], inner[last])


def _parent(config: ConfigDict, key: str, make: bool = False) -> tuple[Any, str]:
    """The section with the value `key`, None without it, and the value's own name."""
    inner, (*sections, name) = config, key.split(".")
    for section in sections:
        if section not in inner:
            if not make:
                return None, name
            inner[section] = ConfigDict()
        inner = inner[section]
    return inner, name

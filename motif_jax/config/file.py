"""Finds and runs a config file, and adds missing values."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from ml_collections import ConfigDict

from motif_jax.config.table import LARGEST, Number, Tables, flatten, keys, shown
from motif_jax.console import clean
from motif_jax.structs import UserError

SHIPPED = Path(__file__).parents[1] / "configs"  # in a checkout, a link to the directory at its top
MODULE = "motif_jax_config"  # the name of the file as a module


def shipped_names() -> list[str]:
    """Names of the configs that come with the program, which `--config` takes without a path."""
    return sorted(file.stem for file in SHIPPED.glob("*.py"))


def find_config(name: str) -> str:
    """The path of a shipped config: "motif" -> ".../configs/motif.py". An existing file of that name has precedence."""
    if name in shipped_names() and not os.path.isfile(name):
        return str(SHIPPED / f"{name}.py")
    return name


def load(file: str, argument: str | None, tables: Tables) -> ConfigDict:
    """The config that `get_config(argument)` of a file returns, with the values that it lacks; None: `get_config()`."""
    if not os.path.isfile(file):
        *names, last = shipped_names()
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
    config = get(*given)
    if not isinstance(config, ConfigDict):
        raise UserError(
            f"get_config of the config file {shown(file)} returned {shown(config)}, not a ConfigDict (--config)"
        )
    complete(config, tables)
    return config


def new_config(tables: Tables) -> ConfigDict:
    """All values with their defaults."""
    config = ConfigDict()
    complete(config, tables)
    return config


def complete(config: ConfigDict, tables: Tables) -> None:
    """Adds missing values to a config, in place, with their defaults; raises UserError for unknown values."""
    flat, known = flatten(config.to_dict()), keys(tables)
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

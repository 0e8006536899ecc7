"""Finds and runs a config file, and adds missing values; an error in it becomes one sentence with file and line."""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from ml_collections import ConfigDict

from motif_jax.config.table import LARGEST, Number, Tables, flatten, keys, shown
from motif_jax.console import clean
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import LIMIT, read_bytes

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
    text = read(file)
    module = ModuleType(MODULE)
    module.__file__ = file
    sys.modules[MODULE] = module  # dataclasses look for their module there
    try:
        exec(compile(text, file, "exec"), module.__dict__)
        config: ConfigDict = module.get_config() if argument is None else module.get_config(argument)
        complete(config, tables)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # user code: any exception is an error in the file
        where = f"{shown(file)} does not work{_line(error, file)}"
        raise UserError(f"the config file {where}: {_reason(error)} (--config)") from error
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


def read(file: str) -> bytes:
    """The bytes of a config file, which Python's compiler decodes."""
    if not os.path.exists(file):  # False for a name that is too long
        *names, last = shipped_names()
        raise UserError(
            f"there is no config file {shown(file)} (--config); {', '.join(names)} and {last} come with the program"
        )
    with legible(f"the config file {shown(file)}", "--config"):
        return read_bytes(Path(file), LIMIT)


def _line(error: BaseException, file: str) -> str:
    """` at line N`, for the last line of the file in the traceback; "" without such a line."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines.append(error.lineno)
    return f" at line {lines[-1]}" if lines and lines[-1] else ""


def _reason(error: BaseException) -> str:
    """Type and message of an exception; the text of a SyntaxError would repeat the file and the line."""
    words = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}{f': {clean(words)}' if words else ''}"

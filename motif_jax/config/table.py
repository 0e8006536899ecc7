"""The values of a config, each declared once: what it must be, and whether it decides the result.

A table has a line per value of one section of the config, and is defined where the section is read:

    TABLE = {
        "num_pairs": Value(Whole(1, 10**12), decides=True),
        "commit_every_s": Value(Number(0.001, 1e8)),
    }

`Tables` is a dict of them by the name of the section; "" is for values outside of any section. The checks of values,
the identity of an experiment in its workdir, and the text of `--help=SECTION` are all derived from it.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ml_collections import ConfigDict

from motif_jax.console import clean
from motif_jax.structs import UserError

LARGEST = 3e38  # what float32 holds
MOST = 2**31 - 1  # what int32 holds
MANY_SECONDS = 1e8  # three years; clocks, locks and sockets take no more than about 1e9
NEEDED = object()  # an older record always has this value


class Kind(Protocol):
    """What a value must be: `check` refuses other values, and `str` describes it in `--help`."""

    def check(self, name: str, flag: str, value: object) -> None:
        """Raises UserError, with one sentence, if the value of `--flag`, called `name`, is not of this kind."""


@dataclass(frozen=True)
class Whole:
    """A whole number from `low` to `high`."""

    low: int = 0
    high: int = MOST

    def check(self, name: str, flag: str, value: object) -> None:
        """See `Kind`."""
        if type(value) is not int:
            raise UserError(f"{name} must be {self}, not {shown(value)} ({flag})")
        if value < self.low:
            least = "must not be negative" if self.low == 0 else f"must be at least {self.low:,}"
            raise UserError(f"{name} {least}, not {shown(value)} ({flag})")
        if value > self.high:
            raise UserError(f"{name} must be at most {self.high:,}, not {shown(value)} ({flag})")

    def __str__(self) -> str:
        return f"a whole number from {self.low:,} to {self.high:,}"


@dataclass(frozen=True)
class Number:
    """A number from `low` to `high`, never NaN; with `infinite`, infinity is allowed on a side without a limit."""

    low: float | None = None
    high: float | None = None
    above: bool = False  # `low` itself is not allowed
    below: bool = False  # `high` itself is not allowed
    infinite: bool = False

    def check(self, name: str, flag: str, value: object) -> None:
        """See `Kind`."""
        if type(value) not in (int, float) or value != value:
            raise UserError(f"{name} must be {self}, not {shown(value)} ({flag})")
        assert isinstance(value, int | float)
        low = -LARGEST if self.low is None else self.low
        high = LARGEST if self.high is None else self.high
        too_low = value <= low if self.above else value < low
        too_high = value >= high if self.below else value > high
        limited = self.low if too_low else self.high
        if not (too_low or too_high) or (self.infinite and limited is None and abs(value) == math.inf):
            return
        if low == 0 and self.high is None and too_low:
            words = "positive" if self.above else "zero or more"
        elif low > 0 and value <= 0:
            words = "positive"
        elif self.low is not None and self.high is not None and self.high <= 1:
            words = f"between {self.low:g} and {self.high:g}"
        elif limited is None and not self.infinite and abs(value) == math.inf:
            words = "finite"
        else:
            words = f"at least {low:g}" if too_low else f"at most {high:g}"
        raise UserError(f"{name} must be {words}, not {shown(value)} ({flag})")

    def __str__(self) -> str:
        parts = []
        if self.low is not None:
            parts.append(f"{'above' if self.above else 'from'} {self.low:g}")
        if self.high is not None:
            parts.append(f"{'below' if self.below else 'to'} {self.high:g}")
        return " ".join(["a number", *parts, *(["(or infinite)"] if self.infinite else [])])


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def check(self, name: str, flag: str, value: object) -> None:
        """See `Kind`."""
        if type(value) is not bool:
            raise UserError(f"{name} must be {self}, not {shown(value)} ({flag})")

    def __str__(self) -> str:
        return "True or False"


@dataclass(frozen=True)
class Text:
    """One of `choices`, or any text that files, terminals and other programs can take."""

    choices: tuple[str, ...] = ()
    longest: int = 200  # characters
    piece: int = 0  # most bytes of each piece between separators (`between`); 0: no limit
    between: str = ""
    letters: str = ""  # the only characters that it may have, as in a regular expression's [...]

    def check(self, name: str, flag: str, value: object) -> None:
        """See `Kind`."""
        if self.choices:
            if value not in self.choices:
                near = difflib.get_close_matches(value, self.choices, 1, 0.7) if isinstance(value, str) else []
                hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(self.choices)}"
                raise UserError(f"unknown {name} {shown(value)} ({flag}): {hint}")
            return
        if not isinstance(value, str):
            raise UserError(f"{name} must be text, not {shown(value)} ({flag})")
        problem = ""
        try:
            value.encode()
        except UnicodeEncodeError:
            problem = "has characters that UTF-8 cannot write"
        if not problem and "\0" in value:
            problem = "has a NUL character, which no text may have"
        if not problem and len(value) > self.longest:
            problem = f"has {len(value):,} characters, where at most {self.longest:,} are taken"
        if not problem and self.piece and max(map(len, self._pieces(value))) > self.piece:
            problem = f"has a part of more than {self.piece} bytes, which no name may have"
        if not problem and self.letters and not re.fullmatch(f"[{self.letters}]*", value):
            problem = f"may only have the characters {self.letters}"
        if problem:
            raise UserError(f"{name} {problem}: {shown(value)} ({flag})")

    def _pieces(self, value: str) -> list[bytes]:
        for character in self.between:
            value = value.replace(character, "/")
        return value.encode().split(b"/")

    def __str__(self) -> str:
        return ", ".join(self.choices) if self.choices else f"text of up to {self.longest:,} characters"


PATH = Text(longest=4000, piece=255, between="/")
PATHS = Text(longest=4000, piece=255, between="/,")  # separated by commas
NAME = Text(letters="A-Za-z0-9_-")  # of an annotation, which files are named after
NAME_LIST = Text(longest=4000, piece=200, between=",", letters="A-Za-z0-9_,-")


@dataclass(frozen=True)
class List:
    """At least one value of a kind; `item` is what one of them is called."""

    of: Kind
    item: str

    def check(self, name: str, flag: str, value: object) -> None:
        """See `Kind`."""
        if not isinstance(value, list | tuple) or not 1 <= len(value) <= 1000:
            what = "an empty list" if isinstance(value, list | tuple) and not value else shown(value)
            raise UserError(f"{name} must be {self}, not {what} ({flag})")
        for item in value:
            self.of.check(self.item, flag, item)

    def __str__(self) -> str:
        return f"a list, in brackets, of: {self.of}"


@dataclass(frozen=True)
class Value:
    """One value of the config."""

    kind: Kind
    decides: bool = False  # it decides the result, so it cannot change within a workdir; False: only how work is done
    older: Any = NEEDED  # what is assumed for a config or record that is older than this value
    differs: str = ""  # what is different because `reference` sets it otherwise; a part of a sentence


Table = dict[str, Value]  # by name, with dots where sections lie within the section
Tables = dict[str, Table]  # by section


def keys(tables: Tables) -> dict[str, Value]:
    """The values of tables, by their names in the config."""
    return {
        f"{section}.{name}".lstrip("."): value for section, table in tables.items() for name, value in table.items()
    }


def check_values(config: ConfigDict, tables: Tables) -> None:
    """Raises UserError if the config lacks a value, or has one that is not what its table says."""
    flat = flatten(config.to_dict())
    for key, value in keys(tables).items():
        if key not in flat:
            raise UserError(f"the config has no value {key!r}, which configs/motif.py has (--config.{key})")
        value.kind.check(key.rpartition(".")[2], f"--config.{key}", flat[key])


def complete(config: ConfigDict, tables: Tables) -> None:
    """Adds the values that an older config lacks, in place; raises UserError for unknown values."""
    flat, known = flatten(config.to_dict()), keys(tables)
    for key in flat:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.3)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise UserError(f"the config file sets {clean(key, 80)!r}, which is no value of a config (--config){hint}")
    newer = {name for name, table in tables.items() if all(value.older is not NEEDED for value in table.values())}
    for key, value in known.items():
        *sections, name = key.split(".")
        inner: Any = config
        for depth, section in enumerate(sections):
            lacks = isinstance(inner, ConfigDict) and section not in inner
            if lacks and (depth or section in newer) and value.older is not NEEDED:
                with inner.unlocked():
                    inner[section] = ConfigDict()  # a section that is newer than the config
            inner = inner.get(section) if isinstance(inner, ConfigDict) else None
        if not isinstance(inner, ConfigDict):
            continue  # a whole section that the stages of this config may not need; if they do, they say so
        with inner.unlocked():
            if key not in flat and value.older is not NEEDED:
                inner[name] = value.older
            elif isinstance(value.kind, Number) and type(flat.get(key)) is int and abs(flat[key]) < LARGEST:
                del inner[name]  # a ConfigDict keeps the type of what it has
                inner[name] = float(flat[key])  # so that the command line may give it a fraction


def describe_changed(section: str, table: Table, values: Mapping[str, Any], names: Iterable[str]) -> str:
    """Those of some values of a section that are not the defaults, and their flags; "" if there is none.

    Such as `temperature = 0.5, top_k = 3 (--config.decoding.temperature, .top_k)`.
    """
    changed = [name for name in names if values[name] != table[name].older]
    listed = ", ".join(f"{name} = {shown(values[name])}" for name in changed)
    return f"{listed} (--config.{section}.{', .'.join(changed)})" if changed else ""


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one: {"a": {"b": 1}} -> {"a.b": 1}"""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def shown(value: object) -> str:
    """The `repr` of any value as one short line, for messages."""
    try:
        return clean(repr(value), 80)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a number of thousands of digits"

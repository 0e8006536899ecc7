"""Hints for errors in reward programs: what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from motif_jax.config.table import shown
from motif_jax.rewards.code.names import GRID, NUMBER, TEXTS
from motif_jax.rewards.code.types import CELLS

MOST_NAMES = 12  # listed in an error
LANGUAGE = {  # words of other languages
    "class", "def", "else", "eval", "exec", "False", "for", "from", "if", "import", "in", "inf", "is", "lambda", "nan",
    "None", "open", "print", "return", "True", "while", "with",
}  # fmt: skip
ADVICE = {  # where a value of another type is needed
    CELLS: ": put it into any(...) or count(...)",
    GRID: ": read a cell with at, or use count",
    TEXTS: ": compare it with ==, or use says",
    NUMBER: ": compare it, as in x > 0",
}


def unknown_name(name: str, names: Iterable[str]) -> str:
    """The sentence about a name that the world does not have."""
    if name in LANGUAGE:
        return f"unknown name {name!r}: a program is one expression, with numbers such as 1 and operators"
    names = sorted(names)
    if near := difflib.get_close_matches(name, names, n=1):
        return f"unknown name {shown(name)}: did you mean {near[0]!r}?"
    return f"unknown name {shown(name)}: this world has {listed(names)}"


def unknown_function(name: str, functions: Collection[str]) -> str:
    """The sentence about a function that does not exist."""
    near = difflib.get_close_matches(name, functions, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(functions)}"
    return f"unknown function {shown(name)}: {hint}"


def listed(names: Collection[str]) -> str:
    """Some of the names, with the number of the others."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join([*names][:MOST_NAMES])}{more}" if names else "no names"

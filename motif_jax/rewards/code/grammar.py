"""The language of reward programs as a table: its operators and functions, with the types that they take and return.

parsing.py takes the operators' strengths from it, checking.py the types, recogniser.py all of it. Two limits are no
types: a program has at most MOST_NODES nodes and MOST_LEVELS levels (tokens.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from motif_jax.rewards.code.names import FLAG, GRID, MOMENT, NUMBER, STEP, TEXTS
from motif_jax.rewards.code.tokens import COMPARISONS
from motif_jax.rewards.code.types import CELLS, CONSTANT, ORDER

NUMERIC = (NUMBER, FLAG)  # a flag counts as 0 or 1
NUMBERS, FLAGS, GRIDS, EQUAL_TEXTS = (NUMBER,), (FLAG,), (GRID,), (TEXTS,)
CHANGING = (MOMENT, STEP)
# Forms of an operand, where its type does not say enough:
ZERO, LITERAL, NEGATED = "0", "1", "-1"  # a number as it stands, other than 0 if it is not ZERO
WORD, BLANK, NAME = '"x"', '""', "name"  # texts; the form of a grid is its name, or that of one like it


class Operator(NamedTuple):
    """An operator between two operands."""

    strength: int  # stronger operators are applied first
    rules: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...]  # types of left, of right, and of the result
    divides: bool = False  # the right operand is a number other than 0, as it stands

    def result(self, left: str, right: str) -> str:
        """The type of the result; "" if the operator does not take these types."""
        return next((type_ for lefts, rights, type_ in self.rules if left in lefts and right in rights), "")


class Prefix(NamedTuple):
    """An operator before its only operand."""

    strength: int
    takes: tuple[str, ...]
    result: str


class Argument(NamedTuple):
    """What an argument of a function can be."""

    types: tuple[str, ...]
    of: tuple[str, ...] = ORDER
    forms: tuple[str, ...] = ()  # only these forms; (): any


class Function(NamedTuple):
    """A function: it has at least `least` arguments, and at most as many as `args`."""

    usage: str
    args: tuple[Argument, ...]
    least: int
    result: str
    of: str = ""  # "": that of its arguments


LOGIC = ((FLAGS, FLAGS, FLAG),)
ARITHMETIC = ((NUMERIC, NUMERIC, NUMBER),)
ORDERED = ((NUMBERS, NUMBERS, FLAG), (GRIDS, NUMBERS, CELLS), (NUMBERS, GRIDS, CELLS))
EQUAL = (*ORDERED, (EQUAL_TEXTS, EQUAL_TEXTS, FLAG))
OPERATORS: Mapping[str, Operator] = {
    "or": Operator(1, LOGIC),
    "and": Operator(2, LOGIC),
    **{name: Operator(4, EQUAL if name in ("==", "!=") else ORDERED) for name in COMPARISONS},
    "+": Operator(5, ARITHMETIC),
    "-": Operator(5, ARITHMETIC),
    "*": Operator(6, ARITHMETIC),
    "/": Operator(6, ARITHMETIC, divides=True),
}
PREFIXES: Mapping[str, Prefix] = {"not": Prefix(3, FLAGS, FLAG), "-": Prefix(7, NUMERIC, NUMBER)}

ANY_NUMBER, ANY_FLAG = Argument(NUMERIC), Argument(FLAGS, CHANGING)
TEXT_NAME, QUOTED = Argument((TEXTS,), ORDER, (NAME,)), Argument((TEXTS,), ORDER, (WORD,))
GRID_NAME, CELL, INDEX = Argument(GRIDS), Argument((CELLS,)), Argument(NUMBERS, (CONSTANT,), (ZERO, LITERAL))
FUNCTIONS: Mapping[str, Function] = {
    "gained": Function("gained(gold)", (Argument(NUMERIC, (MOMENT,)),), 1, NUMBER, STEP),
    "record": Function("record(depth)", (Argument(NUMERIC, CHANGING),), 1, NUMBER, STEP),
    "rose": Function("rose(health < 5)", (ANY_FLAG,), 1, FLAG, STEP),
    "once": Function('once(says("key"))', (ANY_FLAG,), 1, FLAG, STEP),
    "still": Function("still()", (), 0, FLAG, STEP),
    "says": Function('says("you kill") or says(mission, "red")', (TEXT_NAME, QUOTED), 1, FLAG),
    "at": Function("at(grid, i, j)", (GRID_NAME, INDEX, INDEX, INDEX), 2, NUMBER),
    "any": Function("any(grid == 8)", (CELL,), 1, FLAG),
    "count": Function("count(grid == 8)", (CELL,), 1, NUMBER),
    "distance": Function("distance(grid, 8)", (GRID_NAME, ANY_NUMBER), 2, NUMBER),
    "min": Function("min(x, 5)", (ANY_NUMBER,) * 8, 2, NUMBER),
    "max": Function("max(x, 0)", (ANY_NUMBER,) * 8, 2, NUMBER),
    "abs": Function("abs(x)", (ANY_NUMBER,), 1, NUMBER),
}

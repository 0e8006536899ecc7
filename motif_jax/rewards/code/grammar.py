"""The language of reward programs as a table: its operators and functions, with the types that they take and return.

checking.py takes the operators' strengths and the types from it, recogniser.py all of it, and `as_ebnf` writes
it for servers. Two limits are no types: a program has at most MOST_NODES nodes and MOST_LEVELS levels (tokens.py).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple

from motif_jax.rewards.code.names import CELLS, CONSTANT, FLAG, GRID, MOMENT, NUMBER, ORDER, STEP, TEXTS, Readable
from motif_jax.rewards.code.tokens import COMPARISONS, MOST_CHARACTERS

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

# ---- for servers

TYPES = {NUMBER: "number", FLAG: "flag", GRID: "grid", TEXTS: "text", CELLS: "cells"}  # in the names of rules
STRENGTHS = (*sorted({one.strength for one in OPERATORS.values()}), 9)  # 9: no operator, or within parentheses
SPELT = {  # rules; a rule is a list of alternatives
    "s": ['" "?'], "number": ['[0-9]{1,6} ("." [0-9]{1,6})?'], "index": ["[0-9]{1,6}", '"(" index ")"'],
    "divisor": ["number", '"-" divisor', '"(" divisor ")"'],
    "word": [f'"\\"" [ !#-\\[\\]-~]{{1,{MOST_CHARACTERS}}} "\\""', '"(" word ")"'],
}  # fmt: skip
FIXED = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]')  # what is no name of a rule
BY_FORMS = {(NAME,): "name", (WORD,): "word", (ZERO, LITERAL): "index"}


def as_ebnf(readable: Readable) -> str:
    """The programs of a world as a context-free grammar: the EBNF of xgrammar, which is llama.cpp's GBNF.

    There is one rule per type and strength. It cannot say how many nodes and levels a program has, nor which values
    change; at most one blank stands between two terminals.
    """
    rules = {name: [*ways] for name, ways in SPELT.items()}
    names = {type_: [f'"{name}"' for name, entry in readable.entries.items() if entry.type == type_] for type_ in TYPES}
    rules["name"] = [*names[TEXTS], '"(" name ")"']
    rules["root"] = [_any_of(rules, NUMERIC, STRENGTHS[0])]
    for type_, called in TYPES.items():
        for strength, stronger in itertools.pairwise(STRENGTHS):
            rules[f"{called}{strength}"] = [f"{called}{stronger}", *_operated(rules, type_, strength, stronger)]
        plain = {NUMBER: ["number"], TEXTS: ["word"]}.get(type_, [])
        calls = [call for name, one in FUNCTIONS.items() if one.result == type_ for call in _calls(rules, name)]
        for name, prefix in PREFIXES.items():
            if prefix.result == type_:
                strength = min(one for one in STRENGTHS if one >= prefix.strength)
                blank = " " * name.isalpha()
                plain.append(f'"{name}{blank}" s {_any_of(rules, prefix.takes, strength)}')
        rules[f"{called}{STRENGTHS[-1]}"] = [*plain, *names[type_], *calls, f'"(" s {called}{STRENGTHS[0]} s ")"']
    finite, count = set[str](), -1  # rules from which a text can be made: without grids, not all can
    while len(finite) > count:
        count = len(finite)
        finite |= {name for name, ways in rules.items() if any(_refers(way) <= finite for way in ways)}
    kept = {name: [way for way in rules[name] if _refers(way) <= finite] for name in rules if name in finite}
    return "\n".join(f"{name} ::= {' | '.join(ways)}" for name, ways in kept.items())


def _refers(way: str) -> set[str]:
    return {*re.findall("[a-z][a-z0-9-]*", FIXED.sub("", way))}


def _any_of(rules: dict[str, list[str]], types: tuple[str, ...], strength: int) -> str:
    """The rule for values of these types."""
    ways = [f"{TYPES[type_]}{strength}" for type_ in types]
    name = ways[0] if len(ways) == 1 else f"{'-'.join(TYPES[type_] for type_ in types)}{strength}"
    if len(ways) > 1:
        rules[name] = ways
    return name


def _operated(rules: dict[str, list[str]], type_: str, strength: int, stronger: int) -> list[str]:
    """The ways to make a value of a type by operators of a strength."""
    ways: dict[str, None] = {}
    for name, operator in OPERATORS.items():
        for lefts, rights, result in operator.rules:
            if operator.strength != strength or result != type_:
                continue
            left, right = (_any_of(rules, types, stronger) for types in (lefts, rights))
            rest = f"{TYPES[type_]}{strength}-{left}-{right}"  # llama.cpp takes no "_"
            text = f'" {name} "' if name.isalpha() else f's "{name}" s'
            way = f"{text} {'divisor' if operator.divides else right}"
            rules[rest] = [*dict.fromkeys([*rules.get(rest, ()), way])]
            ways[f"{left} {rest}{'+' * (result in lefts)}"] = None  # such as 1 + 2 + 3
    return [*ways]


def _calls(rules: dict[str, list[str]], name: str) -> list[str]:
    """The ways to call a function."""
    function, ways = FUNCTIONS[name], []
    for count in range(function.least, len(function.args) + 1):
        args = function.args[len(function.args) - count :] if name == "says" else function.args[:count]
        written = [BY_FORMS.get(arg.forms) or _any_of(rules, arg.types, STRENGTHS[0]) for arg in args]
        inner = ' s "," s '.join(written)
        ways.append(f'"{name}" s "(" s {inner} s ")"')
    return ways

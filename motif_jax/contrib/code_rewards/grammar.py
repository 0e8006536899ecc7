"""The language of reward programs: a table of its operators and functions, the parser, and a grammar for models.

`check` parses a program to a typed tree, and refuses what does not fit, with place and fix. A program is ASCII. `#`
begins a comment, which ends with the line; line breaks count as blanks.

    number  0.5, 20, 1e-3           name    letters, digits and underscores
    text    "you kill", no escapes  symbol  < <= > >= == != + - * / ( ) ,

There is one method per side of an operator (V. Pratt, 1973).

    strongest first:  - (negative)   * /   + -   < <= > >= == !=   not   and   or

The tree has at most MOST_NODES nodes and MOST_LEVELS levels. A chain of equal operators, such as `a + b - c`, is one
level. Parentheses make no node, but count as a level, so recursion is bounded whatever the text is.

Each value is a number, a flag, a grid or a text. It is constant, of a moment (known before and after a step, such as
the hero's gold) or of a step (such as `event_gold`, what the step changed). A flag counts as 0 or 1 in arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from motif_jax.config.table import shown
from motif_jax.console import suggest
from motif_jax.contrib.code_rewards.names import (
    FLAG,
    GRID,
    MOMENT,
    NAME,
    NUMBER,
    SAID,
    STEP,
    TEXTS,
    WORDS,
    Entry,
    Readable,
)
from motif_jax.envs.world import Viewpoint
from motif_jax.structs import UserError

MOST_BYTES = 4096  # of a program
MOST_NODES = 64  # of its tree
MOST_LEVELS = 12  # of parentheses, calls and operators within each other
MOST_CHARACTERS = 100  # of a text

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
CONSTANT = "constant"
ORDER = (CONSTANT, MOMENT, STEP)  # a value that is made of several is of the last of theirs
CELLS = "comparison of a grid"  # a type: one flag per cell, only for `any` and `count`
NUMERIC = (NUMBER, FLAG)  # a flag counts as 0 or 1
NUMBERS, FLAGS, GRIDS, EQUAL_TEXTS = (NUMBER,), (FLAG,), (GRID,), (TEXTS,)
CHANGING = (MOMENT, STEP)
# Forms of an operand, where its type does not say enough:
ZERO, LITERAL, NEGATED = "0", "1", "-1"  # a number as it stands, other than 0 if it is not ZERO
WORD, BLANK, NAMED = '"x"', '""', "name"  # texts; the form of a grid is its name, or that of one like it


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

    what: str
    types: tuple[str, ...]
    of: tuple[str, ...] = ORDER
    forms: tuple[str, ...] = ()  # only these forms; (): any

    def takes(self, type_: str, of: str, form: str) -> bool:
        """Whether it can be such a value."""
        return type_ in self.types and (of in self.of or self.of == ORDER) and (not self.forms or form in self.forms)


class Function(NamedTuple):
    """A function: it has at least `least` arguments, and at most as many as `args`."""

    usage: str
    meaning: str  # for a model
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

ANY_NUMBER = Argument("a number", NUMERIC)
CHANGING_NUMBER = Argument("a number that changes", NUMERIC, CHANGING)
NUMBER_OF_MOMENT = Argument("a number of a moment, which is no constant and no change already", NUMERIC, (MOMENT,))
ANY_FLAG = Argument("a flag that changes, such as x > 0", FLAGS, CHANGING)
TEXT_NAME = Argument("a text of the world by its name", (TEXTS,), ORDER, (NAMED,))
QUOTED = Argument("a text in double quotes", (TEXTS,), ORDER, (WORD,))
GRID_NAME, CELL = Argument("a grid by its name", GRIDS), Argument("the comparison of a grid", (CELLS,))
INDEX = Argument("an index from 0", NUMBERS, (CONSTANT,), (ZERO, LITERAL))
FUNCTIONS: Mapping[str, Function] = {
    "gained": Function("gained(gold)", "after the step less before it", (NUMBER_OF_MOMENT,), 1, NUMBER, STEP),
    "record": Function(
        "record(depth)", "how far it exceeds its best of the episode, otherwise 0", (CHANGING_NUMBER,), 1, NUMBER, STEP
    ),
    "rose": Function("rose(health < 5)", "true, and not before the step", (ANY_FLAG,), 1, FLAG, STEP),
    "once": Function('once(says("key"))', "true for the first time in the episode", (ANY_FLAG,), 1, FLAG, STEP),
    "still": Function("still()", "the step has changed nothing", (), 0, FLAG, STEP),
    "says": Function(
        'says("you kill") or says(mission, "red")', "the caption of the step, or another text, contains this text",
        (TEXT_NAME, QUOTED), 1, FLAG,
    ),
    "at": Function("at(grid, i, j)", "a cell of a grid, from 0", (GRID_NAME, INDEX, INDEX, INDEX), 2, NUMBER),
    "any": Function("any(grid == 8)", "whether a cell is so", (CELL,), 1, FLAG),
    "count": Function("count(grid == 8)", "how many cells are so", (CELL,), 1, NUMBER),
    "distance": Function(
        "distance(grid, 8)", "steps from the agent to the nearest such cell, 1000 without one",
        (GRID_NAME, ANY_NUMBER), 2, NUMBER,
    ),
    "min": Function("min(x, 5)", "the least", (ANY_NUMBER,) * 8, 2, NUMBER),
    "max": Function("max(x, 0)", "the most", (ANY_NUMBER,) * 8, 2, NUMBER),
    "abs": Function("abs(x)", "without its sign", (ANY_NUMBER,), 1, NUMBER),
}  # fmt: skip


# ---- tokens

LARGEST_NUMBER = 1e6  # absolute value of a number in a program
TOKEN = re.compile(
    r"(?P<blank>(?:[ \t\r\n]|#[\t\r -~]*)+)|(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)(?![\w.])|"
    rf'(?P<name>{NAME.pattern})|"(?P<text>[ !#-\[\]-~]{{0,{MOST_CHARACTERS}}})"|(?P<symbol>[<>=!]=|[<>+\-*/(),])'
)
FIXES = {  # for characters that are not in the language
    "'": 'write texts in double quotes, as in says("you kill")',
    '"': f"a text has at most {MOST_CHARACTERS} characters of ASCII without a backslash, and ends with a double quote",
    ".": "write numbers as 0.5; values have no attributes",
    "=": "write == to compare",
    "!": "write != to compare, and not for the opposite",
    "&": "write and",
    "|": "write or",
    "[": "write at(grid, i, j) to read a cell",
    "^": "write x * x for a square",
    "%": "there are only + - * /",
} | dict.fromkeys("0123456789", "a number is written as 20, 0.5 or 1e-3")


class ProgramError(UserError):
    """An error in a program: one sentence that begins with its place."""

    def __init__(self, place: str, sentence: str):
        super().__init__(f"{place}: {sentence}")


class Token(NamedTuple):
    """A piece of a program."""

    kind: str  # "number", "text", "name", "end", or the symbol
    value: str | float
    place: str  # as place_of gives it

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else shown(self.value)


def tokenize(text: str) -> list[Token]:
    """The tokens of a program; the last is of kind "end". Raises ProgramError."""
    if len(text) > MOST_BYTES:
        raise ProgramError(place_of(text, 0), f"a program has at most {MOST_BYTES:,} bytes, not {len(text):,}")
    tokens, at = list[Token](), 0
    while at < len(text):
        match, place = TOKEN.match(text, at), place_of(text, at)
        if match is None:
            fix = FIXES.get(text[at], "a program is printable ASCII, see docs/code-rewards.md")
            raise ProgramError(place, f"unexpected {text[at]!a}: {fix}")
        at, kind = match.end(), str(match.lastgroup)
        value = match[kind]
        if kind == "number":
            if not float(value) <= LARGEST_NUMBER:
                raise ProgramError(place, f"numbers are at most {LARGEST_NUMBER:g}: scale the reward")
            tokens.append(Token(kind, float(value), place))
        elif kind != "blank":
            is_symbol = kind == "symbol" or (kind == "name" and value in WORDS)
            tokens.append(Token(value if is_symbol else kind, value, place))
    return [*tokens, Token("end", "", place_of(text, at))]


def place_of(text: str, at: int) -> str:
    """The place of an offset, counted from 1."""
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return f"line {line}, column {column}"


# ---- the typed tree


class Expression(NamedTuple):
    """A node of the typed tree."""

    kind: str  # "number", "read", "text", a function's name, an operator, "negative"
    type: str
    of: str  # CONSTANT, MOMENT or STEP
    args: tuple[Expression, ...] = ()
    value: float = 0.0  # of a number
    text: str = ""  # of a text; that `says` looks for; as which a value that is read is written
    entry: Entry | None = None  # of a value that is read
    viewpoint: Viewpoint | None = None  # of `distance`
    memory: int = -1  # the number of the value that the node remembers over steps; -1: none
    place: str = ""
    levels: int = 1  # of the tree below it, itself included
    strength: int = 0  # of an operator between operands

    @property
    def form(self) -> str:
        """See the forms above; "" where the type says enough."""
        if self.kind == "number":
            return LITERAL if self.value else ZERO
        if self.kind == "negative" and self.args[0].form in (LITERAL, NEGATED):
            return NEGATED
        if self.kind == "text":
            return WORD if self.text.strip() else BLANK
        return NAMED if (self.kind, self.type) == ("read", TEXTS) else ""

    @property
    def reads_caption(self) -> bool:
        return self.entry == SAID or any(one.reads_caption for one in self.args)


class Program(NamedTuple):
    """A program that has been checked."""

    text: str
    root: Expression
    memories: int  # values that are remembered over steps
    uses: Readable  # the part of a world that the program reads

    @property
    def observations(self) -> tuple[str, ...]:
        """The names that rollouts must record."""
        names = {name for entry in self.uses.entries.values() for name in entry.observations}
        return tuple(sorted(names | set(SAID.observations if self.root.reads_caption else ())))


def last_of(*parts: Expression) -> str:
    """What a value computed from these parts belongs to, such as a moment: the last of theirs in ORDER."""
    return max((one.of for one in parts), key=ORDER.index)


# ---- the parser

LOWEST = 0  # weaker than all operators
MOST_NAMES = 12  # in an error
ADVICE = {  # where a value of another type is needed
    CELLS: ": put it into any(...) or count(...)",
    GRID: ": read a cell with at, or use count",
    TEXTS: ": compare it with ==, or use says",
    NUMBER: ": compare it, as in x > 0",
}


def _listed(names: Sequence[str]) -> str:
    """Some of the names, with the number of the others."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}" if names else "none"


def check(text: str, readable: Readable) -> Program:
    """Parses and checks a program for a world; raises ProgramError."""
    parser = _Parser(tokenize(text), readable)
    root, token = parser.expression(LOWEST), parser.next
    if token.kind != "end":
        raise ProgramError(token.place, f"expected an operator or the end, not {token}: a program is one expression")
    _check_type(root, NUMERIC, "a reward")
    entries = {name: readable.entries[name] for name in sorted({*parser.read, *parser.still})}
    viewpoints = {name: readable.viewpoints[name] for name in sorted(parser.viewed)}
    return Program(text, root, parser.memories, Readable(entries, viewpoints, parser.still))


class _Parser:
    def __init__(self, tokens: list[Token], readable: Readable):
        self._tokens = iter(tokens)
        self.next = next(self._tokens)
        self._nodes = self._open = 0  # nodes so far; parentheses, calls and prefixes around the current token
        self._readable, self._names = readable, readable.entries
        self.memories, self.read, self.viewed = 0, set[str](), set[str]()
        self.still: tuple[str, ...] = ()  # the names that are compared

    def _take(self) -> Token:
        token, self.next = self.next, next(self._tokens, self.next)
        return token

    def _node(self, token: Token, value: Expression, *args: Expression, strength: int = 0) -> Expression:
        """The value as a node of the tree, of these parts."""
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise ProgramError(token.place, f"there are at most {MOST_NODES} numbers, names and operators: shorten it")
        levels = [one.levels + (number > 0 or one.strength != strength or not strength)
                  for number, one in enumerate(args)]  # fmt: skip
        _check_depth(max(levels, default=1), token)
        return value._replace(place=token.place, levels=max(levels, default=1), strength=strength)

    def _inside(self, token: Token, lowest: int = LOWEST) -> Expression:
        """The expression after a prefix or within parentheses."""
        self._open += 1
        _check_depth(self._open, token)
        inner = self.expression(lowest)
        if lowest == LOWEST:
            self._close(token)
        self._open -= 1
        return inner

    def _close(self, opened: Token) -> None:
        if (token := self._take()).kind != ")":
            raise ProgramError(token.place, f"expected ')' for {opened} of {opened.place}, not {token}")

    def expression(self, lowest: int) -> Expression:
        """An expression up to the first operator that is not stronger than `lowest`."""
        left = self._operand()
        while (name := self.next.kind) in OPERATORS and (strength := OPERATORS[name].strength) > lowest:
            token = self._take()
            right = self.expression(strength)
            left = self._node(token, self._combined(token, left, right), left, right, strength=strength)
        return left

    def _operand(self) -> Expression:
        token = self._take()
        match token.kind:
            case "number":
                return self._node(token, Expression("number", NUMBER, CONSTANT, value=float(token.value)))
            case "text":
                return self._node(token, Expression("text", TEXTS, CONSTANT, text=str(token.value)))
            case "name":
                return self._call(token) if self.next.kind == "(" else self._node(token, self._read(token))
            case "(":
                return self._inside(token)
            case name if name in PREFIXES:
                strength, takes, result = PREFIXES[name]
                inner = self._inside(token, strength - 1)
                _check_type(inner, takes, name)
                value = Expression("negative" if name == "-" else name, result, inner.of, (inner,))
                return self._node(token, value, inner)
        raise ProgramError(token.place, f"expected a number, a name or a function, not {token}")

    # ---- names and operators

    def _read(self, token: Token) -> Expression:
        name = str(token.value)
        if name not in self._names:
            names = sorted(self._names)
            fix = suggest(name, names, f"this world has {_listed(names)}")
            fix = f"write {FUNCTIONS[name].usage}" if name in FUNCTIONS else fix
            raise ProgramError(token.place, f"unknown name {shown(name)}: {fix}")
        self.read.add(name)
        entry = self._names[name]
        return Expression("read", entry.type, entry.of, text=name, entry=entry)

    def _combined(self, token: Token, left: Expression, right: Expression) -> Expression:
        name, operator = token.kind, OPERATORS[token.kind]
        if name not in COMPARISONS:
            for operand in (left, right):
                _check_type(operand, operator.rules[0][0], name)
            if operator.divides and right.form not in (LITERAL, NEGATED):
                raise ProgramError(right.place, "the divisor must be a number other than 0, such as x / 10")
        type_ = operator.result(left.type, right.type)
        if not type_:
            fix = "compare numbers, texts with ==, or a grid with a number in any(...) or count(...)"
            if FLAG in (left.type, right.type):
                fix = "write x or not x for a flag x, and 1 < x and x < 3 for 1 < x < 3"
            raise ProgramError(token.place, f"{name} cannot compare a {left.type} with a {right.type}: {fix}")
        return Expression(name, type_, last_of(left, right), (left, right))

    # ---- functions

    def _call(self, token: Token) -> Expression:
        name = str(token.value)
        if name not in FUNCTIONS:
            raise ProgramError(token.place, f"unknown function {shown(name)}: {suggest(name, FUNCTIONS)}")
        self._open += 1
        _check_depth(self._open, self._take())
        args = [] if self.next.kind == ")" else [self.expression(LOWEST)]
        while self.next.kind == ",":
            self._take()
            args.append(self.expression(LOWEST))
        self._close(token)
        self._open -= 1
        function = FUNCTIONS[name]
        if not function.least <= len(args) <= len(function.args):
            number = f"{len(args)} argument{'s' * (len(args) != 1)}"
            raise ProgramError(token.place, f"{name} is written as {function.usage}, not with {number}")
        known = function.args[1:] if name == "says" and len(args) == 1 else function.args
        for value, wanted in zip(args, known, strict=False):
            if not wanted.takes(value.type, value.of, value.form):
                hint = ADVICE.get(value.type, "") if value.type not in wanted.types else ""
                if GRID in wanted.types:
                    hint += f"; its grids are {_listed([one for one in self._names if self._names[one].type == GRID])}"
                problem = f"{name} needs {wanted.what}, as in {function.usage}, not a {value.type} ({value.of}){hint}"
                raise ProgramError(value.place, problem)
        return self._node(token, self._called(token, name, args), *args)

    def _called(self, token: Token, name: str, args: list[Expression]) -> Expression:
        function = FUNCTIONS[name]
        match name, args:
            case "says", [*read, word]:
                text = read[0] if read else Expression("read", TEXTS, STEP, entry=SAID)
                return Expression("says", FLAG, text.of, (text,), text=word.text)
            case "at", [grid, *places]:
                return _cell(token, grid, places)
            case "distance", [grid, _]:
                if (viewpoint := self._readable.viewpoints.get(grid.text)) is None:
                    problem = f"the world does not say where the agent is in {grid.text} (`viewpoints`)"
                    raise ProgramError(grid.place, problem)
                self.viewed.add(grid.text)
                parts = *args, self._coordinate(token, viewpoint.row), self._coordinate(token, viewpoint.column)
                return Expression(name, NUMBER, last_of(*parts), parts, viewpoint=viewpoint)
            case "still", _:
                if not self._readable.still:
                    raise ProgramError(token.place, "this world has no values that still() could compare")
                self.still = self._readable.still
        remembers = name in ("record", "once") or (name == "rose" and args[0].of == STEP)
        memory = self.memories if remembers else -1
        self.memories += remembers
        return Expression(name, function.result, function.of or last_of(*args), tuple(args), memory=memory)

    def _coordinate(self, token: Token, place: int | str) -> Expression:
        if isinstance(place, str):
            return self._read(token._replace(value=place))
        return Expression("number", NUMBER, CONSTANT, value=float(place))


def _cell(token: Token, grid: Expression, places: Sequence[Expression]) -> Expression:
    assert grid.entry is not None
    entry, name, cell = grid.entry, grid.text, tuple(int(place.value) for place in places)
    if len(cell) != len(entry.shape) or any(
        at != place.value or at >= size for at, place, size in zip(cell, places, entry.shape, strict=True)
    ):
        usage = ", ".join([name, *"ijk"[: len(entry.shape)]])
        raise ProgramError(token.place, f"{name} has the shape {entry.shape}: write at({usage}), from 0")
    text = f"at({', '.join(map(str, (name, *cell)))})"
    return Expression("read", NUMBER, entry.of, text=text, entry=entry._replace(type=NUMBER, cell=cell))


def _check_type(value: Expression, types: tuple[str, ...], of_what: str) -> None:
    if value.type not in types:
        wanted, hint = "number" if NUMBER in types else "flag, such as x > 0", ADVICE.get(value.type, "")
        raise ProgramError(value.place, f"{of_what} needs a {wanted}, not a {value.type}{hint}")


def _check_depth(levels: int, token: Token) -> None:
    if levels > MOST_LEVELS:
        raise ProgramError(token.place, f"expressions are at most {MOST_LEVELS} levels deep: write a flatter one")


# ---- the terms of the sum, whose shares of the return are shown


def terms_of(program: Program, negative: bool = False) -> Iterator[Program]:
    """Yields the terms of a program as programs with their signs; one that is not a sum is its only term.

    `negative`: with the opposite signs.

    `+`, `-` and a minus before a sum are resolved; a sum that is multiplied or divided is one term. In each step the
    rewards of the terms add up to the program's reward, except for rounding and limits: each term is limited as a
    reward is, and the program's reward is limited after its terms are added.
    """
    root = program.root
    if root.kind in ("+", "-", "negative"):
        signs = {"+": (False, False), "-": (False, True), "negative": (True,)}[root.kind]
        for part, sign in zip(root.args, signs, strict=True):
            yield from terms_of(program._replace(root=part), negative != sign)
    elif negative:
        text = _written(root, OPERATORS["*"].strength)
        text = text[1:] if text.startswith("-") else f"-{text}"
        yield program._replace(text=text, root=Expression("negative", NUMBER, root.of, (root,)))
    else:
        yield program._replace(text=_written(root), root=root)


def _written(one: Expression, least: int = LOWEST) -> str:
    """The text of a tree, in parentheses if its operator is weaker than `least`."""
    symbol = "-" if one.kind == "negative" else one.kind
    if one.kind == "number":
        return repr(one.value).removesuffix(".0")
    quoted = f'"{one.text}"'
    if one.kind in ("text", "read"):
        return quoted if one.kind == "text" else one.text
    if one.kind == "says":
        return f"says({', '.join(filter(None, (one.args[0].text, quoted)))})"
    if len(one.args) == 1 and symbol in PREFIXES:
        strength = PREFIXES[symbol].strength
        text = f"{'not ' if symbol == 'not' else symbol}{_written(one.args[0], strength)}"
    elif symbol in OPERATORS:
        strength = OPERATORS[symbol].strength
        left, right = one.args
        text = f"{_written(left, strength)} {symbol} {_written(right, strength + 1)}"
    else:
        args = one.args[:2] if one.kind == "distance" else one.args
        return f"{one.kind}({', '.join(map(_written, args))})"
    return text if strength >= least else f"({text})"


# ---- as a grammar, for servers and for a model in this process

TYPES = {NUMBER: "number", FLAG: "flag", GRID: "grid", TEXTS: "text", CELLS: "cells"}  # in the names of rules
OPERATED, STRONGEST = 0, 9  # strengths: by any operator, and by none
STRENGTHS = (*sorted({row.strength for table in (OPERATORS, PREFIXES) for row in table.values()}), STRONGEST)
WEAKEST = STRENGTHS[0]
CHANGED = "changed"  # what a value belongs to that, in a narrow grammar, no function of changes takes
CLASSES = {(MOMENT,): "m", CHANGING: "s", (*CHANGING, CHANGED): "c", (*ORDER, CHANGED): ""}  # in the names of rules
*_, VARYING, ANYTHING = CLASSES
NARROW_LEVELS = 6  # of the tree, in a narrow grammar
MOST_IN_SUM, MOST_IN_CHAIN = 8, 3  # operands of equal operators in a row there: at the top, and below
MOST_CELLS = 100  # that can be named along an axis
NO_RULE = "none"  # what refers to it is left out
CHARACTER = "[!#-\\[\\]-~]"
SPELT = {  # rules; a rule is a list of alternatives
    "s": ['" "?'],
    "number": ['[0-9]{1,6} ("." [0-9]{1,6})?'],
    "constant": ["number", '"-" s number'],
    "positive": ['[1-9] [0-9]{0,5} ("." [0-9]{1,6})?', '"0." [0-9]{0,5} [1-9]'],
    "divisor": ["positive", '"-" s positive'],
    "word": [f'"\\"" " "? {CHARACTER} ({CHARACTER} | " "){{0,{MOST_CHARACTERS - 2}}} "\\""'],
}
FIXED = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]')  # what is no name of a rule


def as_ebnf(readable: Readable, narrow: bool = False) -> str:
    """The programs of a world as a context-free grammar: the EBNF of xgrammar, which is llama.cpp's GBNF.

    There is one rule per type and strength. It cannot say how many nodes and levels a program has, nor which values
    change; at most one blank stands between two terminals.

    `narrow`: for small models, which repeat themselves and do not come to an end. There is also one rule per level, and
    per what values belong to; few equal operators are in a row. What adds no meaning is left out: nothing is computed
    of constants alone, parentheses are around operators, texts in quotes are only in `says`, and the argument of a
    function of changes has neither another one nor a sum or product with a flag.
    """
    rules = _Rules(readable, narrow)
    rules.ways["root"] = [rules.value(NUMERIC, VARYING if narrow else ANYTHING, NARROW_LEVELS)]
    finite, count = set[str](), -1  # rules from which a text can be made: without grids, not all can
    while len(finite) > count:
        count = len(finite)
        finite |= {name for name, ways in rules.ways.items() if any(_refers(way) <= finite for way in ways)}
    kept = {name: [way for way in rules.ways[name] if _refers(way) <= finite] for name in rules.ways if name in finite}
    return "\n".join(f"{name} ::= {' | '.join(ways)}" for name, ways in kept.items())


def _refers(way: str) -> set[str]:
    return {*re.findall("[a-z][a-z0-9]*", FIXED.sub("", way))}


def _quoted(text: str) -> str:
    return f'"{text}"'


def _either(ways: Iterable[str]) -> str:
    listed = [*ways] or [NO_RULE]
    return listed[0] if len(listed) == 1 else f"({' | '.join(listed)})"


def _next(strength: int) -> int:
    return min(one for one in STRENGTHS if one > strength)


class _Rules:
    """Rules, which are made where others refer to them; `of`: what values may belong to, one of CLASSES."""

    def __init__(self, readable: Readable, narrow: bool):
        self._readable, self._narrow = readable, narrow
        self.ways = {name: [*ways] for name, ways in SPELT.items()}

    def value(self, types: Sequence[str], of: tuple[str, ...], level: int, strength: int = WEAKEST) -> str:
        """Refers to values of some types, which are made by operators of at least this strength."""
        rules = [self._rule(type_, of, level, strength) for type_ in types]
        return rules[0] if len(rules) == 1 else self._any_of("or".join(rules), rules)

    def _any_of(self, name: str, ways: list[str]) -> str:
        """A rule of its own, so that alternatives of which no text can be made are left out."""
        self.ways[name] = ways
        return name

    def _rule(self, type_: str, of: tuple[str, ...], level: int, strength: int) -> str:
        name = f"{TYPES[type_]}{strength}{CLASSES[of]}{level if self._narrow else ''}"
        if name not in self.ways:
            ways = self.ways[name] = list[str]()  # they may refer to the rule itself
            if strength == STRONGEST:
                ways += self._operands(type_, of, level)
            elif strength == OPERATED:
                ways += (way for any_one in STRENGTHS[:-1] for way in self._operated(type_, of, level, any_one))
            else:
                ways += [self._rule(type_, of, level, _next(strength)), *self._operated(type_, of, level, strength)]
        return name

    def _operated(self, type_: str, of: tuple[str, ...], level: int, strength: int) -> Iterator[str]:
        """The ways to make a value by operators of a strength, whose operands have a level less."""
        if level == 1 and self._narrow:
            return
        for name, prefix in PREFIXES.items():
            if (prefix.strength, prefix.result) == (strength, type_):
                yield f'"{name}{" " * name.isalpha()}" s {self.value(prefix.takes, of, level - 1, strength)}'
        operators = dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]]()  # by their operands
        for name, operator in OPERATORS.items():
            for lefts, rights, result in operator.rules:
                if (operator.strength, result) == (strength, type_) and not (self._narrow and TEXTS in lefts):
                    both = (lefts, rights) if type_ != NUMBER or CHANGED in of else (NUMBERS, NUMBERS)
                    operators.setdefault(both, []).append(name)
        most = MOST_IN_SUM if level == NARROW_LEVELS else MOST_IN_CHAIN
        for (lefts, rights), names in operators.items():
            ways = [*self._values([Argument("", lefts), Argument("", rights)], of, level - 1, _next(strength))]
            for left, right in ways:
                # A constant is not divided, as the divisor is one, too.
                step = _steps([one for one in names if left != "constant" or not OPERATORS[one].divides], right)
                if type_ in lefts:  # 1 + 2 + 3
                    step += f" {_steps(names, ways[0][1])}{f'{{0,{most - 2}}}' if self._narrow else '*'}"
                yield f"{left} {step}"

    def _operands(self, type_: str, of: tuple[str, ...], level: int) -> Iterator[str]:
        """The ways to make a value without an operator."""
        yield from self._names(type_, of)
        if CONSTANT in of:
            yield from {NUMBER: ["number"], TEXTS: ["word"]}.get(type_, [])
        if level == 1 and self._narrow:
            return
        yield f'"(" s {self.value([type_], of, level, OPERATED if self._narrow else WEAKEST)} s ")"'
        for name, function in FUNCTIONS.items():
            if function.result == type_:
                for inner in map(' s "," s '.join, self._arguments(name, function, of, level - 1)):
                    yield f'"{name}" s "(" s {inner} s ")"'

    def _names(self, type_: str, of: Sequence[str]) -> Iterator[str]:
        return (_quoted(name) for name, one in self._readable.entries.items() if one.type == type_ and one.of in of)

    def _arguments(self, name: str, function: Function, of: tuple[str, ...], level: int) -> Iterator[list[str]]:
        """The ways to write the arguments of a function."""
        if name == "at":
            grids = [(_quoted(one), entry.shape) for one, entry in self._readable.entries.items()
                     if entry.type == GRID and entry.of in of]  # fmt: skip
            for shape in dict.fromkeys(shape for _, shape in grids):
                yield [_either(one for one, its in grids if its == shape), *map(self._index, shape)]
            return
        for count in range(function.least, len(function.args) + 1):
            args = function.args[-count:] if name == "says" else function.args[:count]
            made = SAID.of if args == (QUOTED,) else CHANGED if function.of and args else function.of
            known = name != "still" or self._readable.still
            few = not self._narrow or count < function.least + 2
            if known and few and (not made or made in of):
                yield from self._values(args, of, level)

    def _index(self, size: int) -> str:
        cells = min(size, MOST_CELLS)
        return self._any_of(f"below{cells}", [_quoted(str(one)) for one in range(cells)])

    def _values(
        self, args: Sequence[Argument], of: tuple[str, ...], level: int, strength: int = WEAKEST
    ) -> Iterator[list[str]]:
        """The ways to write several values; in a narrow grammar, constants are only beside what is none."""

        def refer(arg: Argument) -> str:
            if arg == QUOTED:
                return "word"
            if arg in (TEXT_NAME, GRID_NAME):  # grids are those of `distance`
                seen = [_quoted(name) for name in self._readable.viewpoints]
                return _either(one for one in self._names(arg.types[0], of) if arg == TEXT_NAME or one in seen)
            return self.value(arg.types, of if arg.of == ORDER or not self._narrow else arg.of, level, strength)

        plain = [*map(refer, args)]
        loose = [
            self._narrow and arg.takes(NUMBER, CONSTANT, LITERAL) for arg in args
        ]  # may be constants beside others
        either = [self._any_of(f"{one}orconstant", [one, "constant"]) if may_be else one
                  for one, may_be in zip(plain, loose, strict=True)]  # fmt: skip
        for place in [place for place in range(len(args)) if all(loose[:place])] or [0]:
            yield [*["constant"] * place, *plain[place : place + 1], *either[place + 1 :]]


def _steps(names: Sequence[str], right: str) -> str:
    """Operators with their right operand."""
    texts = {name: f'" {name} "' if name.isalpha() else f's "{name}" s' for name in names}
    ways = [f"{texts[name]} {'divisor' if OPERATORS[name].divides else right}" for name in names]
    return f"({' | '.join(ways)})"

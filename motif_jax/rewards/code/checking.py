"""Parses a reward program to a typed tree, and refuses what does not fit, with place and fix.

There is one method per side of an operator (V. Pratt, 1973).

    strongest first:  - (negative)   * /   + -   < <= > >= == !=   not   and   or

The tree has at most MOST_NODES nodes and MOST_LEVELS levels. A chain of equal operators, such as `a + b - c`, is one
level. Parentheses make no node, but count as a level, so recursion is bounded whatever the text is.

Each value is a number, a flag, a grid or a text. It is constant, of a moment (known before and after a step, such as
the hero's gold) or of a step (such as `event_gold`, what the step changed). A flag counts as 0 or 1 in arithmetic.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from motif_jax.config.table import shown
from motif_jax.envs.world import suggest
from motif_jax.rewards.code.grammar import FUNCTIONS, NUMERIC, OPERATORS, PREFIXES
from motif_jax.rewards.code.names import (
    CAPTION_ENTRY,
    CELLS,
    CONSTANT,
    FLAG,
    GRID,
    NUMBER,
    STEP,
    TEXTS,
    Entry,
    Expression,
    Program,
    Readable,
    last_of,
)
from motif_jax.rewards.code.tokens import COMPARISONS, MOST_LEVELS, MOST_NODES, ProgramError, Token, tokenize

LOWEST = 0  # weaker than all operators
MOST_NAMES = 12  # listed in an error
ADVICE = {  # where a value of another type is needed
    CELLS: ": put it into any(...) or count(...)",
    GRID: ": read a cell with at, or use count",
    TEXTS: ": compare it with ==, or use says",
    NUMBER: ": compare it, as in x > 0",
}


def check(text: str, readable: Readable) -> Program:
    """Parses and checks a program for a world; raises ProgramError."""
    parser = _Parser(tokenize(text), readable)
    root = parser.whole()
    if root.type not in NUMERIC:
        fix = "put it into any(...) or count(...)" if root.type == CELLS else "compare it with ==, or use says or at"
        raise ProgramError(root.place, f"a reward is a number or a flag, not a {root.type}: {fix}")
    still = readable.still if parser.compares else ()
    uses = Readable(
        {name: readable.entries[name] for name in sorted({*parser.read, *still})},
        {name: readable.viewpoints[name] for name in sorted(parser.viewed)},
        still,
    )
    return Program(text, root, parser.memories, uses)


class _Parser:
    def __init__(self, tokens: list[Token], readable: Readable):
        self._tokens, self._at = tokens, 0
        self._nodes = self._open = 0  # nodes so far; parentheses, calls and prefixes around the current token
        self._names, self._viewpoints, self._still = readable.entries, readable.viewpoints, readable.still
        self.memories, self.compares = 0, False
        self.read: set[str] = set()
        self.viewed: set[str] = set()

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _node(
        self, token: Token, value: Expression, args: tuple[Expression, ...] = (), strength: int = 0
    ) -> Expression:
        """The value as a node of the tree, of these parts."""
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise ProgramError(token.place, f"there are at most {MOST_NODES} numbers, names and operators: shorten it")
        levels = [one.levels + (number > 0 or one.strength != strength or not strength)
                  for number, one in enumerate(args)]  # fmt: skip
        _check_depth(max(levels, default=1), token)
        return value._replace(place=token.place, levels=max(levels, default=1), strength=strength)

    def whole(self) -> Expression:
        """The whole program."""
        if self._next.kind == "end":
            raise ProgramError(self._next.place, "the program is empty: write an expression such as gained(gold)")
        root = self._expression(LOWEST)
        if self._next.kind != "end":
            hints = {")": "this parenthesis was not opened", ",": "only the arguments of a function need commas"}
            hint = hints.get(self._next.symbol, "a program is one expression, without statements")
            raise ProgramError(self._next.place, f"expected an operator or the end, not {self._next}: {hint}")
        return root

    def _expression(self, lowest: int) -> Expression:
        """An expression up to the first operator that is not stronger than `lowest`."""
        left = self._operand()
        while (name := self._next.symbol) in OPERATORS and (strength := OPERATORS[name].strength) > lowest:
            token = self._take()
            right = self._expression(strength)
            if name in COMPARISONS and self._next.symbol in COMPARISONS:
                raise ProgramError(self._next.place, "a comparison has two sides: write 1 < x and x < 3, not 1 < x < 3")
            left = self._node(token, self._combined(token, left, right), (left, right), strength)
        return left

    def _operand(self) -> Expression:
        token = self._take()
        if token.kind == "name" and self._next.symbol == "(":
            return self._call(token)
        match token.kind:
            case "number":
                return self._node(token, Expression("number", NUMBER, CONSTANT, value=float(token.value)))
            case "text":
                return self._node(token, Expression("text", TEXTS, CONSTANT, text=str(token.value)))
            case "name":
                return self._node(token, self._name(token))
        if (name := token.symbol) in PREFIXES:
            self._enter(token)
            prefix = PREFIXES[name]
            inner = _typed(self._expression(prefix.strength - 1), prefix.takes, name)
            self._open -= 1
            value = Expression("negative" if name == "-" else name, prefix.result, inner.of, (inner,))
            return self._node(token, value, (inner,))
        if name == "(":
            self._enter(token)
            inner = self._expression(LOWEST)
            self._close("the parenthesis", token)
            return inner
        raise ProgramError(token.place, f"expected a number, a name or a function, not {token}")

    def _enter(self, token: Token) -> None:
        self._open += 1
        _check_depth(self._open, token)

    def _close(self, what: str, opened: Token) -> None:
        token, (line, column) = self._take(), opened.place
        if token.symbol != ")":
            opening = f"{what} of line {line}, column {column}"
            raise ProgramError(token.place, f"expected ')' to close {opening}, not {token}")
        self._open -= 1

    # ---- names and operators

    def _name(self, token: Token) -> Expression:
        name = str(token.value)
        if name in self._names:
            return self._read(name)
        if name in FUNCTIONS:
            raise ProgramError(token.place, f"{name} is a function: write {FUNCTIONS[name].usage}")
        names = sorted(self._names)
        fix = suggest(name, names, f"this world has {_listed(names)}")
        raise ProgramError(token.place, f"unknown name {shown(name)}: {fix}")

    def _read(self, name: str) -> Expression:
        self.read.add(name)
        entry = self._names[name]
        return Expression("read", entry.type, entry.of, text=name, entry=entry)

    def _combined(self, token: Token, left: Expression, right: Expression) -> Expression:
        """The value of an operator between operands."""
        name, operator = token.symbol, OPERATORS[token.symbol]
        if name not in COMPARISONS:
            ((types, _, result),) = operator.rules
            operands = _typed(left, types, name), _typed(right, types, name)
            if operator.divides and not _is_constant(right):
                raise ProgramError(right.place, "the divisor must be a number other than 0, such as x / 10")
            return Expression(name, result, last_of(*operands), operands)
        if type_ := operator.result(left.type, right.type):
            kind = f"text {name}" if left.type == TEXTS else name
            return Expression(kind, type_, last_of(left, right), (left, right))
        fix = "compare numbers, a grid with a number, or texts with =="
        if FLAG in (left.type, right.type):
            fix = "write x or not x for a flag x"
        elif CELLS in (left.type, right.type):
            fix = "put a comparison of a grid into any() or count()"
        raise ProgramError(token.place, f"{name} cannot compare a {left.type} with a {right.type}: {fix}")

    # ---- functions

    def _call(self, token: Token) -> Expression:
        name = str(token.value)
        if name not in FUNCTIONS:
            if name in self._names:
                raise ProgramError(token.place, f"{name} is a value and not a function: write {name}")
            raise ProgramError(token.place, f"unknown function {shown(name)}: {suggest(name, FUNCTIONS)}")
        self._enter(self._take())
        args: list[Expression] = []
        while self._next.symbol != ")":
            args.append(self._expression(LOWEST))
            if self._next.symbol != ",":
                break
            comma = self._take()
            if self._next.symbol == ")":
                raise ProgramError(comma.place, f"expected one more argument of {name} after the comma")
        self._close(f"the arguments of {name}", token)
        function = FUNCTIONS[name]
        if not function.least <= len(args) <= len(function.args):
            number = f"{len(args)} argument{'' if len(args) == 1 else 's'}"
            raise ProgramError(token.place, f"{name} is written as {function.usage}, not with {number}")
        special: dict[str, Any] = {"says": self._says, "at": self._cell, "distance": self._distance}
        return self._node(token, special.get(name, self._called)(token, *args), tuple(args))

    def _called(self, token: Token, *args: Expression) -> Expression:
        """The value of a function whose arguments the table describes."""
        name = str(token.value)
        function = FUNCTIONS[name]
        if name == "still":
            if not self._still:
                raise ProgramError(token.place, "this world has no values that still() could compare")
            self.compares = True
        for value, wanted in zip(args, function.args, strict=False):
            if _typed(value, wanted.types, name).of not in wanted.of:
                why = "a value that changes, not a constant"
                if value.of == STEP:
                    why = "a value of a moment, and this is already a change of the step: write it alone"
                raise ProgramError(value.place, f"{name} needs {why}")
        remembers = name in ("record", "once") or (name == "rose" and args[0].of == STEP)
        memory = self.memories if remembers else -1
        self.memories += remembers
        return Expression(name, function.result, function.of or last_of(*args), args, memory=memory)

    def _says(self, _: Token, *args: Expression) -> Expression:
        """The caption, or another text, contains a text."""
        *read, word = args
        if word.kind != "text" or not word.text.strip():
            raise ProgramError(word.place, 'says needs a text in double quotes, as in says("you kill")')
        text = read[0] if read else Expression("read", TEXTS, STEP, entry=CAPTION_ENTRY)
        if text.kind != "read" or text.type != TEXTS:
            raise ProgramError(text.place, f"says reads a text of the world, not a {text.type}")
        return Expression("says", FLAG, text.of, (text,), text=word.text)

    def _grid(self, token: Token, grid: Expression) -> Entry:
        """The entry of the grid that is the first argument."""
        if grid.type == GRID and grid.entry:
            return grid.entry
        grids = [name for name, entry in self._names.items() if entry.type == GRID]
        hint = f": choose from {_listed(grids)}" if grids else ", and this world has none"
        raise ProgramError(grid.place, f"{token.value} reads a grid by its name{hint}")

    def _cell(self, token: Token, grid: Expression, *places: Expression) -> Expression:
        """A cell of a grid."""
        entry, name = self._grid(token, grid), grid.text
        if len(places) != len(entry.shape):
            usage = ", ".join([name, *"ijk"[: len(entry.shape)]])
            raise ProgramError(token.place, f"{name} has {len(entry.shape)} axes: write at({usage})")
        for place, size in zip(places, entry.shape, strict=True):
            if place.kind != "number" or not place.value.is_integer() or not 0 <= place.value < size:
                raise ProgramError(place.place, f"an index of this axis of {name} is a number from 0 to {size - 1}")
        cell = tuple(int(place.value) for place in places)
        text = f"at({', '.join(map(str, (name, *cell)))})"
        return Expression("read", NUMBER, entry.of, text=text, entry=entry._replace(type=NUMBER, cell=cell))

    def _distance(self, token: Token, grid: Expression, wanted: Expression) -> Expression:
        """Steps to the nearest cell of a value."""
        self._grid(token, grid)
        if grid.text not in self._viewpoints:
            known = f": choose from {_listed(self._viewpoints)}" if self._viewpoints else ""
            why = f"the world does not say where the agent is in {grid.text} (`viewpoints`){known}"
            raise ProgramError(grid.place, why)
        viewpoint = self._viewpoints[grid.text]
        self.viewed.add(grid.text)
        row, column = (
            self._read(place) if isinstance(place, str) else Expression("number", NUMBER, CONSTANT, value=float(place))
            for place in (viewpoint.row, viewpoint.column)
        )
        args = (grid, _typed(wanted, NUMERIC, "distance"), row, column)
        return Expression("distance", NUMBER, last_of(*args), args, viewpoint=viewpoint)


def _typed(value: Expression, types: tuple[str, ...], of_what: str) -> Expression:
    """The value, if it is of one of these types, which a function or an operator takes."""
    if value.type not in types:
        if CELLS in types:
            usage = FUNCTIONS[of_what].usage
            raise ProgramError(value.place, f"{of_what} needs the comparison of a grid, as in {usage}")
        wanted = "number" if NUMBER in types else "flag, such as x > 0"
        hint = ADVICE.get(value.type, "")
        raise ProgramError(value.place, f"{of_what} needs a {wanted}, not a {value.type}{hint}")
    return value


def _is_constant(divisor: Expression) -> bool:
    """Whether a divisor is a number other than 0, perhaps a negative one."""
    if divisor.kind == "negative":
        return _is_constant(divisor.args[0])
    return divisor.kind == "number" and divisor.value != 0


def _check_depth(levels: int, token: Token) -> None:
    if levels > MOST_LEVELS:
        raise ProgramError(token.place, f"expressions are at most {MOST_LEVELS} levels deep: write a flatter one")


def _listed(names: Collection[str]) -> str:
    """Some of the names, with the number of the others."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join([*names][:MOST_NAMES])}{more}" if names else "no names"

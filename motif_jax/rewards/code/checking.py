"""Gives types to the tree of a reward program, and refuses what does not fit, with place and fix.

Each value is a number, a flag, a grid or a text. It is constant, of a moment (known before and after a step, such as
the hero's gold) or of a step (such as `event_gold`, what the step changed). A flag counts as 0 or 1 in arithmetic.
"""

from __future__ import annotations

from collections.abc import Collection

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
from motif_jax.rewards.code.parsing import Node, parse
from motif_jax.rewards.code.tokens import COMPARISONS, ProgramError

MOST_NAMES = 12  # listed in an error
ADVICE = {  # where a value of another type is needed
    CELLS: ": put it into any(...) or count(...)",
    GRID: ": read a cell with at, or use count",
    TEXTS: ": compare it with ==, or use says",
    NUMBER: ": compare it, as in x > 0",
}


def check(text: str, readable: Readable) -> Program:
    """Parses and checks a program for a world; raises ProgramError."""
    tree = parse(text)
    checker = _Checker(readable)
    root = checker.expression(tree)
    if root.type not in NUMERIC:
        fix = "put it into any(...) or count(...)" if root.type == CELLS else "compare it with ==, or use says or at"
        raise ProgramError(tree.place, f"a reward is a number or a flag, not a {root.type}: {fix}")
    still = readable.still if checker.compares else ()
    uses = Readable(
        {name: readable.entries[name] for name in sorted({*checker.read, *still})},
        {name: readable.viewpoints[name] for name in sorted(checker.viewed)},
        still,
    )
    return Program(text, root, checker.memories, uses)


class _Checker:
    def __init__(self, readable: Readable):
        self._names, self._viewpoints, self._still = readable.entries, readable.viewpoints, readable.still
        self.memories, self.compares = 0, False
        self.read: set[str] = set()
        self.viewed: set[str] = set()

    def expression(self, node: Node) -> Expression:
        """The typed tree of a node."""
        match node.kind:
            case "number":
                return Expression("number", NUMBER, CONSTANT, value=float(node.value))
            case "text":
                return Expression("text", TEXTS, CONSTANT, text=str(node.value))
            case "name":
                return self._name(node)
            case "call":
                return self._call(node)
            case "prefix":
                name = str(node.value)
                inner = self._operand(node.args[0], PREFIXES[name].takes, name)
                return Expression("negative" if name == "-" else name, PREFIXES[name].result, inner.of, (inner,))
        return self._infix(node)

    def _name(self, node: Node) -> Expression:
        name = str(node.value)
        if name not in self._names:
            if name in FUNCTIONS:
                raise ProgramError(node.place, f"{name} is a function: write {FUNCTIONS[name].usage}")
            names = sorted(self._names)
            fix = suggest(name, names, f"this world has {_listed(names)}")
            raise ProgramError(node.place, f"unknown name {shown(name)}: {fix}")
        return self._read(name)

    def _read(self, name: str) -> Expression:
        self.read.add(name)
        entry = self._names[name]
        return Expression("read", entry.type, entry.of, entry=entry)

    # ---- operators

    def _operand(self, node: Node, types: tuple[str, ...], of_what: str) -> Expression:
        """A value of one of these types, for a function or an operator."""
        value = self.expression(node)
        if value.type not in types:
            if CELLS in types:
                usage = FUNCTIONS[of_what].usage
                raise ProgramError(node.place, f"{of_what} needs the comparison of a grid, as in {usage}")
            wanted = "number" if NUMBER in types else "flag, such as x > 0"
            hint = ADVICE.get(value.type, "")
            raise ProgramError(node.place, f"{of_what} needs a {wanted}, not a {value.type}{hint}")
        return value

    def _infix(self, node: Node) -> Expression:
        name = str(node.value)
        if name in COMPARISONS:
            return self._comparison(node, name)
        ((types, _, result),) = OPERATORS[name].rules
        operands = tuple(self._operand(one, types, name) for one in node.args)
        if OPERATORS[name].divides and not _constant(node.args[1]):
            raise ProgramError(node.args[1].place, "the divisor must be a number other than 0, such as x / 10")
        return Expression(name, result, last_of(*operands), operands)

    def _comparison(self, node: Node, operator: str) -> Expression:
        left, right = (self.expression(one) for one in node.args)
        if type_ := OPERATORS[operator].result(left.type, right.type):
            kind = f"text {operator}" if left.type == TEXTS else operator
            return Expression(kind, type_, last_of(left, right), (left, right))
        fix = "compare numbers, a grid with a number, or texts with =="
        if FLAG in (left.type, right.type):
            fix = "write x or not x for a flag x"
        elif CELLS in (left.type, right.type):
            fix = "put a comparison of a grid into any() or count()"
        raise ProgramError(node.place, f"{operator} cannot compare a {left.type} with a {right.type}: {fix}")

    # ---- functions

    def _call(self, node: Node) -> Expression:
        name = str(node.value)
        if name not in FUNCTIONS:
            if name in self._names:
                raise ProgramError(node.place, f"{name} is a value and not a function: write {name}")
            raise ProgramError(node.place, f"unknown function {shown(name)}: {suggest(name, FUNCTIONS)}")
        function = FUNCTIONS[name]
        if not function.least <= len(node.args) <= len(function.args):
            number = f"{len(node.args)} argument{'' if len(node.args) == 1 else 's'}"
            raise ProgramError(node.place, f"{name} is written as {function.usage}, not with {number}")
        if name in ("says", "at", "distance"):
            return {"says": self._says, "at": self._at, "distance": self._distance}[name](node)
        if name == "still":
            if not self._still:
                raise ProgramError(node.place, "this world has no values that still() could compare")
            self.compares = True
        args = []
        for one, wanted in zip(node.args, function.args, strict=False):
            args.append(value := self._operand(one, wanted.types, name))
            if value.of not in wanted.of:
                why = "a value that changes, not a constant"
                if value.of == STEP:
                    why = "a value of a moment, and this is already a change of the step: write it alone"
                raise ProgramError(one.place, f"{name} needs {why}")
        remembers = name in ("record", "once") or (name == "rose" and args[0].of == STEP)
        memory = self.memories if remembers else -1
        self.memories += remembers
        return Expression(name, function.result, function.of or last_of(*args), tuple(args), memory=memory)

    def _says(self, node: Node) -> Expression:
        """The caption, or another text, contains a text."""
        *read, word = node.args
        if word.kind != "text" or not str(word.value).strip():
            raise ProgramError(word.place, 'says needs a text in double quotes, as in says("you kill")')
        text = Expression("read", TEXTS, STEP, entry=CAPTION_ENTRY)
        if read:
            text = self.expression(read[0])
            if text.kind != "read" or text.type != TEXTS:
                raise ProgramError(read[0].place, f"says reads a text of the world, not a {text.type}")
        return Expression("says", FLAG, text.of, (text,), text=str(word.value))

    def _grid(self, node: Node) -> tuple[str, Entry]:
        """The name and the entry of the grid that is the first argument."""
        first = node.args[0]
        grid = self._name(first) if first.kind == "name" else None
        if grid is None or grid.type != GRID or grid.entry is None:
            grids = [name for name, entry in self._names.items() if entry.type == GRID]
            hint = f": choose from {_listed(grids)}" if grids else ", and this world has none"
            raise ProgramError(first.place, f"{node.value} reads a grid by its name{hint}")
        return str(first.value), grid.entry

    def _at(self, node: Node) -> Expression:
        """A cell of a grid."""
        name, entry = self._grid(node)
        sizes, places = entry.shape, node.args[1:]
        if len(places) != len(sizes):
            raise ProgramError(
                node.place, f"{name} has {len(sizes)} axes: write at({', '.join([name, *'ijk'[: len(sizes)]])})"
            )
        index = []
        for place, size in zip(places, sizes, strict=True):
            number = place.value if place.kind == "number" else -1.0
            if not (isinstance(number, float) and number.is_integer() and 0 <= number < size):
                raise ProgramError(place.place, f"an index of this axis of {name} is a number from 0 to {size - 1}")
            index.append(int(number))
        return Expression("read", NUMBER, entry.of, entry=entry._replace(type=NUMBER, cell=tuple(index)))

    def _distance(self, node: Node) -> Expression:
        """Steps to the nearest cell of a value."""
        name, entry = self._grid(node)
        if name not in self._viewpoints:
            known = f": choose from {_listed(self._viewpoints)}" if self._viewpoints else ""
            raise ProgramError(
                node.args[0].place, f"the world does not say where the agent is in {name} (`viewpoints`){known}"
            )
        viewpoint = self._viewpoints[name]
        self.viewed.add(name)
        value = self._operand(node.args[1], NUMERIC, "distance")
        row, column = (
            self._read(place) if isinstance(place, str) else Expression("number", NUMBER, CONSTANT, value=float(place))
            for place in (viewpoint.row, viewpoint.column)
        )
        args = (Expression("read", GRID, entry.of, entry=entry), value, row, column)
        return Expression("distance", NUMBER, last_of(*args), args, viewpoint=viewpoint)


def _constant(node: Node) -> bool:
    """Whether a divisor is a number other than 0, perhaps a negative one."""
    if node.kind == "prefix" and node.value == "-":
        return _constant(node.args[0])
    return node.kind == "number" and node.value != 0


def _listed(names: Collection[str]) -> str:
    """Some of the names, with the number of the others."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join([*names][:MOST_NAMES])}{more}" if names else "no names"

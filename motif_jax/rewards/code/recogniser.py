"""Recognises beginnings of reward programs: whether a text so far can still become a program that `check` accepts.

A state is what a parser has read: the operators, calls and parentheses that are open around the current place, from
the inside out, and there either an operand or nothing yet. Whether it can be completed is a search over such states:
the operand ends here and becomes a part of what is around it, or an operator follows, with a right side that is written
from nothing. What can be written from nothing, with the fewest nodes and levels, is computed once per world. So a
terminal is refused if and only if no completion exists; `complete` writes the shortest. Numbers are spelt as in
spelling.py.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from motif_jax.rewards.code import grammar
from motif_jax.rewards.code.grammar import FUNCTIONS, LITERAL, NAME, NEGATED, NUMERIC, OPERATORS, PREFIXES, WORD, ZERO
from motif_jax.rewards.code.names import FLAG, GRID, NUMBER, ORDER, STEP, TEXTS, Readable
from motif_jax.rewards.code.tokens import LONGEST_WORD, MOST_LEVELS, MOST_NODES

NEVER = 10**6  # nodes: there is no completion
CHANGED = len(ORDER)  # what a value belongs to that a narrow grammar has in no argument of `once` and its like
DUE, ONE_MORE, NO_MORE = "due", "one more", "no more"  # an operand; after an argument: whether more may follow in need
STRENGTHS = sorted({operator.strength for operator in OPERATORS.values()}, reverse=True)
STRONGEST = 9  # any operator may follow
KINDS = [*dict.fromkeys(OPERATORS.values())]
LITERALS = [(NUMBER, ZERO), (NUMBER, LITERAL), (TEXTS, WORD), (TEXTS, grammar.BLANK)]  # kind, which is the type; form


class Sort(NamedTuple):
    """The type of an operand, and whether it belongs to a moment or a step."""

    type: str
    of: int  # in ORDER, or CHANGED
    form: str = ""  # see grammar.py


class Operand(NamedTuple):
    """An operand in a program."""

    sort: Sort
    levels: int = 1
    strength: int = 0  # of its operator, as in checking.py
    bound: int = STRONGEST  # operators up to this strength may follow


Costs = dict[Sort, list[tuple[int, int]]]  # nodes and levels of the shortest and of the flattest


class Place:
    """A place in a program, by what is open around it; equal places of a world are the same object."""

    def __init__(self, kind: str = "root", name: str = "", below: Place | None = None, more: tuple = ()):
        self.kind = kind  # "root", "group", "function" (its parenthesis is due), "call", "prefix" or "infix"
        self.name, self.more, self._inner = name, more, dict[tuple, Place]()
        self.below: Place = below or self  # the place around this one
        self.known = dict[Operand | str, tuple[int, int]]()  # see `Grammar._least`
        self.open: int = (below.open if below else 0) + (kind in ("group", "call", "prefix"))
        self.lowest = 0  # operators must be stronger to be applied here
        if kind == "prefix":
            self.lowest = PREFIXES[name].strength - 1
        if kind == "infix":
            self.lowest = OPERATORS[name].strength

    def inside(self, kind: str, name: str = "", more: tuple = ()) -> Place:
        """A place within this one. `more`: the left operand of an operator; the arguments of a call so far."""
        key = (kind, name, more)
        if key not in self._inner:
            self._inner[key] = Place(kind, name, self, more)
        return self._inner[key]


class Arguments(NamedTuple):
    """The arguments of a call so far."""

    number: int = 0
    first: str = ""  # the form of the first one, if it is a grid or a text
    of: int = 0
    levels: int = 0

    def plus(self, operand: Operand) -> Arguments:
        """These arguments and one more."""
        names = not self.number and operand.sort.type in (GRID, TEXTS)
        first = operand.sort.form if names else self.first
        return Arguments(self.number + 1, first, max(self.of, operand.sort.of), max(self.levels, operand.levels))


class State(NamedTuple):
    """A program so far."""

    place: Place
    operand: Operand | None = None  # at the place; None: one is due
    nodes: int = 0  # with those of operators and calls that are still open


class Terminal(NamedTuple):
    """A piece of a program."""

    kind: str  # "number", "text", "name", "function", "symbol" or "end"
    text: str = ""  # of a number or text the form


END = Terminal("end")


class Grammar:
    """The language over the names of one world."""

    def __init__(self, readable: Readable, most_nodes: int = MOST_NODES, narrow: bool = False):
        """`narrow`: without what adds no meaning.

        So nothing is computed of constants alone, no parenthesis follows another one, texts in quotes are only in
        `says`, and the argument of a function of changes has neither another one nor a sum or product with a flag.
        """
        self._readable, self.most_nodes, self._narrow = readable, most_nodes, narrow
        self.names = dict[str, Sort]()
        grids = dict[object, str]()  # of those with the same axes and place of the agent, the first
        for name, entry in readable.entries.items():
            like = grids.setdefault((entry.type, entry.shape, readable.viewpoints.get(name)), name)
            if len(name) <= LONGEST_WORD:
                form = {GRID: like, TEXTS: NAME}.get(entry.type, "")
                self.names[name] = Sort(entry.type, ORDER.index(entry.of), form)
        symbols = [Terminal("symbol", text) for text in ("(", ")", ",", *OPERATORS, "not")]
        words = [Terminal("name", name) for name in self.names] + [Terminal("function", name) for name in FUNCTIONS]
        self._all = (END, *symbols, *(Terminal(*literal) for literal in LITERALS), *words)
        self.start = State(Place())
        self._atoms, self._expressions = functools.cache(self._find_atoms), functools.cache(self._find_expressions)
        self._steps = functools.cache(self._find_steps)

    # ---- what is written

    def following(self, state: State) -> Iterator[tuple[Terminal, State]]:
        """The terminals after which the program can still be completed, with the states after them."""
        for terminal in self._all:
            new = self._after(state, terminal)
            if new and self._completed(new, self.most_nodes) <= self.most_nodes:
                yield terminal, new

    def shortest(self, state: State) -> int:
        """The nodes of the shortest completion; NEVER if there is none."""
        nodes, best = NEVER, self._completed(state, self.most_nodes)
        while best < nodes:
            nodes, best = best, self._completed(state, best - 1)
        return nodes

    def _completed(self, state: State, most: int) -> int:
        """The nodes of a completion with at most `most` nodes; NEVER if there is none."""
        return state.nodes + self._least(state.place, state.operand or DUE, most - state.nodes)

    def limit(self, state: State) -> int:
        """The size of the axis if the next token is a cell's index, otherwise 0."""
        place = state.place
        while place.kind == "group":
            place = place.below
        if place.kind == "call" and place.name == "at" and place.more[0].number:
            return self._shape(place.more[0].first)[place.more[0].number - 1]
        return 0

    def _shape(self, grid: str) -> tuple[int, ...]:
        return self._readable.entries[grid].shape

    def complete(self, state: State) -> list[Terminal]:
        """Terminals that complete a program, the last of which is END."""
        terminals = list[Terminal]()
        most = self.shortest(state)
        while END not in terminals:
            # What ends something comes first, and a parenthesis opens only at need.
            good = [one for one in self.following(state) if self._completed(one[1], most) <= most]
            terminal, state = min(good, key=lambda one: one[0].text == "(")
            terminals.append(terminal)
        return terminals

    def _after(self, state: State, terminal: Terminal) -> State | None:
        place, operand, nodes = state
        text = terminal.text
        if operand is None:
            return self._begin(state, terminal)
        while place.lowest >= (OPERATORS[text].strength if text in OPERATORS else 1):
            if not (reduced := self._reduce(place, operand)):
                return None
            place, operand = place.below, reduced
        if text in OPERATORS:
            return State(place.inside("infix", text, (operand,)), None, nodes + 1)
        if terminal == END and place.kind == "root" and self._is_reward(operand.sort):
            return State(place, operand, nodes)
        if text == ")" and place.kind == "group":
            return State(place.below, operand._replace(bound=STRONGEST), nodes)
        if text in (",", ")") and place.kind == "call" and (more := self._argument(place, operand)):
            return State(more, None, nodes) if text == "," else self._called(more, nodes)
        return None

    def _begin(self, state: State, terminal: Terminal) -> State | None:
        """An operand begins, or a call without arguments ends."""
        place, (kind, text), nodes = state.place, terminal, state.nodes
        if place.kind == "function":
            if text != "(" or place.open == MOST_LEVELS:
                return None
            return State(place.below.inside("call", place.name, (Arguments(),)), None, nodes + 1)
        if terminal in LITERALS:
            only_zero = text == LITERAL and self.limit(state) == 1
            return None if only_zero else State(place, Operand(Sort(kind, 0, text)), nodes + 1)
        if kind == "name":
            return State(place, Operand(self.names[text]), nodes + 1)
        if kind == "function":
            return State(place.inside("function", text), None, nodes)
        if text == ")" and place.kind == "call" and not place.more[0].number:
            return self._called(place, nodes)
        if place.open == MOST_LEVELS:
            return None
        if text == "(":
            again = self._narrow and place.kind in ("group", "call")
            return None if again else State(place.inside("group"), None, nodes)
        return State(place.inside("prefix", text), None, nodes + 1) if text in PREFIXES else None

    def _called(self, place: Place, nodes: int) -> State | None:
        """After the parenthesis that closes a call."""
        result = self._result(place.name, place.more[0])
        return State(place.below, result, nodes) if result else None

    # ---- types

    def _reduce(self, place: Place, operand: Operand) -> Operand | None:
        """The value of an operator with its last operand."""
        if place.kind == "infix":
            return self._combined(OPERATORS[place.name], place.more[0], operand)
        prefix, sort, minus = PREFIXES[place.name], operand.sort, place.name == "-"
        if sort.type not in prefix.takes or operand.levels == MOST_LEVELS:
            return None
        if self._narrow and not sort.of and (not minus or sort.form == NEGATED):
            return None
        form = NEGATED if minus and sort.form in (LITERAL, NEGATED) else ""
        bound = min(prefix.strength - 1, operand.bound)
        return Operand(Sort(prefix.result, sort.of, form), operand.levels + 1, 0, bound)

    def _is_reward(self, sort: Sort) -> bool:
        return sort.type in NUMERIC and (sort.of > 0 or not self._narrow)

    def _combined(self, operator: grammar.Operator, left: Operand, right: Operand) -> Operand | None:
        type_ = operator.result(left.sort.type, right.sort.type)
        levels = max(left.levels + (left.strength != operator.strength), right.levels + 1)
        if self._narrow and (left.sort.type == TEXTS or not left.sort.of + right.sort.of):
            return None
        if not type_ or levels > MOST_LEVELS or (operator.divides and right.sort.form not in (LITERAL, NEGATED)):
            return None
        bound = min(operator.strength, right.bound)  # in `a - not b`, a comparison that follows would be of b
        counts = self._narrow and type_ == NUMBER and FLAG in (left.sort.type, right.sort.type)
        of = CHANGED if counts else max(left.sort.of, right.sort.of)
        return Operand(Sort(type_, of), levels, operator.strength, bound)

    def _argument(self, place: Place, operand: Operand) -> Place | None:
        """A call with one more argument."""
        more = place.more[0]
        takes = self._takes(place.name, more, operand.sort)
        return place.below.inside("call", place.name, (more.plus(operand),)) if takes else None

    def _fewest(self, name: str, more: Arguments) -> int:
        """The fewest arguments of a call that begins so."""
        if name == "at" and more.number:
            return 1 + len(self._shape(more.first))
        return 2 if name == "says" and more.first == NAME else FUNCTIONS[name].least

    def _takes(self, name: str, more: Arguments, sort: Sort) -> bool:
        """Whether a function takes a value as its next argument."""
        place, function = more.number, FUNCTIONS[name]
        if place == len(function.args):
            return False
        if name == "says":  # the first of its two arguments can be left out
            return sort.form == WORD if place and more.first == NAME else not place and sort.form in (NAME, WORD)
        wanted = function.args[place]
        takes = wanted.of == ORDER if sort.of == CHANGED else ORDER[sort.of] in wanted.of
        if sort.type not in wanted.types or not takes or (wanted.forms and sort.form not in wanted.forms):
            return False
        if name == "distance" and not place:
            return sort.form in self._readable.viewpoints
        shape = self._shape(more.first or sort.form) if name == "at" else ()
        return name != "at" or (0 not in shape and place <= len(shape))

    def _result(self, name: str, more: Arguments) -> Operand | None:
        """The value of a call with these arguments."""
        function = FUNCTIONS[name]
        of = ORDER.index(function.of) if function.of else more.of
        if more.levels == MOST_LEVELS or more.number < self._fewest(name, more):
            return None
        if name == "still" and not self._readable.still:
            return None
        if name == "says" and more.number == 1:
            of = ORDER.index(STEP)
        if name == "distance":
            viewpoint = self._readable.viewpoints[more.first]
            named = [one for one in (viewpoint.row, viewpoint.column) if isinstance(one, str)]
            of = max([of, *(ORDER.index(self._readable.entries[one].of) for one in named)])
        if self._narrow and not of:
            return None
        if self._narrow and function.of and function.args:
            of = CHANGED
        return Operand(Sort(function.result, of), more.levels + 1)

    # ---- completions

    def _least(self, place: Place, operand: Operand | str, most: int) -> int:
        """The nodes of a completion that adds at most `most` nodes; NEVER if there is none.

        It is the first one that is found, so that most questions are answered by a few steps.
        """
        if place.kind == "root" and isinstance(operand, Operand) and self._is_reward(operand.sort):
            return 0
        possible, impossible = place.known.get(operand, (NEVER, -1))
        if possible <= most or most <= impossible:
            return possible if possible <= most else NEVER
        for nodes, at, then in self._ways(place, operand):
            if nodes <= most and (total := nodes + self._least(at, then, most - nodes)) <= most:
                place.known[operand] = (total, impossible)
                return total
        place.known[operand] = (possible, most)
        return NEVER

    def _ways(self, place: Place, operand: Operand | str) -> Iterator[tuple[int, Place, Operand | str]]:
        """How a program can go on: the nodes that this adds, and where it then is."""
        opens = MOST_LEVELS - place.open
        if operand == DUE:
            if place.kind == "function":
                if opens:
                    yield 1, place.below.inside("call", place.name, (Arguments(),)), DUE
                return
            if place.kind == "call" and not place.more[0].number:
                yield from self._results(place)
            for sort, nodes, levels in _each(self._atoms(opens)):
                yield nodes, place, Operand(sort, levels)
        elif isinstance(operand, str):
            yield from self._results(place)
            more = place.more[0]
            needed = more.number < self._fewest(place.name, more)
            if needed or operand == ONE_MORE:  # one more argument than needed may be what makes a value change
                for sort, nodes, levels in _each(self._expressions(opens, 0)):
                    added = self._argument(place, Operand(sort, levels)) if needed or sort.of > more.of else None
                    if added:
                        yield nodes, added, operand if needed else NO_MORE
        else:
            yield from self._endings(place, operand)
            for strength in STRENGTHS:
                if place.lowest < strength <= operand.bound:
                    for sort, nodes, levels in self._steps(strength, opens, operand.sort.type, operand.sort.of):
                        levels = max(operand.levels + (operand.strength != strength), levels)
                        if levels <= MOST_LEVELS:
                            # A second operator of the same strength could only repeat the first one's work.
                            yield nodes, place, Operand(sort, levels, strength, strength - 1)

    def _endings(self, place: Place, operand: Operand) -> Iterator[tuple[int, Place, Operand | str]]:
        """As `_ways`, if no operator follows the operand within this place."""
        if place.kind == "group":
            yield 0, place.below, operand._replace(bound=STRONGEST)
        elif place.kind == "call":
            if added := self._argument(place, operand):
                yield 0, added, ONE_MORE
        elif place.kind != "root" and (reduced := self._reduce(place, operand)):
            yield 0, place.below, reduced

    def _results(self, place: Place) -> Iterator[tuple[int, Place, Operand]]:
        """As `_ways`, if a call ends."""
        if result := self._result(place.name, place.more[0]):
            yield 0, place.below, result

    # ---- from nothing

    def _find_atoms(self, opens: int) -> Costs:
        """Operands without a binary operator at the top, within which `opens` parentheses may be opened."""
        atoms = Costs()
        for sort in (*(Sort(kind, 0, form) for kind, form in LITERALS), *self.names.values()):
            _keep(atoms, sort, 1, 1)
        if not opens:
            return atoms
        inner = self._expressions(opens - 1, 0)
        for sort, nodes, levels in _each(inner):
            _keep(atoms, sort, nodes, levels)
        minus = Place("prefix", "-")  # `not` makes nothing new
        for sort, nodes, levels in _each(self._expressions(opens - 1, minus.lowest)):
            if value := self._reduce(minus, Operand(sort, levels)):
                _keep(atoms, value.sort, nodes + 1, value.levels)
        for name in FUNCTIONS:
            self._add_calls(atoms, name, inner)
        return atoms

    def _add_calls(self, costs: Costs, name: str, inner: Costs) -> None:
        """The calls of a function whose arguments come from `inner`."""
        calls = {(Arguments(), 1)}
        for _ in range(1 + len(FUNCTIONS[name].args)):
            longer = set()
            for more, nodes in calls:
                if result := self._result(name, more):
                    _keep(costs, result.sort, nodes, result.levels)
                if more.number < self._fewest(name, more):
                    longer |= {(more.plus(Operand(sort, levels)), nodes + added) for sort, added, levels in _each(inner)
                               if self._takes(name, more, sort)}  # fmt: skip
            calls = longer

    def _find_expressions(self, opens: int, lowest: int) -> Costs:
        """Expressions whose operators are stronger than `lowest`."""
        cheapest = {sort: [*costs] for sort, costs in self._atoms(opens).items()}
        for strength in (one for one in STRENGTHS if one > lowest):
            rights = _each(self._expressions(opens, strength))
            for sort, nodes, levels in _each(cheapest):
                for value, added in self._after_operator(Operand(sort, levels), strength, rights):
                    _keep(cheapest, value.sort, nodes + added, value.levels)
        return cheapest

    def _after_operator(
        self, left: Operand, strength: int, rights: Iterable[tuple[Sort, int, int]]
    ) -> Iterator[tuple[Operand, int]]:
        """Values of an operand with an operator of this strength and one of these right sides, and the nodes added."""
        for operator in (operator for operator in KINDS if operator.strength == strength):
            for sort, nodes, levels in rights:
                if value := self._combined(operator, left, Operand(sort, levels)):
                    yield value, nodes + 1

    def _find_steps(self, strength: int, opens: int, type_: str, of: int) -> list[tuple[Sort, int, int]]:
        """The results of one operator with such a left operand: the sort, and nodes and levels of the right operand."""
        values, left = Costs(), Operand(Sort(type_, of), 0)  # one that changes neither type nor `of` is of no use
        for value, nodes in self._after_operator(left, strength, _each(self._expressions(opens, strength))):
            if value.sort != left.sort:
                _keep(values, value.sort, nodes, value.levels)
        return _each(values)


def _each(costs: Costs) -> list[tuple[Sort, int, int]]:
    return [(sort, nodes, levels) for sort, pairs in costs.items() for nodes, levels in pairs]


def _keep(costs: Costs, sort: Sort, nodes: int, levels: int) -> None:
    """Adds a pair of nodes and levels, unless a known pair is no larger in both; drops pairs that it replaces."""
    known = costs.setdefault(sort, [])
    if not any(fewer <= nodes and flatter <= levels for fewer, flatter in known):
        known[:] = [one for one in known if nodes > one[0] or levels > one[1]] + [(nodes, levels)]

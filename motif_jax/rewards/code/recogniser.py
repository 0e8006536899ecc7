"""Recognises beginnings of reward programs: whether a text so far can still become a program that `check` accepts.

A state is what a parser has read: the operators, calls and parentheses that are open around the current place, from
the inside out, and there either an operand or nothing yet. Each open place ends with some value, which the place around
it takes. The values with which it can end, with the fewest nodes and levels, do not depend on what is around it, so
they are computed once per world; the shortest completion is the minimum over these, place by place. So a terminal is
refused if and only if no completion exists; `complete` writes the shortest. A `Speller` does the same for characters,
and a `ProgramGuide` for the tokens of a language model.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from motif_jax.rewards.code.grammar import (
    BLANK,
    FUNCTIONS,
    LITERAL,
    MOST_CHARACTERS,
    MOST_LEVELS,
    MOST_NODES,
    NAMED,
    NEGATED,
    NUMERIC,
    OPERATORS,
    ORDER,
    PREFIXES,
    WORD,
    ZERO,
    Operator,
)
from motif_jax.rewards.code.names import FLAG, GRID, NUMBER, STEP, TEXTS, Readable
from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser

NEVER = 10**6  # nodes: there is no completion
CHANGED = len(ORDER)  # what a value belongs to that a narrow grammar has in no argument of `once` and its like
STRENGTHS = sorted({operator.strength for operator in OPERATORS.values()}, reverse=True)
STRONGEST = 9  # any operator may follow
LITERALS = [(NUMBER, ZERO), (NUMBER, LITERAL), (TEXTS, WORD), (TEXTS, BLANK)]  # kind, which is the type; form


class Sort(NamedTuple):
    """The type of an operand, and whether it belongs to a moment or a step."""

    type: str
    of: int  # in ORDER, or CHANGED
    form: str = ""  # see grammar.py


class Operand(NamedTuple):
    """An operand in a program."""

    sort: Sort
    levels: int = 1
    strength: int = 0  # of its operator, as in grammar.py
    bound: int = STRONGEST  # operators up to this strength may follow


Costs = dict[Sort, list[tuple[int, int]]]  # nodes and levels of the shortest and of the flattest
Values = list[tuple[Operand, int]]  # with the nodes that they add


class Arguments(NamedTuple):
    """The arguments of a call so far."""

    number: int = 0
    first: str = ""  # the form of the first one, if it is a grid or a text
    of: int = 0
    levels: int = 0


class Place:
    """A place in a program, by what is open around it; equal places of a world are the same object."""

    def __init__(self, kind: str = "root", name: str = "", below: Place | None = None, more: Any = None):
        self.kind = kind  # "root", "group", "function" (its parenthesis is due), "call", "prefix" or "infix"
        self.name, self.more, self._inner = name, more, dict[tuple, Place]()
        self.below: Place = below or self  # the place around this one
        self.known = dict[Operand | None, int]()  # see `Grammar._least`
        self.open: int = (below.open if below else 0) + (kind in ("group", "call", "prefix"))
        self.lowest = 0  # operators must be stronger to be applied here
        if kind == "prefix":
            self.lowest = PREFIXES[name].strength - 1
        if kind == "infix":
            self.lowest = OPERATORS[name].strength

    def inside(self, kind: str, name: str = "", more: Any = None) -> Place:
        """A place within this one. `more`: the left operand of an operator; the `Arguments` of a call so far."""
        key = (kind, name, more)
        if key not in self._inner:
            self._inner[key] = Place(kind, name, self, more)
        return self._inner[key]


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
            form = {GRID: like, TEXTS: NAMED}.get(entry.type, "")
            self.names[name] = Sort(entry.type, ORDER.index(entry.of), form)
        symbols = [Terminal("symbol", text) for text in ("(", ")", ",", *OPERATORS, "not")]
        words = [Terminal("name", name) for name in self.names] + [Terminal("function", name) for name in FUNCTIONS]
        self._all = (END, *symbols, *(Terminal(*literal) for literal in LITERALS), *words)
        self.start = State(Place())
        self._atoms, self._values = functools.cache(self._find_atoms), functools.cache(self._find_values)
        self._calls, self._steps = functools.cache(self._find_calls), functools.cache(self._find_steps)

    # ---- what is written

    def following(self, state: State) -> Iterator[tuple[Terminal, State]]:
        """The terminals after which the program can still be completed, with the states after them."""
        for terminal in self._all:
            new = self._after(state, terminal)
            if new and self.shortest(new) <= self.most_nodes:
                yield terminal, new

    def shortest(self, state: State) -> int:
        """The nodes of the shortest completion; NEVER or more if there is none."""
        return state.nodes + self._least(state.place, state.operand)

    def limit(self, state: State) -> int:
        """The size of the axis if the next token is a cell's index, otherwise 0."""
        place = state.place
        while place.kind == "group":
            place = place.below
        if place.kind == "call" and place.name == "at" and place.more.number:
            return self._shape(place.more.first)[place.more.number - 1]
        return 0

    def _shape(self, grid: str) -> tuple[int, ...]:
        return self._readable.entries[grid].shape

    def complete(self, state: State) -> list[Terminal]:
        """Terminals that complete a program, the last of which is END."""
        terminals, most = list[Terminal](), self.shortest(state)
        while END not in terminals:
            # What ends something comes first, and a parenthesis opens only at need.
            good = [one for one in self.following(state) if self.shortest(one[1]) <= most]
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
            return State(place.inside("infix", text, operand), None, nodes + 1)
        if terminal == END and place.kind == "root" and self._is_reward(operand.sort):
            return State(place, operand, nodes)
        if text == ")" and place.kind == "group":
            return State(place.below, operand._replace(bound=STRONGEST), nodes)
        if text in (",", ")") and place.kind == "call" and (more := self._plus(place.name, place.more, operand)):
            if text == ",":
                return State(place.below.inside("call", place.name, more), None, nodes)
            return self._called(place, more, nodes)
        return None

    def _begin(self, state: State, terminal: Terminal) -> State | None:
        """An operand begins, or a call without arguments ends."""
        place, (kind, text), nodes = state.place, terminal, state.nodes
        if place.kind == "function":
            if text != "(" or place.open == MOST_LEVELS:
                return None
            return State(place.below.inside("call", place.name, Arguments()), None, nodes + 1)
        if terminal in LITERALS:
            only_zero = text == LITERAL and self.limit(state) == 1
            return None if only_zero else State(place, Operand(Sort(kind, 0, text)), nodes + 1)
        if kind == "name":
            return State(place, Operand(self.names[text]), nodes + 1)
        if kind == "function":
            return State(place.inside("function", text), None, nodes)
        if text == ")" and place.kind == "call" and not place.more.number:
            return self._called(place, place.more, nodes)
        if place.open == MOST_LEVELS:
            return None
        if text == "(":
            again = self._narrow and place.kind in ("group", "call")
            return None if again else State(place.inside("group"), None, nodes)
        return State(place.inside("prefix", text), None, nodes + 1) if text in PREFIXES else None

    def _called(self, place: Place, more: Arguments, nodes: int) -> State | None:
        result = self._result(place.name, more)
        return State(place.below, result, nodes) if result else None

    # ---- types

    def _is_reward(self, sort: Sort) -> bool:
        return sort.type in NUMERIC and (sort.of > 0 or not self._narrow)

    def _reduce(self, place: Place, operand: Operand) -> Operand | None:
        """The value of an operator with its last operand."""
        if place.kind == "infix":
            return self._combined(OPERATORS[place.name], place.more, operand)
        prefix, sort, minus = PREFIXES[place.name], operand.sort, place.name == "-"
        if sort.type not in prefix.takes or operand.levels == MOST_LEVELS:
            return None
        if self._narrow and not sort.of and (not minus or sort.form == NEGATED):
            return None
        form = NEGATED if minus and sort.form in (LITERAL, NEGATED) else ""
        bound = min(prefix.strength - 1, operand.bound)
        return Operand(Sort(prefix.result, sort.of, form), operand.levels + 1, 0, bound)

    def _combined(self, operator: Operator, left: Operand, right: Operand) -> Operand | None:
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

    def _plus(self, name: str, more: Arguments, operand: Operand) -> Arguments | None:
        """The arguments of a call with another one; None if the function does not take it."""
        number, sort, args = more.number, operand.sort, FUNCTIONS[name].args
        if number == len(args):
            return None
        if name == "says":  # the first of its two arguments can be left out
            forms: tuple[str, ...] = () if number else (NAMED, WORD)
            if sort.form not in ((WORD,) if number and more.first == NAMED else forms):
                return None
        elif not args[number].takes(sort.type, "changed" if sort.of == CHANGED else ORDER[sort.of], sort.form):
            return None
        if name == "distance" and not number and sort.form not in self._readable.viewpoints:
            return None
        first = sort.form if not number and sort.type in (GRID, TEXTS) else more.first
        if name == "at" and (0 in (shape := self._shape(first)) or number > len(shape)):
            return None
        return Arguments(number + 1, first, max(more.of, sort.of), max(more.levels, operand.levels))

    def _fewest(self, name: str, more: Arguments) -> int:
        """The fewest arguments of a call that begins so."""
        if name == "at" and more.number:
            return 1 + len(self._shape(more.first))
        return 2 if name == "says" and more.first == NAMED else FUNCTIONS[name].least

    def _result(self, name: str, more: Arguments) -> Operand | None:
        """The value of a call; None if it lacks arguments or has too many levels."""
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

    # ---- completions; `opens`: how many parentheses may be opened within a place

    def _least(self, place: Place, operand: Operand | None) -> int:
        """The fewest nodes that complete a program; NEVER or more if nothing does."""
        if operand not in place.known:
            place.known[operand] = min(
                (nodes + (place.kind != "root" and self._least(place.below, value))
                 for value, nodes in self._ends(place, operand)),
                default=NEVER,
            )  # fmt: skip
        return place.known[operand]

    def _ends(self, place: Place, operand: Operand | None) -> Iterator[tuple[Operand, int]]:
        """The values with which a place can end, and the nodes that this adds."""
        opens = MOST_LEVELS - place.open
        if place.kind == "function" and opens:
            yield from ((value, nodes + 1) for value, nodes in self._calls(place.name, Arguments(), opens - 1))
        elif place.kind == "call" and not operand and not place.more.number:
            yield from self._calls(place.name, place.more, opens)
        elif place.kind != "function":
            for value, nodes in self._values(operand, place.lowest, opens):
                if place.kind == "group" or (place.kind == "root" and self._is_reward(value.sort)):
                    yield value._replace(bound=STRONGEST), nodes
                elif place.kind == "call":
                    if more := self._plus(place.name, place.more, value):
                        yield from ((one, nodes + added) for one, added in self._calls(place.name, more, opens))
                elif place.kind != "root" and (reduced := self._reduce(place, value)):
                    yield reduced, nodes

    def _find_values(self, operand: Operand | None, lowest: int, opens: int) -> Values:
        """What an operand, or nothing, becomes by operators that are stronger than `lowest`, itself included."""
        begun = [(operand, 0)] if operand else []
        costs = {} if operand else {sort: [*pairs] for sort, pairs in self._atoms(opens).items()}
        for strength in STRENGTHS:  # twice the same could only repeat the first one's work
            if lowest < strength <= (operand.bound if operand else STRONGEST):
                for left, nodes in begun + _operands(costs):
                    for sort, added, levels in self._steps(strength, opens, left.sort.type, left.sort.of):
                        _keep(costs, sort, nodes + added, max(left.levels + (left.strength != strength), levels))
        return begun + _operands(costs)

    def _find_steps(self, strength: int, opens: int, type_: str, of: int) -> list[tuple[Sort, int, int]]:
        """The results of one operator with such a left operand: the sort, the nodes added, and levels."""
        costs, left = Costs(), Operand(Sort(type_, of), 0)
        for operator in dict.fromkeys(one for one in OPERATORS.values() if one.strength == strength):
            for right, nodes in self._values(None, strength, opens):
                value = self._combined(operator, left, right)
                if value and value.sort != left.sort:  # one that changes neither type nor `of` is of no use
                    _keep(costs, value.sort, nodes + 1, value.levels)
        return [(sort, *pair) for sort, pairs in costs.items() for pair in pairs]

    def _find_atoms(self, opens: int) -> Costs:
        """Operands that are written from nothing, without a binary operator at the top."""
        atoms = Costs()
        for sort in (*(Sort(kind, 0, form) for kind, form in LITERALS), *self.names.values()):
            _keep(atoms, sort, 1, 1)
        if opens:
            minus = Place("prefix", "-")  # `not` makes nothing new
            inner = self._values(None, minus.lowest, opens - 1)
            found = [(self._reduce(minus, value), nodes + 1) for value, nodes in inner]
            found += [(value, nodes + 1) for name in FUNCTIONS
                      for value, nodes in self._calls(name, Arguments(), opens - 1)]  # fmt: skip
            for value, nodes in [*self._values(None, 0, opens - 1), *found]:
                if value:
                    _keep(atoms, value.sort, nodes, value.levels)
        return atoms

    def _find_calls(self, name: str, more: Arguments, opens: int) -> Values:
        """The values of a call with these arguments so far."""
        costs, begun = Costs(), {(more, 0)}
        while begun:
            longer = set()
            for args, nodes in begun:
                if result := self._result(name, args):
                    _keep(costs, result.sort, nodes, result.levels)
                needed = args.number < self._fewest(name, args)
                for value, added in self._values(None, 0, opens):
                    # One more argument than needed may be what makes a value change.
                    if (needed or value.sort.of > args.of) and (longer_args := self._plus(name, args, value)):
                        longer.add((longer_args, nodes + added))
            begun = longer
        return _operands(costs)


def _operands(costs: Costs) -> Values:
    return [(Operand(sort, levels), nodes) for sort, pairs in costs.items() for nodes, levels in pairs]


def _keep(costs: Costs, sort: Sort, nodes: int, levels: int) -> None:
    """Adds a pair of nodes and levels, unless a known pair is no larger in both; drops pairs that it replaces."""
    known = costs.setdefault(sort, [])
    if levels <= MOST_LEVELS and not any(fewer <= nodes and flatter <= levels for fewer, flatter in known):
        known[:] = [one for one in known if nodes > one[0] or levels > one[1]] + [(nodes, levels)]


# ---- spelling: which characters can follow a text, so that it can become a program
#
# Of equal programs one is enough, so not all spellings can be written: there are no comments and no line breaks, at
# most one blank between two terminals, and numbers have up to six digits, a point and up to six more. A program of more
# than MOST_BYTES, which only texts and blanks in quantity could make, is left to `check`.

DECIMALS = 6
PART = re.compile(r"(?:0|[1-9][0-9]{0,5})(?:\.[0-9]{0,6})?")  # of a number
DIGITS, QUOTE = "0123456789", '"'
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
ONE = "+-*/(),"  # symbols of one character that is not the beginning of another
ALPHABET = {*DIGITS, *ONE, *'<>=!. "', *"".join((*FUNCTIONS, *OPERATORS, "not"))}  # and the letters of names


@dataclass(frozen=True, eq=False)
class Spelling:
    """A text so far; equal ones of a speller are the same object."""

    states: tuple[State, ...]  # after its whole terminals: two, if a word may be a name or a function
    part: str = ""  # of the next terminal; if quotes may hold any text, blanks, and "x"s once it is not blank
    blank: bool = True  # may follow
    quoted: frozenset[int] = frozenset()  # of texts in quotes that are parts of given ones, see `Speller._shown`

    @property
    def in_quotes(self) -> bool:
        return self.part.startswith(QUOTE)


class Speller:
    """The characters of a grammar."""

    def __init__(self, grammar: Grammar, texts: Iterable[str] = ()):
        """`texts`: what is in quotes must be a phrase of one of these; if there are none, it may be anything.

        Small models repeat themselves, so a program has no two phrases that are parts of the same given texts.
        """
        self.grammar = grammar
        self._texts = [*dict.fromkeys(text for text in map(str.strip, texts) if is_plain(text))]
        self.phrases = sorted({phrase for text in self._texts for phrase in phrases_of(text)})
        self._at, self.step = functools.cache(Spelling), functools.cache(self._step)
        self._following, self._shown = functools.cache(self._find_following), functools.cache(self._find_shown)
        self.start = self._at((grammar.start,), blank=False)

    def forget(self) -> None:
        """Frees the spellings of earlier texts; those in use go on."""
        for known in (self._at, self.step, self._following, self._shown):
            known.cache_clear()

    def ends(self, spelling: Spelling) -> bool:
        whole = self._whole(spelling)
        return bool(whole and self._follow(whole, ""))

    def complete(self, spelling: Spelling) -> str:
        added = ""
        if spelling.in_quotes:
            part = spelling.part[1:]
            if self.phrases:
                part = self._new_text(part, spelling.quoted)
            added = f"{part[len(spelling.part) - 1 :] or 'x' * (not part.strip())}{QUOTE}"
        elif self._whole(spelling) is None:
            words = [word for word in self._following(spelling.states) if word.startswith(spelling.part)]
            added = min(words, key=len)[len(spelling.part) :] if words else "1" if "." in spelling.part else ".1"
        for character in added:
            following = self.step(spelling, character)
            assert following, "a text in quotes has room for a character, and words and numbers go on"
            spelling = following
        whole = self._whole(spelling) or spelling
        state = min(whole.states, key=self.grammar.shortest)
        rest = [one.text for one in self.grammar.complete(state)]  # forms are written as examples of themselves
        if self.phrases:
            rest = [f'"{self._new_text("", spelling.quoted)}"' if one == WORD else one for one in rest]
        return f"{added} {' '.join(rest)}".rstrip()

    def _find_following(self, states: tuple[State, ...]) -> dict[str, tuple[State, ...]]:
        """The terminals that may follow these states, by their text or form; "" is the end of the program."""
        following = dict[str, tuple[State, ...]]()
        for state in states:
            for terminal, after in self.grammar.following(state):
                following[terminal.text] = (*following.get(terminal.text, ()), after)
        return following

    def _follow(self, spelling: Spelling, text: str) -> Spelling | None:
        states = self._following(spelling.states).get(text)
        return self._at(states, quoted=spelling.quoted) if states else None

    def _whole(self, spelling: Spelling) -> Spelling | None:
        """After the terminal that has begun, if it can end here."""
        part = spelling.part
        if not part:
            return spelling
        if part[0] in DIGITS:
            if part.endswith("."):
                return None
            part = LITERAL if float(part) else ZERO
        return self._follow(spelling, part)

    def _step(self, spelling: Spelling, character: str) -> Spelling | None:
        """The text with one more character; None if it could not become a program then."""
        part = spelling.part
        if spelling.in_quotes:
            return self._quoted(spelling, character)
        if part and self._continues(spelling, part + character):
            return self._at(spelling.states, part + character, quoted=spelling.quoted)
        if part and part[0] in DIGITS + LETTERS and character in DIGITS + LETTERS + ".":
            return None
        if not (at := self._whole(spelling)):
            return None
        if character == " ":
            return self._at(at.states, blank=False, quoted=at.quoted) if at.blank else None
        if character in ONE:
            return self._follow(at, character)
        begins = WORD in self._following(at.states) if character == QUOTE else self._continues(at, character)
        return self._at(at.states, character, quoted=at.quoted) if begins else None

    def _continues(self, spelling: Spelling, part: str) -> bool:
        following = self._following(spelling.states)
        if part[0] not in DIGITS:
            return any(one.startswith(part) for one in following)
        if not PART.fullmatch(part):
            return False
        if limit := max(map(self.grammar.limit, spelling.states)):  # an index, which is not spelt in two ways
            return "." not in part and int(part) < limit and (LITERAL if int(part) else ZERO) in following
        if float(part):
            return LITERAL in following
        return ZERO in following or (LITERAL in following and len(part) < len("0.") + DECIMALS)

    def _quoted(self, spelling: Spelling, character: str) -> Spelling | None:
        text = spelling.part[1:]
        is_blank = not text.strip()
        if character == QUOTE:
            after = self._follow(spelling, BLANK if is_blank else WORD)
            if not after or not self.phrases:
                return after
            if text != next(self._parts(text)) or not self._is_new(text, spelling.quoted):
                return None
            return self._at(after.states, quoted=spelling.quoted | {self._shown(text)})
        room = MOST_CHARACTERS - (is_blank and character == " ")  # for a character that is not blank
        if len(text) >= room or not is_plain(character):
            return None
        text += character
        if not self.phrases:
            return self._at(spelling.states, QUOTE + (" " if is_blank and character == " " else "x") * len(text))
        return (
            self._at(spelling.states, QUOTE + text, quoted=spelling.quoted)
            if self._new_text(text, spelling.quoted)
            else None
        )

    def _find_shown(self, part: str) -> int:
        """The given texts of which this is a part, as bits."""
        return sum(1 << place for place, text in enumerate(self._texts) if part in text)

    def _is_new(self, text: str, quoted: frozenset[int]) -> bool:
        """Whether a text is part of other given texts than those in quotes so far; if no text is, each may be again."""
        return self._shown(text) not in quoted or all(self._shown(one) in quoted for one in self._parts(""))

    def _new_text(self, begun: str, quoted: frozenset[int]) -> str:
        """A text for quotes that begins so; "" if there is none."""
        return next((text for text in self._parts(begun) if self._is_new(text, quoted)), "")

    def _parts(self, begun: str) -> Iterator[str]:
        """The phrases that begin so, the shortest first."""
        for place in range(bisect.bisect_left(self.phrases, begun), len(self.phrases)):
            if not self.phrases[place].startswith(begun):
                break
            yield self.phrases[place]


def phrases_of(text: str) -> Iterator[str]:
    """What can be quoted of a text: words of one sentence, or whole sentences."""
    words = [word.span() for word in re.finditer(r"\S+", text)]
    ends = [text[end - 1] in ".!?" for _, end in words]  # of sentences
    for first, (start, _) in enumerate(words):
        for last in range(first, len(words)):
            end = words[last][1]
            if end - start > MOST_CHARACTERS:
                break
            are_whole = (not first or ends[first - 1]) and (ends[last] or last == len(words) - 1)
            if are_whole or not any(ends[first:last]):
                yield text[start:end]


def longest_phrase(text: str) -> str:
    """The most that can be quoted of a text; "" if it has no words."""
    return max(phrases_of(text), key=len, default="")


def is_plain(text: str) -> bool:
    """Whether a text can be part of a text in quotes."""
    return text.isascii() and text.isprintable() and QUOTE not in text and "\\" not in text


# Which tokens of a language model's tokeniser can follow a text, so that it can still become a reward program.
#
# The tokens are kept as a tree of their characters, which is walked beside the speller, so tokens may end and begin
# terminals. Within quotes nearly all tokens are allowed, unless texts are given: these are found by their lengths.

KEPT = 1024  # masks; one has a byte per token


class ProgramGuide:
    """The masks of one world's programs for one tokeniser: the guide of `Language.generate_guided`."""

    def __init__(self, speller: Speller, tokeniser: Tokeniser, model: str, ends: tuple[int, ...], size: int):
        """Raises UserError if a program could not be written with these tokens.

        Args:
          ends: tokens that end a text.
          size: the number of tokens for which the model has logits.
        """
        self.speller, self.start, self._size = speller, speller.start, size
        self.ends: Sequence[int] = ends
        self.pieces = pieces_of(tokeniser, ends)
        if missing := (ALPHABET | {*"".join(speller.grammar.names)}) - {*self.pieces}:
            raise UserError(
                f"the tokeniser of {model!r} has no tokens for the characters {' '.join(sorted(missing))!r:.80}, which "
                "programs need: choose another model (--config.annotate.model), or writer=server"
            )
        # All tokens, and those with a quote: by character a tree of longer ones, and under "" those that end there.
        self._branch, self._quotes = dict[str, Any](), dict[str, Any]()
        self._length = np.full(size, MOST_CHARACTERS + 1)  # of tokens that may stand in quotes
        for token, text in enumerate(self.pieces):
            if not text:
                continue
            if is_plain(text):
                self._length[token] = len(text) + text.isspace()  # at least one character is not blank
            if text.isascii() and text.isprintable():
                for tree in (self._branch, self._quotes)[: 1 + (QUOTE in text)]:
                    for character in text:
                        tree = tree.setdefault(character, {})
                    tree.setdefault("", []).append(token)
        self._masks = dict[Spelling, np.ndarray]()

    def allowed(self, spelling: Spelling) -> np.ndarray:
        """The tokens that may follow. [V] bool"""
        if spelling not in self._masks:
            if len(self._masks) == KEPT:
                self._masks.clear()
                self.speller.forget()
            self._masks[spelling] = self._mask(spelling)
        return self._masks[spelling]

    def after(self, spelling: Spelling, token: int) -> Spelling:
        """The text with one more token, which is allowed."""
        for character in self.pieces[token]:
            following = self.speller.step(spelling, character)
            assert following, "the token is allowed"
            spelling = following
        return spelling

    def text(self, tokens: Sequence[int], spelling: Spelling) -> str:
        """The program of these tokens, completed if it is unfinished."""
        text = "".join(self.pieces[token] for token in tokens)
        return text.strip() if self.speller.ends(spelling) else text + self.speller.complete(spelling)

    def _mask(self, spelling: Spelling) -> np.ndarray:
        mask, anything = np.zeros(self._size, bool), spelling.in_quotes and not self.speller.phrases
        if anything:
            mask |= self._length <= MOST_CHARACTERS + 1 - len(spelling.part)
        stack = [(spelling, self._quotes if anything else self._branch)]
        while stack:
            at, branch = stack.pop()
            mask[branch.get("", [])] = True
            for character, longer in branch.items():
                if character and (following := self.speller.step(at, character)):
                    stack.append((following, longer))
        mask[[*self.ends]] = self.speller.ends(spelling)
        return mask


def pieces_of(tokeniser: Tokeniser, ends: tuple[int, ...]) -> list[str]:
    """The text of each token within a text; "" for special ones. A tokeniser may drop blanks at a text's beginning."""
    begin = tokeniser.encode("(")
    before = tokeniser.decode(begin)
    pieces = [tokeniser.decode([*begin, token]) for token in range(tokeniser.size)]
    return [
        "" if token in ends or not text.startswith(before) else text[len(before) :] for token, text in enumerate(pieces)
    ]

"""Splits the text of a reward program into tokens.

A program is ASCII. `#` begins a comment, which ends with the line; line breaks count as blanks.

    number  0.5, 20, 1e-3           name    letters, digits and underscores
    text    "you kill", no escapes  symbol  one of SYMBOLS

The length of the text is limited, and so is the work.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from motif_jax.config.table import shown
from motif_jax.structs import UserError

MOST_BYTES = 4096  # of a program
MOST_NODES = 64  # of its tree
MOST_LEVELS = 12  # of parentheses, calls and operators within each other
MOST_CHARACTERS = 100  # of a text
LONGEST_WORD = 60  # characters of a number or a name
LARGEST_NUMBER = 1e6  # absolute value of a number in a program

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
SYMBOLS = (*COMPARISONS, "+", "-", "*", "/", "(", ")", ",")
WORDS = ("and", "or", "not")  # names that are operators
ODD = re.compile(r"[^\t\r\n -~]")  # characters that a reader could not see or could mistake for others
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SYMBOL = "|".join(map(re.escape, sorted(SYMBOLS, key=len, reverse=True)))
TOKEN = re.compile(
    r"(?P<blank>(?:[ \t\r\n]|#[^\n]*)+)|(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)|"
    rf'(?P<name>{NAME.pattern})|"(?P<text>[^"\\\n\r\t]*)"|(?P<symbol>{SYMBOL})'
)
FIXES = {  # for characters that are not in the language
    "'": 'write texts in double quotes, as in says("you kill")',
    '"': "a text ends with a double quote in the same line, and has no backslash and no tab",
    ".": "write numbers as 0.5; values have no attributes",
    "=": "write == to compare",
    "!": "write != to compare, and not for the opposite",
    "&": "write and",
    "|": "write or",
    "[": "write at(grid, i, j) to read a cell",
    "^": "write x * x for a square",
    "%": "there are only + - * /",
}
NOT_IN_LANGUAGE = "see the grammar in docs/code-rewards.md"


class Place(NamedTuple):
    """A place in a program, counted from 1."""

    line: int
    column: int


class ProgramError(UserError):
    """An error in a program: one sentence that begins with its place."""

    def __init__(self, place: Place, sentence: str):
        super().__init__(f"line {place.line}, column {place.column}: {sentence}")
        self.place = place


class Token(NamedTuple):
    """A piece of a program."""

    kind: str  # "number", "text", "name", "symbol" or "end"
    value: str | float
    place: Place

    @property
    def symbol(self) -> str:
        """The symbol; "" for other tokens."""
        return str(self.value) if self.kind == "symbol" else ""

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else shown(self.value)


def tokenize(text: str) -> list[Token]:
    """The tokens of a program; the last is of kind "end". Raises ProgramError."""
    if len(text) > MOST_BYTES:
        raise ProgramError(Place(1, 1), f"a program has at most {MOST_BYTES:,} bytes, not {len(text):,}")
    if odd := ODD.search(text):
        code = f"{odd[0]!a} (U+{ord(odd[0]):04X})"
        raise ProgramError(
            place_of(text, odd.start()),
            f"a program is printable ASCII, without {code}: remove it, or write an ASCII character",
        )
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match, place = TOKEN.match(text, at), place_of(text, at)
        if match is None:
            raise ProgramError(place, f"unexpected {text[at]!r}: {FIXES.get(text[at], NOT_IN_LANGUAGE)}")
        at, kind = match.end(), str(match.lastgroup)
        value = match[kind]
        if kind == "number":
            tokens.append(Token(kind, _number(value, text[at : at + 1], place), place))
        elif kind != "blank":
            most = MOST_CHARACTERS if kind == "text" else LONGEST_WORD
            if len(value) > most:
                raise ProgramError(place, f"a {kind} has at most {most} characters, not {len(value):,}: {shown(value)}")
            tokens.append(Token("symbol" if value in WORDS and kind == "name" else kind, value, place))
    return [*tokens, Token("end", "", place_of(text, at))]


def place_of(text: str, at: int) -> Place:
    """The place of an offset."""
    return Place(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))


def _number(digits: str, following: str, place: Place) -> float:
    if following.isalnum() or following in (".", "_"):
        raise ProgramError(place, f"a number is written as 20, 0.5 or 1e-3, not {shown(digits + following)}")
    if len(digits) > LONGEST_WORD:
        raise ProgramError(place, f"a number has at most {LONGEST_WORD} characters: {shown(digits)}")
    if not float(digits) <= LARGEST_NUMBER:
        raise ProgramError(place, f"numbers are at most {LARGEST_NUMBER:g}, not {shown(digits)}: scale the reward")
    return float(digits)

"""Splits the text of a reward program into tokens.

A program is ASCII. `#` begins a comment, which ends with the line; line breaks count as blanks.

    number  0.5, 20, 1e-3           name    letters, digits and underscores
    text    "you kill", no escapes  symbol  one of SYMBOLS

All work is linear in the length of the text, which is limited.
"""

from __future__ import annotations

import math
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
BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)+")
NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TEXT = re.compile(r'"([^"\\\n\r]*)"')
SYMBOL = re.compile("|".join(map(re.escape, sorted(SYMBOLS, key=len, reverse=True))))
FIXES = {  # for characters that are not in the language
    "'": 'write texts in double quotes, as in says("you kill")',
    '"': "a text ends with a double quote in the same line, and has no backslash",
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

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else shown(self.value)


def tokenize(text: str) -> list[Token]:
    """The tokens of a program; the last is of kind "end". Raises ProgramError."""
    if len(text) > MOST_BYTES:
        raise ProgramError(Place(1, 1), f"a program has at most {MOST_BYTES:,} bytes, not {len(text):,}")
    found: list[Token] = []
    line, start = 1, 0  # the number of the line, and the offset of its first character
    at = 0
    while at < len(text):
        place = Place(line, at - start + 1)
        if blank := BLANK.match(text, at):
            _check_ascii(blank.group(), place)
            breaks = blank.group().count("\n")
            line += breaks
            start = text.rfind("\n", at, blank.end()) + 1 if breaks else start
            at = blank.end()
            continue
        token, at = _token(text, at, place)
        found.append(token)
    return [*found, Token("end", "", Place(line, at - start + 1))]


def _check_ascii(text: str, place: Place) -> None:
    """Raises ProgramError for a character in a comment that a reader could not see or could mistake for another."""
    for number, character in enumerate(text):
        if not (character.isascii() and (character.isprintable() or character in "\t\r\n")):
            before = text[:number]
            inside = Place(place.line + before.count("\n"), number - before.rfind("\n"))
            raise ProgramError(inside if "\n" in before else Place(place.line, place.column + number), _odd(character))


def _odd(character: str) -> str:
    code = f"{character!a} (U+{ord(character):04X})"
    return f"a program is printable ASCII, without {code}: remove it, or write an ASCII character"


def _token(text: str, at: int, place: Place) -> tuple[Token, int]:
    """The token at this offset, and the offset after it."""
    if match := NUMBER.match(text, at):
        return Token("number", _number(match.group(), text[match.end() :][:1], place), place), match.end()
    if match := NAME.match(text, at):
        if len(match.group()) > LONGEST_WORD:
            raise ProgramError(place, f"a name has at most {LONGEST_WORD} characters: {shown(match.group())}")
        return Token("symbol" if match.group() in WORDS else "name", match.group(), place), match.end()
    if match := TEXT.match(text, at):
        for number, character in enumerate(match.group()):
            if not (character.isascii() and character.isprintable()):
                raise ProgramError(Place(place.line, place.column + number), _odd(character))
        if len(match.group(1)) > MOST_CHARACTERS:
            raise ProgramError(
                place, f"a text has at most {MOST_CHARACTERS} characters, not {len(match.group(1)):,}: write its start"
            )
        return Token("text", match.group(1), place), match.end()
    if match := SYMBOL.match(text, at):
        return Token("symbol", match.group(), place), match.end()
    character = text[at]
    if not (character.isascii() and character.isprintable()):
        raise ProgramError(place, _odd(character))
    raise ProgramError(place, f"unexpected {character!r}: {FIXES.get(character, NOT_IN_LANGUAGE)}")


def _number(digits: str, following: str, place: Place) -> float:
    if following and (following.isalnum() or following in "._"):
        raise ProgramError(place, f"a number is written as 20, 0.5 or 1e-3, not {shown(digits + following)}")
    if len(digits) > LONGEST_WORD:
        raise ProgramError(place, f"a number has at most {LONGEST_WORD} characters: {shown(digits)}")
    number = float(digits)
    if not (math.isfinite(number) and number <= LARGEST_NUMBER):
        raise ProgramError(place, f"numbers are at most {LARGEST_NUMBER:g}, not {shown(digits)}: scale the reward")
    return number

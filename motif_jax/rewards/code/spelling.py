"""Spells reward programs character by character: which characters can follow a text, so that it can become a program.

Of equal programs one is enough, so not all spellings can be written: there are no comments and no line breaks, at most
one blank between two terminals, and numbers have up to six digits, a point and up to six more. A program of more than
MOST_BYTES, which only texts and blanks in quantity could make, is left to `check`.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from motif_jax.rewards.code.grammar import BLANK, FUNCTIONS, LITERAL, OPERATORS, WORD, ZERO
from motif_jax.rewards.code.recogniser import Grammar, State
from motif_jax.rewards.code.tokens import MOST_CHARACTERS
from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser

DECIMALS = 6
PART = re.compile(r"(?:0|[1-9][0-9]{0,5})(?:\.[0-9]{0,6})?")  # of a number
DIGITS, QUOTE = "0123456789", '"'
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
ONE = "+-*/(),"  # symbols of one character that is not the beginning of another
ALPHABET = {*DIGITS, *ONE, *'<>=!. "', *"".join((*FUNCTIONS, *OPERATORS, "not"))}  # and the letters of names


class Spelling:
    """A text so far; equal ones of a speller are the same object."""

    def __init__(self, states: tuple[State, ...], part: str, blank: bool, quoted: frozenset[int]):
        self.states = states  # after its whole terminals: two, if a word may be a name or a function
        self.part = part  # of the next terminal; if quotes may hold any text, blanks, and "x"s once it is not blank
        self.blank = blank  # may follow
        self.quoted = quoted  # see `Speller._shown`: of the texts in quotes so far, if they are parts of given ones
        self.after = dict[str, "Spelling | None"]()
        self.words: dict[str, tuple[State, ...]] | None = None  # the terminals that may follow, and the states then

    @property
    def in_quotes(self) -> bool:
        """Whether a text in quotes has begun."""
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
        self._known, self._shown = functools.cache(Spelling), functools.cache(self._find_shown)
        self.start = self._at((grammar.start,), blank=False)

    def forget(self) -> None:
        """Frees the spellings of earlier texts; those in use go on."""
        self._known.cache_clear()
        self._shown.cache_clear()
        self.start.after.clear()

    def step(self, spelling: Spelling, character: str) -> Spelling | None:
        """The text with one more character; None if it could not become a program then."""
        if character not in spelling.after:
            spelling.after[character] = self._step(spelling, character)
        return spelling.after[character]

    def ends(self, spelling: Spelling) -> bool:
        """Whether the text is a program."""
        whole = self._whole(spelling)
        return bool(whole and self._follow(whole, ""))

    def complete(self, spelling: Spelling) -> str:
        """A text that completes a program."""
        added = ""
        if spelling.in_quotes:
            part = spelling.part[1:]
            if self.phrases:
                part = self._new_text(part, spelling.quoted)
            added = f"{part[len(spelling.part) - 1 :] or 'x' * (not part.strip())}{QUOTE}"
        elif self._whole(spelling) is None:
            words = [word for word in self._following(spelling) if word.startswith(spelling.part)]
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

    def _at(
        self, states: tuple[State, ...], part: str = "", blank: bool = True, quoted: frozenset[int] = frozenset()
    ) -> Spelling:
        return self._known(states, part, blank, quoted)

    def _following(self, spelling: Spelling) -> dict[str, tuple[State, ...]]:
        """The terminals that may follow the complete ones, by their text or form; "" is the end of the program."""
        at = self._at(spelling.states)
        if at.words is None:
            at.words = {}
            for state in at.states:
                for terminal, after in self.grammar.following(state):
                    at.words[terminal.text] = (*at.words.get(terminal.text, ()), after)
        return at.words

    def _follow(self, spelling: Spelling, text: str) -> Spelling | None:
        """After one more terminal."""
        states = self._following(spelling).get(text)
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
        begins = WORD in self._following(at) if character == QUOTE else self._continues(at, character)
        return self._at(at.states, character, quoted=at.quoted) if begins else None

    def _continues(self, spelling: Spelling, part: str) -> bool:
        """Whether the next terminal can begin so."""
        following = self._following(spelling)
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
        """A text in quotes goes on or ends."""
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

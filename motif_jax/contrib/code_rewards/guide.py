"""Holds a language model in this process to the grammar of reward programs, by the library llguidance.

At each token it says which ones may follow, so that the text can still become a program of the narrow grammar
(`grammar.as_ebnf`). Nearly all texts do. One that comes to no end, or has too many nodes, is refused by `check`.
"""

from __future__ import annotations

import bisect
import functools
import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from motif_jax.contrib.code_rewards.grammar import MOST_CHARACTERS, as_ebnf
from motif_jax.contrib.code_rewards.names import Readable
from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser

QUOTE, LAST = '"', "\x7f"  # LAST: after all characters of phrases
IN_QUOTES = re.compile(r"(?<=\nWORD:).*\n")  # a terminal of the grammar


def check_library(what: str, flag: str) -> None:
    """Raises UserError if the library is not installed."""
    if importlib.util.find_spec("llguidance") is None:
        raise UserError(f"{what} needs the library llguidance: pip install 'motif_jax[language]' ({flag})")


class ProgramGuide:
    """The tokens that may follow in each of several programs of a world."""

    def __init__(self, readable: Readable, tokeniser: Tokeniser, ends: Sequence[int], size: int, model: str):
        """Raises UserError if programs cannot be written with these tokens.

        Args:
          ends: tokens that end a program.
          size: the number of tokens for which the model has logits.
          model: its name.
        """
        from llguidance import LLTokenizer, TokenizerWrapper
        from llguidance.gbnf_to_lark import any_to_lark

        grammar, pieces = as_ebnf(readable, narrow=True), pieces_of(tokeniser, ends)
        characters = {*"0123456789", *"".join(re.findall(r'"([^"\\]*)"', grammar)), QUOTE}
        if missing := characters - {*pieces}:
            raise UserError(
                f"the tokeniser of {model!r} has no tokens for the characters {' '.join(sorted(missing))!r:.80}, which "
                "programs need: choose another model (--config.annotate.model), or writer=server"
            )
        self.pieces, self.ends = pieces + [""] * (size - len(pieces)), [*ends]
        self._has_quote = np.array([QUOTE in piece for piece in self.pieces])
        self._tokenizer = LLTokenizer(TokenizerWrapper(_Tokens(self, tokeniser)), eos_token=self.ends, slices=[])
        self._grammar = any_to_lark(grammar)
        self.begin()

    def begin(self, texts: Sequence[str] = ()) -> None:
        """Begins new programs.

        Args:
          texts: what is in quotes must be a phrase of one of these; if there are none, it may be anything. Small models
            repeat themselves, so a program has no two phrases that are parts of the same texts.
        """
        from llguidance import LLMatcher

        characters, self._shown = {*self.pieces}, dict[str, int]()  # the texts with each phrase, as bits
        for place, text in enumerate(dict.fromkeys(texts)):
            for phrase in phrases_of(text) if is_plain(text) and {*text} <= characters else ():
                self._shown[phrase] = self._shown.get(phrase, 0) | 1 << place
        self.phrases, self._ahead = sorted(self._shown), functools.cache(self._find_ahead)
        quoted = " | ".join(f'"{phrase}"' for phrase in self.phrases)
        grammar = IN_QUOTES.sub(lambda _: f' "\\"" ({quoted}) "\\""\n', self._grammar) if quoted else self._grammar
        start = LLMatcher(self._tokenizer, grammar)
        assert not start.is_error(), start.get_error()
        self._matchers, self._texts = defaultdict[int, LLMatcher](start.deep_copy), defaultdict[int, str](str)

    def allowed(self, number: int, tokens: Sequence[int]) -> np.ndarray:
        """The tokens that may follow in a program, at least one; to be called once after each token. [V] bool"""
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        matcher, bits = self._matchers[number], allocate_token_bitmask(1, len(self.pieces))
        if tokens:
            matcher.consume_token(tokens[-1])
            self._texts[number] += self.pieces[tokens[-1]]
        fill_next_token_bitmask(matcher, bits)
        mask = np.unpackbits(bits.view(np.uint8), bitorder="little")[: len(self.pieces)].astype(bool)
        mask[self.ends] = matcher.is_accepting()
        if self.phrases:
            text = self._texts[number]
            for token in np.flatnonzero(mask if text.count(QUOTE) % 2 else mask & self._has_quote):
                mask[token] = token in self.ends or self._is_new(text + self.pieces[token])
        return mask

    def text(self, tokens: Sequence[int]) -> str:
        """A program of these tokens."""
        return "".join(self.pieces[token] for token in tokens).strip()

    def _is_new(self, text: str) -> bool:
        """Whether the last phrase in quotes is, or can become, part of other texts than those before.

        When all texts are used, they may be again.
        """
        *before, last = text.split(QUOTE)[1::2]
        used = {self._shown[phrase] for phrase in before}
        found = self._ahead(last) if text.count(QUOTE) % 2 else {self._shown[last]}
        return not found <= used or self._ahead("") <= used

    def _find_ahead(self, begun: str) -> set[int]:
        """The texts of the phrases that begin so."""
        first, end = (bisect.bisect_left(self.phrases, one) for one in (begun, begun + LAST))
        return {self._shown[phrase] for phrase in self.phrases[first:end]}


class _Tokens:
    """Tokens, as llguidance takes them."""

    bos_token_id = None

    def __init__(self, guide: ProgramGuide, tokeniser: Tokeniser):
        self.tokens, self.eos_token_id = [piece.encode() for piece in guide.pieces], guide.ends[0]
        self._tokeniser = tokeniser

    def __call__(self, text: str) -> list[int]:
        """Where only one text can follow, only these tokens of it are allowed."""
        return self._tokeniser.encode(text)


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


def pieces_of(tokeniser: Tokeniser, ends: Sequence[int]) -> list[str]:
    """The text of each token within a text; "" for special ones. A tokeniser may drop blanks at a text's beginning."""
    begin = tokeniser.encode("(")
    before = tokeniser.decode(begin)
    pieces = [tokeniser.decode([*begin, token]) for token in range(tokeniser.size)]
    return [
        "" if token in ends or not text.startswith(before) else text[len(before) :] for token, text in enumerate(pieces)
    ]

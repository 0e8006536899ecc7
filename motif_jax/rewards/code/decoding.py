"""Which tokens of a language model's tokeniser can follow a text, so that it can still become a reward program.

The tokens are kept as a tree of their characters, which is walked beside the speller, so tokens may end and begin
terminals. Within quotes nearly all tokens are allowed, unless texts are given: these are found by their lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from motif_jax.rewards.code.spelling import QUOTE, Speller, Spelling, is_plain
from motif_jax.rewards.code.tokens import MOST_CHARACTERS
from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser

KEPT = 1024  # masks; one has a byte per token


class ProgramGuide:
    """The masks of one world's programs for one tokeniser: a `Guide` of motif_jax/language/loaded.py."""

    def __init__(self, speller: Speller, tokeniser: Tokeniser, model: str, ends: tuple[int, ...], size: int):
        """Raises UserError if a program could not be written with these tokens.

        Args:
          ends: tokens that end a text.
          size: the number of tokens for which the model has logits.
        """
        self.speller, self.start, self._size = speller, speller.start, size
        self.ends: Sequence[int] = ends
        self.pieces = pieces_of(tokeniser, ends)
        if missing := speller.alphabet - {*self.pieces}:
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
            mask |= self._length <= MOST_CHARACTERS - spelling.length
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

"""The words of a game, the colours that a guess gets, and the words that are left after them.

The letter c of a guess at place i is green if the hidden word has it there, yellow if the word has it elsewhere, black
if it has none. Letters are not counted as in the usual game: each further copy of a letter that the word has is yellow.
The colours of a guess are one number, its letters' colours as digits (0 black, 1 yellow, 2 green) to the base 3. A set
of words is an integer with a bit for each word: the words that fit all guesses so far are an intersection of such sets,
one per guess and colours.
"""

from __future__ import annotations

import functools
import itertools
import string
from pathlib import Path

import numpy as np

from motif_jax.structs import UserError
from motif_jax.system.foreign import read_text

LENGTH = 5  # letters of a word
COLOURS = ("<b>", "<y>", "<g>")  # by digit
PATTERNS = tuple("".join(digits) for digits in itertools.product(COLOURS, repeat=LENGTH))  # texts of all colours
ALL_GREEN = len(PATTERNS) - 1
# What a tokeniser of this game needs: the letters, the colours, and the marks that transcripts set between turns.
TOKENS = (*string.ascii_lowercase, "<g>", "<b>", "<y>", "<|pad|>", "</a>", "</s>", "<s>", "<a>", "</eod>")
LISTS = ("small", "larger")  # word lists of our own
FOLDER = Path(__file__).parent / "words"
MOST_WORDS = 65_536
FLAG = "--config.env.options"
TIE = 1e-9  # between scores in nats that are equal
PLACES = 3 ** np.arange(LENGTH - 1, -1, -1)


def is_guess(text: str) -> bool:
    """Whether the text is five letters a-z; it need not be a word."""
    return len(text) == LENGTH and text.isascii() and text.isalpha() and text.islower()


class Vocabulary:
    """The words that can be hidden."""

    def __init__(self, words: tuple[str, ...]):
        """Takes words of five letters a-z, each once."""
        self.words = words
        self.everything = (1 << len(words)) - 1
        self._letters = np.frombuffer("".join(words).encode(), np.uint8).reshape(-1, LENGTH)  # [V, 5]
        self._has = np.zeros((len(words), 128), bool)  # [V, character]
        self._has[np.arange(len(words))[:, None], self._letters] = True
        # Games share what was computed once. The limits keep the memory of large lists below a few hundred MB.
        self.colours = functools.lru_cache(4096)(self._colours)
        self.colours_if = functools.lru_cache(1024)(self._colours_if)
        self.fitting = functools.lru_cache(2**16)(self._fitting)
        self.members = functools.lru_cache(2**14)(self._members)
        self.most_telling = functools.lru_cache(2**14)(self._most_telling)

    def _colours(self, guess: str) -> np.ndarray:
        """The colours of a guess for each hidden word. [V] uint8"""
        letters = np.frombuffer(guess.encode(), np.uint8)  # [5]
        green = self._letters == letters
        digits = np.where(green, 2, self._has[:, letters])  # [V, 5]
        return (digits @ PLACES).astype(np.uint8)

    def _colours_if(self, hidden: int) -> np.ndarray:
        """The colours of each word as a guess, if the word of this index is hidden. [V] uint8"""
        green = self._letters == self._letters[hidden]
        digits = np.where(green, 2, self._has[hidden][self._letters])  # [V, 5]
        return (digits @ PLACES).astype(np.uint8)

    def _fitting(self, guess: str, colours: int) -> int:
        """The set of words for which a guess gets these colours."""
        return int.from_bytes(np.packbits(self.colours(guess) == colours, bitorder="little").tobytes(), "little")

    def _members(self, words: int) -> tuple[int, ...]:
        """The indices of the words in a set, in order."""
        size = -(-len(self.words) // 8)
        bits = np.unpackbits(np.frombuffer(words.to_bytes(size, "little"), np.uint8), bitorder="little")
        return tuple(np.flatnonzero(bits).tolist())

    def _most_telling(self, words: int) -> tuple[int, ...]:
        """Indices of the words in a set whose colours, as a guess, say most of which word of the set is hidden.

        Groups of n of the N words get the same colours: the largest log N - (sum of n log n) / N.
        """
        members = self.members(words)
        where, scores = np.array(members), []
        for index in members:
            # Sorted, so that equal groups in another order give the same sum.
            sizes = np.sort(np.bincount(self.colours(self.words[index])[where]))
            sizes = sizes[sizes > 0]
            scores.append(float(np.log(len(members)) - (sizes * np.log(sizes)).sum() / len(members)))
        best = max(scores) - TIE
        return tuple(index for index, score in zip(members, scores, strict=True) if score >= best)


def load_vocabulary(source: str) -> Vocabulary:
    """A word list: one of ours by name, or a file with a word per line; raises UserError for what cannot be one.

    As in the published lists, lines of other lengths are left out, and a word that comes twice counts once.
    """
    path = FOLDER / f"{source}.txt" if source in LISTS else Path(source)
    try:
        lines = read_text(path).split("\n")
    except (OSError, ValueError) as error:
        what = f"is none of {', '.join(LISTS)}, and cannot be read as a file: {error}"
        raise UserError(f"the word list {source!r} {what} ({FLAG})") from error
    found = {}
    for number, line in enumerate(lines, 1):
        word = line.strip().lower()
        if len(word) != LENGTH:
            continue
        if not is_guess(word):
            raise UserError(f"line {number} of the word list {source!r} is {word!r}, where letters a-z belong ({FLAG})")
        found[word] = number
    if not 2 <= len(found) <= MOST_WORDS:
        raise UserError(
            f"the word list {source!r} has {len(found):,} words of five letters, where a game needs 2 to "
            f"{MOST_WORDS:,} ({FLAG})"
        )
    return Vocabulary(tuple(found))

"""The words of a game, the colours of a guess, and the words that fit them.

A letter of a guess is green if the hidden word has it at the same place, yellow if the word has it elsewhere, and black
otherwise. As published, and unlike in the usual game, letters are not counted: each further copy of a letter of the
word is yellow. With `counted`, only as many copies are green or yellow as the word has, from left to right. The colours
of a guess are one number in base 3, with a digit per letter (0 black, 1 yellow, 2 green). A set of words is an integer
with a bit per word: the words that fit all guesses are the intersection of one such set per guess.
"""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import numpy as np

from motif_jax.envs.own_code import OPTIONS_FLAG
from motif_jax.structs import UserError
from motif_jax.system.foreign import read_text

LENGTH = 5  # letters of a word
COLOURS = ("<b>", "<y>", "<g>")  # by digit
PATTERNS = tuple("".join(digits) for digits in itertools.product(COLOURS, repeat=LENGTH))  # texts of all colours
ALL_GREEN = len(PATTERNS) - 1
LISTS = ("small", "larger")  # our word lists
FOLDER = Path(__file__).parent / "words"
MOST_WORDS = 65_536
TIE = 1e-9  # tolerance for equal scores, in nats
PLACES = 3 ** np.arange(LENGTH - 1, -1, -1)


def is_guess(text: str) -> bool:
    """Whether the text is five letters a-z; it need not be a word."""
    return len(text) == LENGTH and text.isascii() and text.isalpha() and text.islower()


def digits(colours: int) -> list[int]:
    """Returns the digit of each letter's colour."""
    return (colours // PLACES % 3).tolist()


class Vocabulary:
    """The words that can be hidden."""

    def __init__(self, words: tuple[str, ...], counted: bool = False):
        """Takes words of five letters a-z, each once; `counted`: see the module docstring."""
        self.words, self.counted = words, counted
        self.everything = (1 << len(words)) - 1
        self._letters = np.frombuffer("".join(words).encode(), np.uint8).reshape(-1, LENGTH)  # [V, 5]
        self._has = np.zeros((len(words), 128), bool)  # [V, character]
        self._has[np.arange(len(words))[:, None], self._letters] = True
        # Caches shared by all games. The limits keep the memory of large lists below a few hundred MB.
        self.colours = functools.lru_cache(4096)(self._colours)
        self.colours_if = functools.lru_cache(1024)(self._colours_if)
        self.fitting = functools.lru_cache(2**16)(self._fitting)
        self.members = functools.lru_cache(2**14)(self._members)
        self.most_telling = functools.lru_cache(2**14)(self._most_telling)

    def _colours(self, guess: str) -> np.ndarray:
        """Returns the colours of a guess for each hidden word. [V] uint8"""
        letters = np.frombuffer(guess.encode(), np.uint8)  # [5]
        return self._compare(letters[None], self._letters, self._has[:, letters])

    def _colours_if(self, hidden: int) -> np.ndarray:
        """Returns the colours of each word as a guess, given the index of the hidden word. [V] uint8"""
        return self._compare(self._letters, self._letters[hidden][None], self._has[hidden][self._letters])

    def _compare(self, guesses: np.ndarray, hidden: np.ndarray, has: np.ndarray) -> np.ndarray:
        """Returns colours. [V or 1, 5] letters of both, and [V, 5] which the hidden words have -> [V] uint8"""
        green = guesses == hidden
        yellow = _counted_yellow(guesses, hidden, green) if self.counted else has
        return (np.where(green, 2, yellow) @ PLACES).astype(np.uint8)

    def _fitting(self, guess: str, colours: int) -> int:
        """Returns the set of hidden words for which a guess gets these colours."""
        return int.from_bytes(np.packbits(self.colours(guess) == colours, bitorder="little").tobytes(), "little")

    def _members(self, words: int) -> tuple[int, ...]:
        """Returns the indices of the words in a set, in order."""
        size = -(-len(self.words) // 8)
        bits = np.unpackbits(np.frombuffer(words.to_bytes(size, "little"), np.uint8), bitorder="little")
        return tuple(np.flatnonzero(bits).tolist())

    def _most_telling(self, words: int) -> tuple[int, ...]:
        """Returns the indices of words in a set that, as guesses, have the largest expected information.

        It is log N - (sum of n log n) / N nats, where n of the N hidden words give the same colours.
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


def _counted_yellow(guesses: np.ndarray, hidden: np.ndarray, green: np.ndarray) -> np.ndarray:
    """Which letters of guesses are yellow, only as often as hidden words have them. See `Vocabulary._compare`."""
    same = guesses[:, :, None] == hidden[:, None, :]  # [V, places of the guess, places of the hidden word]
    left = (same & ~green[:, None, :]).sum(2)  # copies of the letter that are not green
    alike = (guesses[:, :, None] == guesses[:, None, :]) & ~green[:, None, :]
    return np.tril(alike, -1).sum(2) < left  # those before it have taken fewer


def load_vocabulary(source: str, counted: bool = False) -> Vocabulary:
    """Loads one of our word lists by name, or a file with a word per line; raises UserError for an invalid list.

    As in the published lists, lines of other lengths are skipped, and duplicates count once.
    """
    path = FOLDER / f"{source}.txt" if source in LISTS else Path(source)
    try:
        lines = read_text(path).split("\n")
    except (OSError, ValueError) as error:
        what = f"is not one of {', '.join(LISTS)}, and cannot be read as a file: {error}"
        raise UserError(f"the word list {source!r} {what} ({OPTIONS_FLAG})") from error
    words = [word for line in lines if len(word := line.strip().lower()) == LENGTH]
    if wrong := [word for word in words if not is_guess(word)]:
        raise UserError(f"the word list {source!r} has {wrong[0]!r}, where letters a-z belong ({OPTIONS_FLAG})")
    words = list(dict.fromkeys(words))
    if not 2 <= len(words) <= MOST_WORDS:
        raise UserError(
            f"the word list {source!r} has {len(words):,} words of five letters, but a game needs 2 to "
            f"{MOST_WORDS:,} ({OPTIONS_FLAG})"
        )
    return Vocabulary(tuple(words), counted)

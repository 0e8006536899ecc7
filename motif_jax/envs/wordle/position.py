"""The rules: six tries, and a hidden word that is drawn again before each guess.

It is drawn from all words that fit the guesses so far, so the guesses and colours are the full state: the game is
Markov. The reward is 0 for the right guess, -1 for any other. A text that is not five letters a-z costs a try.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from motif_jax.envs.wordle.vocabulary import ALL_GREEN, LENGTH, Vocabulary, is_guess

TRIES = 6


class Guess(NamedTuple):
    """A try."""

    text: str
    colours: int  # -1 for a text that is not five letters


class Position(NamedTuple):
    """A moment of the game."""

    fitting: int  # the possible hidden words, as a set of `Vocabulary`
    guesses: tuple[Guess, ...] = ()

    @property
    def won(self) -> bool:
        """Whether the last guess found the word."""
        return bool(self.guesses) and self.guesses[-1].colours == ALL_GREEN

    @property
    def over(self) -> bool:
        """Whether the game is over."""
        return self.won or len(self.guesses) >= TRIES

    @property
    def legal(self) -> list[str]:
        """The guesses that were five letters."""
        return [guess.text for guess in self.guesses if guess.colours >= 0]


class WordleView(NamedTuple):
    """The players' view of a game."""

    vocabulary: Vocabulary
    position: Position


def guess(vocabulary: Vocabulary, position: Position, text: str, rng: random.Random) -> Position:
    """Draws the hidden word and takes a guess; returns the position after it."""
    if not is_guess(text):
        return Position(position.fitting, (*position.guesses, Guess(text, -1)))
    members = vocabulary.members(position.fitting)
    hidden = members[int(rng.random() * len(members))]
    colours = int(vocabulary.colours(text)[hidden])
    return Position(position.fitting & vocabulary.fitting(text, colours), (*position.guesses, Guess(text, colours)))


def reward(position: Position) -> float:
    """Returns the reward of the last guess."""
    return 0.0 if position.won else -1.0


def best_colours(position: Position) -> dict[str, int]:
    """Returns the digit of the best colour so far of each guessed letter."""
    found: dict[str, int] = {}
    for text, colours in position.guesses:
        for place, letter in enumerate(text if colours >= 0 else ""):
            digit = colours // 3 ** (LENGTH - 1 - place) % 3
            found[letter] = max(found.get(letter, 0), digit)
    return found

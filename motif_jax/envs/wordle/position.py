"""The rules: six tries, and a hidden word that is drawn anew before each guess.

It is drawn among all words that fit the guesses so far, so that what is known says all there is to know: the game is
Markov. A guess that finds the word is worth 0, every other -1. A text that is not five letters a-z costs a try.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from motif_jax.envs.wordle.vocabulary import ALL_GREEN, LENGTH, Vocabulary, is_guess

TRIES = 6


class Guess(NamedTuple):
    """A try."""

    text: str
    colours: int  # -1 for what is not five letters


class Position(NamedTuple):
    """A moment of the game."""

    fitting: int  # the words that can be hidden, a set of `Vocabulary`
    guesses: tuple[Guess, ...] = ()

    @property
    def won(self) -> bool:
        """Whether the last guess found the word."""
        return bool(self.guesses) and self.guesses[-1].colours == ALL_GREEN

    @property
    def over(self) -> bool:
        """Whether no guess follows."""
        return self.won or len(self.guesses) >= TRIES

    @property
    def legal(self) -> list[str]:
        """The guesses that were five letters."""
        return [guess.text for guess in self.guesses if guess.colours >= 0]


class WordleView(NamedTuple):
    """What players see of a game."""

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
    """Of the last guess."""
    return 0.0 if position.won else -1.0


def best_colours(position: Position) -> dict[str, int]:
    """What is known of each letter that was guessed, for the picture: the digit of its best colour so far."""
    found: dict[str, int] = {}
    for text, colours in position.guesses:
        for place, letter in enumerate(text if colours >= 0 else ""):
            digit = colours // 3 ** (LENGTH - 1 - place) % 3
            found[letter] = max(found.get(letter, 0), digit)
    return found

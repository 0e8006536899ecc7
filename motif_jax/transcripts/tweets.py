"""Games of Wordle that people have tweeted, as rows of coloured squares; and games with words that show such rows.

A tweet shows the squares and not the words. `retrofit` draws words for them: a hidden word, and for each row a guess
that would have been coloured so. What colours a guess gets, a function of the game says: this file knows no rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.config.table import shown
from motif_jax.structs import UserError
from motif_jax.transcripts.imports import FLAG, csv_rows

SQUARES = {
    **dict.fromkeys("\U0001f7e9\U0001f7e7", "g"),  # green; orange, where colours have a high contrast
    **dict.fromkeys("\U0001f7e8\U0001f7e6", "y"),  # yellow; blue
    **dict.fromkeys("\u2b1b\u2b1c", "b"),  # black; white
}
LETTERS, MOST_ROWS = 5, 6
WON = "g" * LETTERS
COLUMNS = 5  # the first is the number of the puzzle, the last the text


class Tweet(NamedTuple):
    """A game as it was tweeted: colours without words."""

    puzzle: int  # its number
    rows: tuple[str, ...]  # the colours of each guess: letters of "g", "y", "b"


class Game(NamedTuple):
    """A game with words, as numbers of a list of words."""

    hidden: int
    guesses: tuple[int, ...]


def read_tweets(file: Path) -> Iterator[Tweet]:
    """The games of a CSV file; tweets that show no game of one to six rows are left out."""
    for number, (where, row) in enumerate(csv_rows(file, FLAG)):
        if len(row) != COLUMNS:
            raise UserError(f"{where} has {len(row)} values, where {COLUMNS} are due ({FLAG})")
        if not re.fullmatch("[0-9]{1,9}", row[0].strip()):
            if not number:
                continue  # the header
            raise UserError(f"{where} has {shown(row[0])} where the number of a puzzle is due ({FLAG})")
        game = find_rows(row[-1])
        if game:
            yield Tweet(int(row[0]), game)


def find_rows(text: str) -> tuple[str, ...]:
    """The first block of lines with five squares each and nothing else.

    () if it has not one to six lines, or goes on after a line that is all green, as then it is no game.
    """
    found: list[str] = []
    for line in text.splitlines():
        squares = "".join(SQUARES.get(letter, "?") for letter in line.strip().replace("\ufe0f", ""))
        if len(squares) == LETTERS and "?" not in squares:
            found.append(squares)
        elif found:
            break
    return tuple(found) if len(found) <= MOST_ROWS and WON not in found[:-1] else ()


def code_of(row: str) -> int:
    """Colours as a number in base 3: b is 0, y is 1, g is 2; the first letter counts most."""
    code = 0
    for letter in row:
        code = 3 * code + "byg".index(letter)
    return code


def retrofit(
    tweets: Sequence[Tweet],
    colours_if: Callable[[int], np.ndarray],
    num_words: int,
    rng: np.random.Generator,
    count: int,
    max_tries: int = 10_000,
) -> Iterator[tuple[Tweet, Game]]:
    """Draws games with words: a tweet, a hidden word, and a guess for each row; all anew if a row has no guess.

    Args:
      tweets: where rows of colours come from; each game draws one. At least one.
      colours_if: of a hidden word, by its number: the colours of each guess, as `code_of` numbers them. [guesses]
      num_words: how many words can be hidden.
      rng: draws tweets and words.
      count: how many games.
      max_tries: draws in a row without a game after which UserError is raised.
    """
    codes = [np.array([code_of(row) for row in tweet.rows]) for tweet in tweets]
    for _ in range(count):
        for _ in range(max_tries):
            index = int(rng.integers(len(tweets)))
            tweet = tweets[index]
            word = int(rng.integers(num_words))
            colours = colours_if(word)
            fitting = [np.flatnonzero(colours == code) for code in codes[index]]
            if all(map(len, fitting)):
                yield tweet, Game(word, tuple(int(rng.choice(guesses)) for guesses in fitting))
                break
        else:
            raise UserError(
                f"{max_tries:,} tweets in a row show colours that no words of the list give: choose a longer list of "
                f"words (--config.env.options, {FLAG})"
            )

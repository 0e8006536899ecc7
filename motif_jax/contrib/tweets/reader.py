"""Reads tweeted games of Wordle, which are rows of coloured squares, and makes full games with the same colours.

A tweet lacks the words. `retrofit` draws them: a hidden word, and for each row a guess with these colours. As in ILQL's
code, a tweet with colours that the words cannot show is replaced by another, so that there is a game for each tweet.
Each game is then played by the rules of the world Wordle, with a single word that can be hidden.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.envs.wordle.world import LENGTH, PATTERNS, TRIES, Vocabulary, WordleWorld
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.envs.worlds import check_world
from motif_jax.structs import EndStatus, Episode, UserError
from motif_jax.transcripts.imports import FLAG, csv_rows

SQUARES = {
    **dict.fromkeys("\U0001f7e9\U0001f7e7", "g"),  # green; orange in high contrast
    **dict.fromkeys("\U0001f7e8\U0001f7e6", "y"),  # yellow; blue
    **dict.fromkeys("\u2b1b\u2b1c", "b"),  # black; white
}
WON = "g" * LENGTH
MOST_TRIES = 10_000  # draws for one game
COLUMNS = 5  # the first has the number of the puzzle, the last the text


class Tweet(NamedTuple):
    """A tweeted game: colours without words."""

    puzzle: int  # its number
    rows: tuple[str, ...]  # the colours of each guess, as letters "g", "y", "b"


def read_tweets(file: Path) -> Iterator[Tweet]:
    """Yields the games of a CSV file; skips tweets without a game of one to six rows."""
    for number, (where, row) in enumerate(csv_rows(file)):
        if len(row) == COLUMNS and re.fullmatch("[0-9]{1,9}", row[0].strip()):
            if rows := find_rows(row[-1]):
                yield Tweet(int(row[0]), rows)
        elif number or len(row) != COLUMNS:  # else it is the header
            raise UserError(f"{where} does not have {COLUMNS} values, first the number of a puzzle ({FLAG})")


def find_rows(text: str) -> tuple[str, ...]:
    """Returns the first block of lines that consist of five squares, as letters.

    Returns () if it is not a game: without one to six lines, or with a line after an all green one.
    """
    rows: list[str] = []
    for line in text.splitlines():
        squares = "".join(SQUARES.get(letter, "?") for letter in line.strip().replace("\ufe0f", ""))
        if len(squares) == LENGTH and "?" not in squares:
            rows.append(squares)
        elif rows:
            break
    return tuple(rows) if len(rows) <= TRIES and WON not in rows[:-1] else ()


def retrofit(
    tweets: Sequence[Tweet], colours_if: Callable[[int], np.ndarray], num_words: int, rng: np.random.Generator,
    count: int,
) -> Iterator[tuple[Tweet, int, list[int]]]:  # fmt: skip
    """Draws games with words: a tweet, a hidden word, and a guess per row; draws again if no guess fits a row.

    `colours_if` maps a hidden word to the colours of all guesses, as indices of PATTERNS. [guesses]
    """
    numbers = {text[1::3]: number for number, text in enumerate(PATTERNS)}
    codes = [[numbers[row] for row in tweet.rows] for tweet in tweets]
    for _ in range(count):
        for _ in range(MOST_TRIES):
            index = int(rng.integers(len(tweets)))
            tweet = tweets[index]
            word = int(rng.integers(num_words))
            colours = colours_if(word)
            fitting = [np.flatnonzero(colours == code) for code in codes[index]]
            if all(map(len, fitting)):
                yield tweet, word, [int(rng.choice(guesses)) for guesses in fitting]
                break
        else:
            problem = f"{MOST_TRIES:,} tweets in a row show colours that no words of the list give"
            raise UserError(f"{problem}: choose a longer list (--config.env.options, {FLAG})")


class Tweets:
    """The format `tweets` of `transcripts.import_format`."""

    @staticmethod
    def check(env: Mapping[str, Any]) -> WordleWorld:
        """Returns the world that tweets are imported into; raises UserError if it is not Wordle."""
        world = check_world(env)
        if not isinstance(world, WordleWorld):
            problem = f"tweets are imported into the world 'wordle', but the world is {world.name!r}"
            raise UserError(f"{problem} (--config.env.world, .options, --config.transcripts.import_format)")
        return world

    @staticmethod
    def episodes(files: Sequence[Path], env: Mapping[str, Any], seed: int) -> Iterator[Episode]:
        """Plays one game for each tweet that shows one; `info` has the number of the puzzle."""
        world = Tweets.check(env)
        tweets = [tweet for file in files for tweet in read_tweets(file)]
        words, rng = world.vocabulary, np.random.default_rng((seed, 2))
        games = retrofit(tweets, words.colours_if, len(words.words), rng, len(tweets))
        for number, (tweet, hidden, guesses) in enumerate(games):
            game = world.game_with(Vocabulary((words.words[hidden],), words.counted))
            game.begin(game_seed(seed, SeedStream.COLLECT, number), number)
            for guess in guesses:
                if game.end == EndStatus.RUNNING:  # --config.env.max_episode_steps may end it
                    game.say(words.words[guess])
            yield game.record(puzzle=tweet.puzzle)

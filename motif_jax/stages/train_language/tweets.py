"""Games that people have tweeted, as episodes of the world Wordle: words are drawn that show the colours of the tweets.

As in the code of ILQL, a tweet whose colours no words show is replaced by another, so that there are as many games as
tweets. Each is played by the rules of the world, with one word that can be hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.envs.seeding import SeedStream, game_seed
from motif_jax.envs.settings import check_world
from motif_jax.envs.wordle.vocabulary import Vocabulary
from motif_jax.envs.wordle.world import WordleWorld
from motif_jax.structs import EndStatus, Episode, UserError
from motif_jax.transcripts.imports import FLAG
from motif_jax.transcripts.tweets import read_tweets, retrofit

TWEETS = "tweets"  # a format of what is imported


def wordle_of(env: Mapping[str, Any]) -> WordleWorld:
    """The world of the config, whose words are drawn for tweets; raises UserError if it is not Wordle."""
    world = check_world(env)
    if not isinstance(world, WordleWorld):
        raise UserError(
            f"words are drawn for tweets from the list of the world Wordle, and the world is {world.name!r}: set "
            "--config.env.world=wordle, and its list with --config.env.options (--config.transcripts.import_format)"
        )
    return world


def tweeted_games(files: list[Path], world: WordleWorld, seed: int) -> Iterator[Episode]:
    """As many games as the files have tweets that show one. Their `info` has the number of the puzzle.

    Args:
      files: CSV files, as `read_tweets` reads them.
      world: has the words and the rules.
      seed: of the words.
    """
    tweets = [tweet for file in files for tweet in read_tweets(file)]
    if not tweets:
        raise UserError(f"no tweet in {', '.join(repr(str(file)) for file in files)} shows a game ({FLAG})")
    words, rng = world.vocabulary, np.random.default_rng((seed, 2))
    for number, (tweet, drawn) in enumerate(retrofit(tweets, words.colours_if, len(words.words), rng, len(tweets))):
        game = world.game_with(Vocabulary((words.words[drawn.hidden],)))
        game.begin(game_seed(seed, SeedStream.COLLECT, number), number)
        for guess in drawn.guesses:
            if game.end == EndStatus.RUNNING:  # --config.env.max_episode_steps may end it
                game.say(words.words[guess])
        yield game.record(puzzle=tweet.puzzle)

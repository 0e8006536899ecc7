"""Wordle as a world (`envs/world.py`): `--config.env.world=wordle`.

Options: `words`, one of our lists by name (`vocabulary.LISTS`) or a file with a word per line; `counted`, whether a
letter is green or yellow only as often as the hidden word has it, as in the usual game.
"""

from __future__ import annotations

import functools

from motif_jax.config.table import Flag, Text
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.wordle.game import WordleGame
from motif_jax.envs.wordle.players import MAKERS
from motif_jax.envs.wordle.vocabulary import FLAG, PATTERNS, Vocabulary, load_vocabulary

FIGURES: dict[str, type] = {"guesses": int, "malformed": int, "words_left": int}  # malformed: not five letters


class WordleWorld(TextWorld):
    """See the module docstring."""

    name = "wordle"
    about = "Wordle, a game in which a hidden word of five letters is guessed in six tries"
    figures = FIGURES
    written = 16  # more than five letters, so that a cut text is still too long
    heard = len(PATTERNS[0])
    makers = MAKERS

    def __init__(self, max_episode_steps: int = 5000, words: str = "small", counted: bool = False):
        super().__init__(max_episode_steps)
        Text(longest=4000).check("words", FLAG, words)
        Flag().check("counted", FLAG, counted)
        self._words, self._counted = words, counted

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The words, read on first use."""
        return load_vocabulary(self._words, self._counted)

    def check(self) -> None:
        self.vocabulary  # noqa: B018  (reads it)

    def game(self, shown: bool = True) -> WordleGame:
        return self.game_with(self.vocabulary)

    def game_with(self, vocabulary: Vocabulary) -> WordleGame:
        """Makes a game with other hidden words."""
        return WordleGame(vocabulary, written=self.written, heard=self.heard, time_limit=self.time_limit)

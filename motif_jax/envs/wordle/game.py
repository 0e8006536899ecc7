"""A game of Wordle (`envs/text_game.py`), and its screen. The agent writes `crane`, the world `<b><g><y><b><b>`.

There are six tries. The hidden word is drawn again before each guess, from all words that fit the guesses so far, so
the guesses and colours are the full state: the game is Markov. The reward is 0 for the right guess, -1 for any other.
A text that is not five letters a-z costs a try.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from motif_jax.envs.drawing import GREY, WHITE, Pieces
from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.wordle.vocabulary import ALL_GREEN, LENGTH, PATTERNS, Vocabulary, digits, is_guess
from motif_jax.screens import REVERSED, printable
from motif_jax.structs import EndStatus, Turn

TRIES = 6
WORDS = {"<g>": "green", "<y>": "yellow", "<b>": "black"}
LOST = "no tries are left"
BLACK, YELLOW, GREEN = 8, 11, 2
COLOURS = (BLACK, YELLOW, GREEN)  # of letters, by digit
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
WIDTH = 39
LISTED = 12  # fitting words on the screen


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


class WordleGame(TextGame):
    """See the module docstring."""

    def __init__(self, vocabulary: Vocabulary, *, written: int, heard: int, time_limit: int):
        super().__init__(written, heard, time_limit)
        self.vocabulary = vocabulary
        self.position = Position(vocabulary.everything)

    def open(self) -> str:
        self.position = Position(self.vocabulary.everything)
        return ""

    def answer(self, text: str) -> Answer:
        """See `TextGame`; a text that is not five letters is not answered."""
        self.position = guess(self.vocabulary, self.position, text, self.random)
        colours = self.position.guesses[-1].colours
        reply = PATTERNS[colours] if colours >= 0 else ""
        if self.position.won:
            return Answer(reply, reward(self.position), EndStatus.TASK_SUCCESSFUL)
        if self.position.over:
            return Answer(reply, reward(self.position), EndStatus.ENDED, LOST)
        return Answer(reply, reward(self.position))

    def draw(self, chance: float) -> str:
        return self.vocabulary.words[int(chance * len(self.vocabulary.words))]

    @property
    def hidden(self) -> Position:
        return self.position

    def restore(self, turns: Sequence[Turn], hidden: Any) -> None:
        self.position = hidden

    @property
    def steps(self) -> int:
        return len(self.position.guesses)

    def measure(self) -> tuple[float, ...]:
        legal = len(self.position.legal)
        return self.steps, self.steps - legal, self.position.fitting.bit_count()

    def caption(self) -> str:
        count = self.position.fitting.bit_count()
        fitting = f"{count:,} word{'s fit' if count > 1 else ' fits'}"
        if not self.position.guesses:
            return f"A word of five letters is hidden: {fitting}"
        text, colours = self.position.guesses[-1]
        if colours < 0:
            return f'"{text}" is not five letters: {fitting}'
        if self.position.won:
            return f"{text} is the word"
        names = " ".join(WORDS[f"<{letter}>"] for letter in PATTERNS[colours] if letter in "gyb")
        return f"{text} is {names}: {fitting}"

    def drawn(self) -> Sequence[Pieces]:
        """See `TextGame`: the guesses, the keys with their best colours so far, and some of the fitting words."""
        rows: list[Pieces] = []
        best: dict[str, int] = {}  # digit of a letter's best colour
        margin = (" " * ((WIDTH - 4 * LENGTH) // 2), GREY)
        for number in range(TRIES):
            if number >= len(self.position.guesses):
                rows.append([margin, *[(" _  ", BLACK)] * LENGTH])
            elif (guess := self.position.guesses[number]).colours < 0:
                rows.append([margin, (printable(guess.text)[:16] or "(nothing)", GREY)])
            else:
                row: Pieces = [margin]
                for letter, digit in zip(guess.text, digits(guess.colours), strict=True):
                    best[letter] = max(best.get(letter, 0), digit)
                    row += [(f" {letter.upper()} ", COLOURS[digit] + REVERSED), (" ", GREY)]
                rows.append(row)
            rows.append([])
        for keys in KEYS:
            space = (" " * ((WIDTH - 4 * len(keys)) // 2), GREY)
            rows.append([space, *((f" {key}  ", COLOURS[best[key]] if key in best else WHITE) for key in keys)])
        members = self.vocabulary.members(self.position.fitting)
        words = [self.vocabulary.words[index] for index in members[:LISTED]]
        dots = "" if len(members) <= LISTED else " ..."
        listed = [" ".join(words[:6]), " ".join(words[6:]) + dots]
        return [*rows, [], *([(line.center(WIDTH), GREY)] for line in listed)]

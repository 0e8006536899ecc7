"""A game of Wordle (`envs/text_game.py`), and its screen. The agent writes `crane`, the world `<b><g><y><b><b>`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from motif_jax.envs.drawing import GREY, WHITE, Pieces
from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.wordle.position import TRIES, Guess, Position, best_colours, guess, reward
from motif_jax.envs.wordle.vocabulary import LENGTH, PATTERNS, Vocabulary, is_guess
from motif_jax.screens import REVERSED, printable
from motif_jax.structs import EndStatus, Turn

NUMBERS = {text: number for number, text in enumerate(PATTERNS)}
WORDS = {"<g>": "green", "<y>": "yellow", "<b>": "black"}
LOST = "no tries are left"
BLACK, YELLOW, GREEN = 8, 11, 2
COLOURS = (BLACK, YELLOW, GREEN)  # of letters, by digit
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
WIDTH = 39
LISTED = 12  # fitting words on the screen


class WordleGame(TextGame):
    """See the module docstring."""

    def __init__(self, vocabulary: Vocabulary, *, written: int, heard: int, time_limit: int):
        super().__init__(written, heard, time_limit)
        self.vocabulary = vocabulary
        self.position = Position(vocabulary.everything)

    def open(self) -> str:
        """See `TextGame`; the agent begins."""
        self.position = Position(self.vocabulary.everything)
        return ""

    def answer(self, text: str) -> Answer:
        """See `TextGame`; a text that is not five letters is not answered."""
        self.position = guess(self.vocabulary, self.position, text, self.random)
        colours = self.position.guesses[-1].colours
        said = PATTERNS[colours] if colours >= 0 else ""
        if self.position.won:
            return Answer(said, reward(self.position), EndStatus.TASK_SUCCESSFUL)
        if self.position.over:
            return Answer(said, reward(self.position), EndStatus.ENDED, LOST)
        return Answer(said, reward(self.position))

    def draw(self, chance: float) -> str:
        """See `TextGame`: draws a word of the list."""
        return self.vocabulary.words[int(chance * len(self.vocabulary.words))]

    def restore(self, turns: Sequence[Turn], hidden: Any) -> None:
        """See `TextGame`: guesses and colours determine the position."""
        position = Position(self.vocabulary.everything)
        for number, turn in enumerate(turns):
            if not turn.is_action:
                continue
            said = turns[number + 1].text if number + 1 < len(turns) else ""
            colours = NUMBERS.get(said, -1) if is_guess(turn.text) else -1
            fitting = position.fitting
            if colours >= 0:
                fitting &= self.vocabulary.fitting(turn.text, colours)
            position = Position(fitting, (*position.guesses, Guess(turn.text, colours)))
        if not position.fitting:
            raise ValueError(f"no word of the list fits {[turn.text for turn in turns]}")
        self.position = position

    @property
    def steps(self) -> int:
        """Number of tries."""
        return len(self.position.guesses)

    def measure(self) -> tuple[float, ...]:
        """See `world.FIGURES`."""
        legal = len(self.position.legal)
        return self.steps, self.steps - legal, self.position.fitting.bit_count()

    def caption(self) -> str:
        """See `TextGame`."""
        left = self.position.fitting.bit_count()
        known = f"{left:,} word{'s fit' if left > 1 else ' fits'}"
        if not self.position.guesses:
            return f"A word of five letters is hidden: {known}"
        text, colours = self.position.guesses[-1]
        if colours < 0:
            return f'"{text}" is not five letters: {known}'
        if self.position.won:
            return f"{text} is the word"
        names = " ".join(WORDS[f"<{letter}>"] for letter in PATTERNS[colours] if letter in "gyb")
        return f"{text} is {names}: {known}"

    def drawn(self) -> Sequence[Pieces]:
        """See `TextGame`."""
        return draw_position(self.vocabulary, self.position)


def draw_position(vocabulary: Vocabulary, position: Position) -> Sequence[Pieces]:
    """Returns the rows of the screen."""
    rows: list[Pieces] = []
    margin = (" " * ((WIDTH - 4 * LENGTH) // 2), GREY)
    for number in range(TRIES):
        if number >= len(position.guesses):
            rows.append([margin, *[(" _  ", BLACK)] * LENGTH])
        elif (guess := position.guesses[number]).colours < 0:
            rows.append([margin, (printable(guess.text)[:16] or "(nothing)", GREY)])
        else:
            row: Pieces = [margin]
            for place, letter in enumerate(guess.text):
                digit = guess.colours // 3 ** (LENGTH - 1 - place) % 3
                row += [(f" {letter.upper()} ", COLOURS[digit] + REVERSED), (" ", GREY)]
            rows.append(row)
        rows.append([])
    known = best_colours(position)
    for keys in KEYS:
        space = (" " * ((WIDTH - 4 * len(keys)) // 2), GREY)
        rows.append([space, *((f" {key}  ", COLOURS[known[key]] if key in known else WHITE) for key in keys)])
    members = vocabulary.members(position.fitting)
    words = [vocabulary.words[index] for index in members[:LISTED]]
    more = "" if len(members) <= LISTED else " ..."
    listed = [" ".join(words[:6]), " ".join(words[6:]) + more]
    return [*rows, [], *([(line.center(WIDTH), GREY)] for line in listed)]

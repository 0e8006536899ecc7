"""The picture of a game: the tries with coloured letters, the letters of the keyboard, and the words that fit."""

from __future__ import annotations

from collections.abc import Sequence

from motif_jax.envs.drawing import GREY, WHITE, Pieces
from motif_jax.envs.wordle.position import TRIES, Position, best_colours
from motif_jax.envs.wordle.vocabulary import LENGTH, Vocabulary
from motif_jax.screens import REVERSED, printable

BLACK, YELLOW, GREEN = 8, 11, 2
COLOURS = (BLACK, YELLOW, GREEN)  # of letters, by digit
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
WIDTH = 39
LISTED = 12  # words that fit


def draw_position(vocabulary: Vocabulary, position: Position) -> Sequence[Pieces]:
    """The rows of the screen."""
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

"""Describes the player's view in sentences: a pure function of the image. The player's own cell has the carried object.

    image   kind, colour and state of each cell. [7, 7, 3] uint8; [column, row], column 0 leftmost, row 0 farthest

The order is: the carried object; the walls ahead, to the left and to the right; then objects and doors, column by
column from the left, the farthest of a column first.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from motif_jax.envs.babyai.words import COLOURS, DOOR, ENGLISH, Language

VIEW = 7  # cells on a side
COLUMN, ROW = 3, 6  # of the player, who faces row 0
UNSEEN, EMPTY, WALL = 0, 1, 2


def describe(image: np.ndarray, language: Language = ENGLISH, faithful_walls: bool = False) -> list[str]:
    """Returns the sentences.

    Args:
      image: [7, 7, 3] uint8, see the module docstring.
      language: the templates and words.
      faithful_walls: mention a wall even if an object lies before it. Otherwise, as published, objects hide walls from
        the sentences, though the image shows them. Doors always hide walls, because they replace a part of the wall.
    """
    cells = image.tolist()
    found = []
    kind, colour, _ = cells[COLUMN][ROW]
    if kind > WALL:
        words = {"kind": language.kinds[kind], "colour": language.colours[colour]}
        english = {"english_kind": ENGLISH.kinds[kind], "english_colour": COLOURS[colour]}
        found.append(language.carry.format(**words, **english))
    lines = (
        (language.forward, ((COLUMN, row) for row in range(ROW - 1, -1, -1))),
        (language.left, ((column, ROW) for column in range(COLUMN - 1, -1, -1))),
        (language.right, ((column, ROW) for column in range(COLUMN + 1, VIEW))),
    )
    for side, line in lines:
        if distance := _wall_at([cells[column][row][0] for column, row in line], faithful_walls):
            found.append(language.wall.format(place=_part(language, distance, side)))
    for column in range(VIEW):
        for row in range(VIEW):
            kind, colour, state = cells[column][row]
            if kind > WALL and (column, row) != (COLUMN, ROW):
                words = {"kind": language.kinds[kind], "colour": language.colours[colour]}
                words["place"] = _place(language, column - COLUMN, ROW - row)
                template = language.door if kind == DOOR else language.thing
                found.append(template.format(state=language.states[state], **words))
    return found


def _wall_at(kinds: Iterable[int], faithful: bool) -> int:
    """Returns the steps to the wall in a line of cells, the nearest first; 0 if it is not mentioned."""
    for distance, kind in enumerate(kinds, 1):
        if kind == WALL:
            return distance
        if kind > WALL and (kind == DOOR or not faithful):
            return 0
    return 0


def _place(language: Language, right: int, forward: int) -> str:
    parts = []
    if right:
        parts.append(_part(language, abs(right), language.right if right > 0 else language.left))
    if forward:
        parts.append(_part(language, forward, language.forward))
    return language.both.join(parts)


def _part(language: Language, count: int, side: str) -> str:
    return (language.step if count == 1 else language.steps).format(count=count, side=side)

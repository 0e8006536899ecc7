"""Describes the player's view in sentences, and moments in one-line English captions for a judge.

Both are pure functions of images. The player's own cell has the carried object.

    image   kind, colour and state of each cell. [7, 7, 3] uint8; [column, row], column 0 leftmost, row 0 farthest

The order of sentences is: the carried object; the walls ahead, to the left and to the right; then objects and doors,
column by column from the left, the farthest of a column first.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from motif_jax.envs.babyai.words import BOX, COLOURS, DOOR, ENGLISH, Wording

VIEW = 7  # cells on a side
COLUMN, ROW = 3, 6  # of the player, who faces row 0
UNSEEN, EMPTY, WALL = 0, 1, 2
FORWARD, PICK_UP, DROP, TOGGLE = 2, 3, 4, 5  # MiniGrid's numbers of actions
DONE = "You have done what you were asked to do."
OPEN, CLOSED, LOCKED = 0, 1, 2
Cell = tuple[int, int, int]


def describe(image: np.ndarray, language: Wording = ENGLISH, faithful_walls: bool = False) -> list[str]:
    """Returns the sentences.

    Args:
      image: [7, 7, 3] uint8, see the module docstring.
      language: the templates and words.
      faithful_walls: mention a wall even if an object lies before it. Otherwise, as published, objects hide walls from
        the sentences, though the image shows them. Doors always hide walls, because they replace a part of the wall.
    """
    cells = image.tolist()
    sentences = []
    kind, colour, _ = cells[COLUMN][ROW]
    if kind > WALL:
        words = {"kind": language.kinds[kind], "colour": language.colours[colour]}
        english = {"english_kind": ENGLISH.kinds[kind], "english_colour": COLOURS[colour]}
        sentences.append(language.carry.format(**words, **english))
    lines = (
        (language.forward, ((COLUMN, row) for row in range(ROW - 1, -1, -1))),
        (language.left, ((column, ROW) for column in range(COLUMN - 1, -1, -1))),
        (language.right, ((column, ROW) for column in range(COLUMN + 1, VIEW))),
    )
    for side, line in lines:
        if distance := _wall_at([cells[column][row][0] for column, row in line], faithful_walls):
            sentences.append(language.wall.format(place=_part(language, distance, side)))
    for column in range(VIEW):
        for row in range(VIEW):
            kind, colour, state = cells[column][row]
            if kind > WALL and (column, row) != (COLUMN, ROW):
                words = {"kind": language.kinds[kind], "colour": language.colours[colour]}
                words["place"] = place(language, column - COLUMN, ROW - row)
                template = language.door if kind == DOOR else language.thing
                sentences.append(template.format(state=language.states[state], **words))
    return sentences


def _wall_at(kinds: Iterable[int], faithful: bool) -> int:
    """Returns the steps to the wall in a line of cells, the nearest first; 0 if it is not mentioned."""
    for distance, kind in enumerate(kinds, 1):
        if kind == WALL:
            return distance
        if kind > WALL and (kind == DOOR or not faithful):
            return 0
    return 0


def place(language: Wording, right: int, forward: int) -> str:
    """Returns a place as steps to the right (negative: left) and forward."""
    parts = []
    if right:
        parts.append(_part(language, abs(right), language.right if right > 0 else language.left))
    if forward:
        parts.append(_part(language, forward, language.forward))
    return language.both.join(parts)


def _part(language: Wording, count: int, side: str) -> str:
    return (language.step if count == 1 else language.steps).format(count=count, side=side)


def caption(before: np.ndarray | None, action: int, after: np.ndarray, done: bool) -> str:
    """Returns the caption of a moment: the effect of the last action, or else the object right before the player.

    There are only a few hundred different captions, so a judge is seldom asked about a new one.

    Args:
      before: the view before the action; None at the beginning. [7, 7, 3]
      action: MiniGrid's action number.
      after: the current view. [7, 7, 3]
      done: whether the mission was accomplished.
    """
    happened = _happened(before, action, after) if before is not None else ""
    if done:
        return f"{happened} {DONE}".lstrip()
    if happened:
        return happened
    ahead = _ahead(after)
    return "The way ahead is free." if ahead[0] in (UNSEEN, EMPTY) else f"You stand before {_a(ahead)}."


def _happened(before: np.ndarray, action: int, after: np.ndarray) -> str:
    ahead, now = _ahead(before), _ahead(after)
    held, holds = _held(before), _held(after)
    if action == FORWARD and np.array_equal(before, after) and ahead[0] > EMPTY and not _is_open(ahead):
        return f"{_a(ahead).capitalize()} is in your way."
    if action == PICK_UP and holds != held:
        return f"You pick up {_a(holds)}."
    if action == DROP and holds != held:
        return f"You drop {_a(held)}."
    if action == TOGGLE and ahead[0] == DOOR:
        if now[2] == ahead[2]:
            return f"You cannot open {_a(ahead)} without its key."
        verb = "close" if now[2] != OPEN else "unlock and open" if ahead[2] == LOCKED else "open"
        return f"You {verb} a {_name(ahead)}."
    if action == TOGGLE and ahead[0] == BOX and now != ahead:
        return f"You open a {_name(ahead)}, which is gone."
    return ""


def _ahead(image: np.ndarray) -> Cell:
    return tuple(image[COLUMN, ROW - 1].tolist())


def _held(image: np.ndarray) -> Cell:
    return tuple(image[COLUMN, ROW].tolist())


def _is_open(cell: Cell) -> bool:
    return cell[0] == DOOR and cell[2] == OPEN


def _name(cell: Cell) -> str:
    return f"{ENGLISH.colours[cell[1]]} {ENGLISH.kinds[cell[0]]}"


def _a(cell: Cell) -> str:
    if cell[0] == WALL:
        return "a wall"
    state = f"{ENGLISH.states[cell[2]]} " if cell[0] == DOOR else ""
    return f"{'an' if state.startswith('o') else 'a'} {state}{_name(cell)}"

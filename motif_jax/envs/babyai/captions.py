"""One-line English captions for a judge: the effect of the last action, or else the object right before the player.

A caption is a function of the views before and after an action. There are only a few hundred different captions, so a
judge is seldom asked; the sentences give the positions of other objects.
"""

from __future__ import annotations

import numpy as np

from motif_jax.envs.babyai.describe import COLUMN, EMPTY, ROW, UNSEEN, WALL
from motif_jax.envs.babyai.words import BOX, DOOR, ENGLISH

FORWARD, PICK_UP, DROP, TOGGLE = 2, 3, 4, 5  # MiniGrid's numbers of actions
DONE = "You have done what you were asked to do."
OPEN, CLOSED, LOCKED = 0, 1, 2

Cell = tuple[int, int, int]


def caption(before: np.ndarray | None, action: int, after: np.ndarray, done: bool) -> str:
    """Returns the caption of a moment.

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

"""Draws a game for people: the whole grid on the left, the sentences of the player's view on the right."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

from motif_jax.envs.world import SCREEN_SHAPE, Screen

COLOURS = {"red": 9, "green": 10, "blue": 12, "purple": 13, "yellow": 11, "grey": 7}  # of a terminal
SHAPES = {"ball": "o", "key": "k", "box": "="}
WHITE, GREY, DARK, REVERSED = 15, 7, 8, 16
ARROWS = ">v<^"
GAP = 3  # columns to the right of the grid


def draw(env: RoomGridLevel, mission: str, caption: str, sentences: Sequence[str]) -> Screen:
    """Draws the mission, the caption, the grid with cells in view brighter, and the sentences.

    A locked door is a reversed `+`, a closed one a `+`, an open one a `'`.
    """
    rows, columns = SCREEN_SHAPE
    chars, colors = np.full(SCREEN_SHAPE, ord(" "), np.uint8), np.zeros(SCREEN_SHAPE, np.uint8)

    def write(row: int, column: int, text: str, color: int) -> None:
        if row < rows:
            codes = np.frombuffer(text.encode("latin-1", "replace")[: max(0, columns - column)], np.uint8)
            chars[row, column : column + len(codes)] = codes
            colors[row, column : column + len(codes)] = color

    write(0, 0, mission, WHITE)
    write(1, 0, caption, GREY)
    in_view = _in_view(env)
    top = 3 if env.height + 3 <= rows else 2  # rows above the grid
    player = int(env.agent_pos[0]), int(env.agent_pos[1])
    wide = 2 if 2 * env.width + GAP + 24 <= columns else 1  # columns of a cell
    for y in range(env.height):
        for x in range(env.width):
            if (x, y) == player:
                write(top + y, wide * x, ARROWS[env.agent_dir], WHITE)
            else:
                shape, color = _cell(env.grid.get(x, y), (x, y) in in_view)
                write(top + y, wide * x, shape, color)
                if shape == "#" and wide == 2 and x + 1 < env.width and _is_wall(env, x + 1, y):
                    write(top + y, wide * x + 1, shape, color)
    left = wide * env.width + GAP
    lines = [line for text in sentences for line in textwrap.wrap(text, columns - left, subsequent_indent="  ")]
    for number, line in enumerate(lines):
        write(top + number, left, line, GREY)
    at = min(top + player[1], rows - 1), wide * player[0]
    return Screen(chars, colors, np.array(at, np.uint8))


def _cell(thing: object, seen: bool) -> tuple[str, int]:
    kind, color = getattr(thing, "type", ""), COLOURS.get(getattr(thing, "color", ""), GREY)
    if thing is None:
        return ".", GREY if seen else DARK
    if kind == "wall":
        return "#", GREY if seen else DARK
    if kind == "door":
        locked, is_open = getattr(thing, "is_locked", False), getattr(thing, "is_open", False)
        return ("'" if is_open else "+"), color + REVERSED * locked
    return SHAPES.get(kind, "?"), color


def _is_wall(env: RoomGridLevel, x: int, y: int) -> bool:
    return getattr(env.grid.get(x, y), "type", "") == "wall"


def _in_view(env: RoomGridLevel) -> set[tuple[int, int]]:
    _, mask = env.gen_obs_grid()
    size = env.agent_view_size
    ahead, right = env.dir_vec, env.right_vec
    corner = env.agent_pos + ahead * (size - 1) - right * (size // 2)
    return {tuple((corner - ahead * j + right * i).tolist()) for i, j in np.argwhere(mask)}

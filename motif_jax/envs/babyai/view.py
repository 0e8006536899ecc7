"""MiniGrid's view of the agent, the same but several times as fast: `env.gen_obs = View(env)` for an unwrapped `env`.

MiniGrid cuts the cells in view out of its grid, turns them up to four times, and finds the visible ones cell by cell.
Here, both the places of the cells and how light spreads along a row are looked up.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from minigrid.core.constants import DIR_TO_VEC, OBJECT_TO_IDX
from minigrid.core.world_object import Wall

EMPTY = bytes([OBJECT_TO_IDX["empty"], 0, 0])


class View:
    """See the module docstring; for levels whose agent does not see through walls."""

    def __init__(self, env: Any):
        self.env, self.size = env, env.agent_view_size
        self.outside = Wall()

    def __call__(self) -> dict[str, Any]:
        """The observation: cells in view, direction and mission."""
        env, size, out = self.env, self.size, bytearray(3 * self.size**2)
        grid, (x, y) = env.grid, env.agent_pos
        cells = cells_at(size, grid.width, grid.height, int(x), int(y), env.agent_dir)([*grid.grid, self.outside])
        seen = 1 << size // 2  # bits of a row, beginning with the agent's
        for row in reversed(range(size)):
            line = cells[row * size : (row + 1) * size]
            opaque = 0
            for column, cell in enumerate(line):
                if cell is not None and not cell.see_behind():
                    opaque |= 1 << column
            columns, seen = spread(size, seen, opaque)
            for column in columns:
                cell, at = line[column], 3 * (column * size + row)
                out[at : at + 3] = EMPTY if cell is None else bytes(cell.encode())
            if not seen:
                break
        at = 3 * (size // 2 * size + size - 1)  # the agent's own cell shows what it carries
        out[at : at + 3] = bytes(env.carrying.encode()) if env.carrying else EMPTY
        image = np.frombuffer(out, np.uint8).reshape(size, size, 3)
        return {"image": image, "direction": env.agent_dir, "mission": env.mission}


@functools.cache
def cells_at(size: int, width: int, height: int, x: int, y: int, direction: int) -> Callable[..., tuple[Any, ...]]:
    """A function from all cells, and one for those outside, to those in view, row by row from the furthest."""
    (dx, dy), places = DIR_TO_VEC[direction].tolist(), []
    for ahead in reversed(range(size)):
        for side in range(-(size // 2), size // 2 + 1):
            i, j = x + ahead * dx - side * dy, y + ahead * dy + side * dx
            places.append(j * width + i if 0 <= i < width and 0 <= j < height else width * height)
    return operator.itemgetter(*places)


@functools.cache
def spread(size: int, seen: int, opaque: int) -> tuple[list[int], int]:
    """The visible columns of a row, and the bits of the row ahead that are seen through it.

    `seen`: bits of this row that are seen through the one before. `opaque`: bits of cells that block the view.
    """
    ahead = 0
    for columns, step in ((range(size - 1), 1), (range(size - 1, 0, -1), -1)):
        for column in columns:
            if seen >> column & ~opaque >> column & 1:
                seen |= 1 << column + step
                ahead |= 1 << column | 1 << column + step
    return [column for column in range(size) if seen >> column & 1], ahead

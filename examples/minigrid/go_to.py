"""A MiniGrid level as a world: a robot in a room of 8 x 8 cells is sent to one of several objects.

Its only reward comes at the end, 1 - 0.9 * steps / 64 in the cell before the object; random play seldom gets there.
"""

from pathlib import Path

import numpy as np
from minigrid.core.constants import COLOR_TO_IDX, IDX_TO_OBJECT, OBJECT_TO_IDX

from motif_jax.envs.gym_world import GymWorld

ROBOT = 3, 6  # its place in the 7 x 7 cells that it sees; it looks towards (3, 0)
NEAR = 3  # steps
SHAPES = {"wall": "#", "ball": "o", "key": "f", "box": "=", "door": "+", "goal": "G"}
COLOURS = {"red": 9, "green": 10, "blue": 12, "purple": 13, "yellow": 11, "grey": 7}  # of a terminal
ARROWS = ">v<^"


class GoTo(GymWorld):
    """See the module docstring."""

    id = "BabyAI-GoToLocal-v0"
    about = "a room in which a robot is sent to an object, such as a red ball"
    texts = Path(__file__).parent
    kinds = {"image": "grid"}  # three numbers in each cell: what it is, its colour, its state

    def caption(self, observation, env):
        """Where the object is that the robot was sent to; otherwise what is right before the robot."""
        color, shape = observation["mission"].split()[-2:]
        seen = observation["image"]
        places = (seen[..., 0] == OBJECT_TO_IDX[shape]) & (seen[..., 1] == COLOR_TO_IDX[color])
        if not places.any():
            before = IDX_TO_OBJECT[int(seen[ROBOT[0], ROBOT[1] - 1, 0])]
            way = "The way ahead is free." if before == "empty" else f"A {before} is right ahead."
            return f"No {color} {shape} is in sight. {way}"
        sides, aheads = np.nonzero(places)
        side, ahead = min(zip(sides - ROBOT[0], ROBOT[1] - aheads, strict=True), key=lambda at: abs(at[0]) + at[1])
        if (side, ahead) == (0, 1):
            return f"You stand before the {color} {shape} you were sent to."
        if abs(side) + ahead <= NEAR:
            return f"You are near the {color} {shape} you were sent to."
        where = "straight ahead" if not side else "to the left" if side < 0 else "to the right"
        return f"You see the {color} {shape} you were sent to, {where}."

    def screen(self, env):
        """The room in colours, and the mission below it."""
        rows = []
        for y in range(env.height):
            row = []
            for x in range(env.width):
                cell = env.grid.get(x, y)
                if (x, y) == tuple(env.agent_pos):
                    row.append((ARROWS[env.agent_dir] + " ", 15))
                else:
                    row.append((SHAPES.get(cell.type, "?") + " ", COLOURS[cell.color]) if cell else (". ", 8))
            rows.append(row)
        return [*rows, "", f"mission: {env.mission}"]

"""A MiniGrid level as a world: take the key, open the door in the wall, and reach the goal behind it.

The game's only reward is at the goal, 1 - 0.9 * steps / 360; random play seldom gets there.
"""

from pathlib import Path

from minigrid.core.constants import OBJECT_TO_IDX

from examples.minigrid.go_to import ROBOT, GoTo
from motif_jax.envs.world import Viewpoint


class DoorKey(GoTo):
    """See the module docstring."""

    id = "MiniGrid-DoorKey-6x6-v0"
    about = "two rooms with a locked door between them: a robot takes the key, opens the door and goes to the goal"
    texts = Path(__file__).parent / "door_key_texts"
    reads = "image", "direction"  # the mission is always the same
    viewpoints = {"image": Viewpoint(*ROBOT, plane=0)}
    still = reads
    figures = {"key": bool, "door": bool}

    def caption(self, observation, env):
        """How far the robot has come, and whether it sees what it needs next."""
        door, before = _door(env), env.grid.get(*env.front_pos)
        if env.grid.get(*env.agent_pos) and env.grid.get(*env.agent_pos).type == "goal":
            return "You reach the goal."
        if door.is_open:
            state, wanted, name = "The door is open.", "goal", "the goal"
        elif env.carrying:
            state, wanted, name = "You carry the key.", "door", "the closed door"
        else:
            state, wanted, name = "You have no key.", "key", "the key"
        if before and before.type == wanted:
            return f"{state} You stand before {name}."
        seen = (observation["image"][..., 0] == OBJECT_TO_IDX[wanted]).any()
        return f"{state} You see {name}." if seen else f"{state} Nothing useful is in sight."

    def measure(self, env):
        """Whether the robot has the key, and whether the door is open."""
        return bool(env.carrying), _door(env).is_open


def _door(env):
    return next(cell for cell in env.grid.grid if cell and cell.type == "door")

"""The two levels of MiniGrid of the study (study.py), as worlds with captions.

The game's only reward is at the end, 1 - 0.9 * steps / (640 or 270).
"""

from pathlib import Path

from minigrid.core.constants import OBJECT_TO_IDX

from examples.minigrid.door_key import DoorKey
from motif_jax.envs.babyai.game import View


class Level(DoorKey):
    """A level whose observations are computed faster."""

    def make(self):
        env = super().make()
        env.unwrapped.gen_obs = View(env.unwrapped)
        return env


class DoorKey8(Level):
    """The room of examples/minigrid/door_key.py with 8 x 8 cells."""

    id = "MiniGrid-DoorKey-8x8-v0"


class KeyCorridor(Level):
    """A corridor with rooms: a key in one of them opens the door of another one, in which there is a ball."""

    id = "MiniGrid-KeyCorridorS3R3-v0"
    about = "a corridor with rooms: a robot finds the key, opens the locked door and picks up the ball behind it"
    texts = Path(__file__).parent / "key_corridor_texts"

    def caption(self, observation, env):
        """How far the robot has come, and whether it sees what it needs next."""
        before, carries = env.grid.get(*env.front_pos), env.carrying and env.carrying.type
        if carries == "ball":
            return "You pick up the ball."
        if not _locked(env):
            state, wanted, name = "The locked door is open.", "ball", "the ball"
        elif carries == "key":
            state, wanted, name = "You carry the key.", "door", "the locked door"
        else:
            state, wanted, name = "You have no key.", "key", "the key"
        if before and before.type == wanted and (wanted != "door" or before.is_locked):
            return f"{state} You stand before {name}."
        seen = (observation["image"][..., 0] == OBJECT_TO_IDX[wanted]).any()
        what = "a door" if wanted == "door" else name
        return f"{state} You see {what}." if seen else f"{state} Nothing useful is in sight."

    def measure(self, env):
        """Whether the robot has the key, and whether the locked door is open."""
        return bool(env.carrying and env.carrying.type == "key"), not _locked(env)


def _locked(env):
    return any(cell and cell.type == "door" and cell.is_locked for cell in env.grid.grid)

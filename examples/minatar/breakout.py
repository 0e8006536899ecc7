"""MinAtar's Breakout as a world, and an encoder of one's own for its pixels.

The screen has 10 x 10 squares and four channels: paddle, ball, the ball's trail, bricks. A brick is worth 1, and losing
the ball ends the episode (Young and Tian 2019, arXiv 1903.03176).
"""

import minatar.gym
from flax import nnx

from motif_jax.envs.gym_world import GymWorld

minatar.gym.register_envs()


class Breakout(GymWorld):
    """See the module docstring."""

    id = "MinAtar/Breakout-v1"
    about = "a game in which a paddle keeps a ball in play that breaks bricks"
    reads = ("observation",)
    action_names = ("stay", "left", "right")

    def caption(self, observation, env):
        """No learnt reward is used here, so no moment needs a caption."""
        return ""

    def screen(self, env):
        """The screen in characters."""
        state = env.game.state()
        drawn = [
            "".join(" =o.#"[1 + max(range(4), key=cell.__getitem__) if cell.any() else 0] for cell in row)
            for row in state
        ]
        return [f"|{row}|" for row in drawn]


class Encoder(nnx.Module):
    """One convolution and a layer, as published for MinAtar."""

    def __init__(self, specs, *, dtype, rngs):
        rows, columns, channels = specs["observation"].shape
        self.convolution = nnx.Conv(channels, 16, (3, 3), padding="VALID", dtype=dtype, rngs=rngs)
        self.layer = nnx.Linear((rows - 2) * (columns - 2) * 16, 128, dtype=dtype, rngs=rngs)

    def __call__(self, observations):
        pixels = observations["observation"].astype(self.layer.dtype)
        features = nnx.relu(self.convolution(pixels))
        return nnx.relu(self.layer(features.reshape(len(features), -1)))

"""Games whose actions are numbers or several choices."""

import gymnasium
import numpy as np
from gymnasium import spaces

from motif_jax.envs.gym_world import GymWorld

ACTIONS = {
    "numbers": spaces.Box(np.array([-1, 0], np.float64), np.array([1, 0.1], np.float64), dtype=np.float64),
    "choices": spaces.MultiDiscrete([3, 2], start=[-1, 0]),
    "switches": spaces.MultiBinary((2, 1)),
}


class Aim(gymnasium.Env):
    """One step: the closer the action is to what is shown, the better."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, actions="numbers"):
        self.action_space = ACTIONS[actions]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.action_space.seed(seed)
        self.target = np.asarray(self.action_space.sample(), float)
        return np.float32(self.target.ravel()), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return np.float32(self.target.ravel()), -float(np.abs(action - self.target).sum()), True, False, {}


class AimWorld(GymWorld):
    about = "a target"
    reads = ("observation",)

    def make(self):
        return Aim(**self.options)

    def caption(self, observation, env):
        return ""


class NamedWorld(AimWorld):
    @property
    def reads(self):
        return (self.options["name"],)

    def make(self):
        name = self.options["name"]
        return gymnasium.wrappers.TransformObservation(
            Aim(), lambda seen: {name: seen}, spaces.Dict({name: Aim.observation_space})
        )

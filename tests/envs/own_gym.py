"""Worlds made of an environment of gymnasium: some cannot be repeated, or take numbers or several choices."""

import gymnasium
import numpy as np
from gymnasium import spaces

from motif_jax.envs.gym_world import GymWorld


class Cart(GymWorld):
    """The cart with the pole, with a caption that depends on where it goes."""

    id = "CartPole-v1"
    about = "a cart on which a pole is balanced"

    def caption(self, observation, env):
        return "The pole leans left." if observation[2] < 0 else "The pole leans right."


class Alone(gymnasium.Wrapper):
    """Can exist once in a process."""

    there = False

    def __init__(self, env):
        assert not Alone.there, "there is another"
        super().__init__(env)
        Alone.there = True

    def close(self):
        Alone.there = False
        super().close()


class Only(Cart):
    def make(self):
        return Alone(super().make())


class Dice(gymnasium.Env):
    """Throws dice until a six comes, from randomness that is shared by all games and has no seed."""

    observation_space = spaces.Discrete(7)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.thrown = 0
        return 0, {}

    def step(self, action):
        self.thrown = np.random.randint(1, 7)
        return self.thrown, float(self.thrown), self.thrown == 6, False, {}


class SharedDice(Dice):
    """The same, but an episode begins with the seed, so that only other games change it."""

    def reset(self, *, seed=None, options=None):
        np.random.seed(seed % 2**32)
        return super().reset()


def world_of(game):
    class Thrown(GymWorld):
        about = "a game of dice"

        def make(self):
            return game()

        def caption(self, observation, env):
            return f"You throw a {env.thrown}"

        def succeeded(self, reward, env):
            return False

    return Thrown


Dice, SharedDice = world_of(Dice), world_of(SharedDice)
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


class Told(gymnasium.Env):
    """Pays the number of the action, of as many as are asked for."""

    observation_space = spaces.Discrete(2)

    def __init__(self, count):
        self.action_space = spaces.Discrete(count)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, float(action), False, False, {}


class ToldWorld(GymWorld):
    about = "a game of names"
    action_names = ("Go", "go", "stop ")

    def make(self):
        return Told(len(self.action_names))

    def caption(self, observation, env):
        return "You hear."

"""The garden as a world."""

from pathlib import Path

from examples.garden.game import Game  # a gymnasium.Env
from motif_jax.envs.gym_world import GymWorld


class Garden(GymWorld):
    """A gymnasium environment, with captions for a judge and with figures of what the player does."""

    about = "a garden with a cat, flowers and a pond"
    texts = Path(__file__).parent  # rate.toml: how the judge is asked
    reads = ("observation",)  # what the agent sees
    figures = {"pets": int, "kicks": int, "smells": int, "tramples": int, "places": int}
    action_names = Game.actions

    def make(self):
        return Game()

    def caption(self, observation, env):  # describes the moment, for the judge
        return env.said  # such as "You pet the cat. It purrs."

    def measure(self, env):  # of an episode, in the order of `figures`
        return *env.counts.values(), len(env.seen)

    def screen(self, env):  # for replays
        marks = dict.fromkeys(env.flowers, "*") | {15: "~", env.cat: "f", env.me: "@"}
        return ["".join(f" {marks.get(4 * y + x, '.')}" for x in range(4)) for y in range(4)]

"""Fixed prompts; a policy's action probabilities in them show its progress during training."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from motif_jax.envs.babyai.describe import COLUMN, EMPTY, ROW, VIEW, WALL, describe
from motif_jax.envs.babyai.missions import published_french, to_french
from motif_jax.envs.babyai.prompt import Prompt
from motif_jax.envs.babyai.settings import BabyAISettings
from motif_jax.envs.babyai.words import BALL, BOX, COLOURS, DOOR, KEY

LOCKED = 2  # state of a door
HERE = (0, 0)  # place of the carried object


class Thing(NamedTuple):
    """An object in view, by steps to the right (negative: left) and forward."""

    right: int
    forward: int
    kind: int
    colour: str


BESIDE = (Thing(-2, 4, BOX, "grey"), Thing(3, 1, KEY, "green"))  # distractors
SCENES: dict[str, tuple[str, tuple[Thing, ...]]] = {  # name: goal, objects in view
    "go to it, 3 steps ahead": ("go to the red ball", (*BESIDE, Thing(0, 3, BALL, "red"))),
    "go to it, 2 steps left": ("go to the red ball", (*BESIDE, Thing(-2, 0, BALL, "red"))),
    "go to it, 2 steps right": ("go to the red ball", (*BESIDE, Thing(2, 0, BALL, "red"))),
    "go to it, left and ahead": ("go to the red ball", (*BESIDE, Thing(-1, 2, BALL, "red"))),
    "go to it, not in sight": ("go to the red ball", BESIDE),
    "go to it, not in sight, wall ahead": ("go to the red ball", (*BESIDE, Thing(0, 1, WALL, "grey"))),
    "pick it up, right ahead": ("pick up the blue key", (*BESIDE, Thing(0, 1, KEY, "blue"))),
    "put it next to the box, box left and ahead": (
        "put the blue key next to the yellow box",
        (Thing(*HERE, KEY, "blue"), Thing(-1, 1, BOX, "yellow")),
    ),
    "open it, with its key, right ahead": (
        "open the purple door",
        (Thing(*HERE, KEY, "purple"), Thing(0, 1, DOOR, "purple")),
    ),
}


def make_probes(settings: BabyAISettings) -> dict[str, str]:
    """Returns the prompts by name."""
    return {name: _prompt(settings, goal, things) for name, (goal, things) in SCENES.items()}


def _prompt(settings: BabyAISettings, goal: str, things: tuple[Thing, ...]) -> str:
    image = np.zeros((VIEW, VIEW, 3), np.uint8)
    image[..., 0] = EMPTY
    for thing in things:
        state = LOCKED if thing.kind == DOOR else 0
        image[COLUMN + thing.right, ROW - thing.forward] = thing.kind, COLOURS.index(thing.colour), state
    if settings.french:
        goal = published_french(goal) if settings.reference_french else to_french(goal)
    prompt = Prompt(settings.words, settings.action_names, settings.window, settings.rewrite)
    sentences = describe(image, settings.words, settings.faithful_walls)
    prompt.begin(goal, lambda: sentences)
    return prompt.text()

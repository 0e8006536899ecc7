"""The text that a language model continues with an action: the possible actions, the goal, the last observations.

    Possible action of the agent: turn left, turn right, go forward, pick up, drop, toggle
     Goal of the agent: go to the red ball
     Observation 0: You see a wall 2 steps left, You see a red ball 1 step right,
     Action 0: turn right
     Observation 1: You see a red ball 1 step forward,
     Action 1:

Each line but the first begins with a space, and each but the last ends with one; the last ends with ": ".
`make_probes` makes fixed prompts; a policy's action probabilities in them show its progress during training.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from motif_jax.envs.babyai.describe import COLUMN, EMPTY, LOCKED, ROW, VIEW, WALL, describe
from motif_jax.envs.babyai.level_settings import BabyAISettings
from motif_jax.envs.babyai.words import BALL, BOX, COLOURS, DOOR, KEY, Wording
from motif_jax.envs.world import to_row
from motif_jax.structs import UserError

BYTES_FLAG = "--config.env.babyai.prompt_bytes"


class PromptStep(NamedTuple):
    """One observation in a prompt."""

    sentences: Callable[[], Sequence[str]]
    action: str  # the action before it; "" at the beginning


class Prompt:
    """The prompt of one game."""

    def __init__(self, language: Wording, actions: Sequence[str], window: int, rewrite: Callable[[str], str]):
        """Makes an empty prompt. `window`: maximum number of observations. `rewrite`: applied to the whole text."""
        self._language, self._rewrite = language, rewrite
        self._head = f"{language.actions} {', '.join(actions)}"
        self._steps: collections.deque[PromptStep] = collections.deque(maxlen=window)

    def begin(self, goal: str, sentences: Callable[[], Sequence[str]]) -> None:
        """Starts an episode; `sentences` computes those of the first observation on demand."""
        self.goal = goal
        self._steps.clear()
        self._steps.append(PromptStep(sentences, ""))

    def go_on(self, action: str, sentences: Callable[[], Sequence[str]]) -> None:
        """Adds an action and the observation that follows it."""
        self._steps.append(PromptStep(sentences, action))

    def text(self) -> str:
        language, steps = self._language, list(self._steps)
        actions = [*(step.action for step in steps[1:]), ""]
        text = f"{self._head} \n {language.goal} {self.goal}"
        for number, (step, action) in enumerate(zip(steps, actions, strict=True)):
            seen = "".join(f"{sentence}, " for sentence in step.sentences())
            text += f" \n {language.observation} {number}: {seen}\n {language.action} {number}: {action}"
        return self._rewrite(text)


def encode_prompt(text: str, length: int) -> np.ndarray:
    """Encodes a prompt as UTF-8 padded with zeros, [length] uint8; raises UserError if it is longer."""
    if (size := len(text.encode())) > length:
        raise UserError(
            f"a prompt of {size:,} bytes does not fit into {length:,} ({BYTES_FLAG}, or fewer observations: "
            f"--config.env.babyai.window): {text[:100]!r}..."
        )
    return to_row(text, length)


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
    prompt = Prompt(settings.words, settings.action_names, settings.window, settings.rewrite)
    sentences = describe(image, settings.words, settings.faithful_walls)
    prompt.begin(settings.goal(goal), lambda: sentences)
    return prompt.text()

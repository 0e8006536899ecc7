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
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from motif_jax.envs.babyai.level_settings import BabyAISettings
from motif_jax.envs.babyai.words import BALL, BOX, COLOURS, DOOR, ENGLISH, KEY, Wording
from motif_jax.envs.world import to_row
from motif_jax.structs import UserError

# Describes the player's view in sentences, and moments in one-line English captions for a judge.
#
# Both are pure functions of images. The player's own cell has the carried object.
#
#     image   kind, colour and state of each cell. [7, 7, 3] uint8; [column, row], column 0 leftmost, row 0 farthest
#
# The order of sentences is: the carried object; the walls ahead, to the left and to the right; then objects and doors,
# column by column from the left, the farthest of a column first.

VIEW = 7  # cells on a side
COLUMN, ROW = 3, 6  # of the player, who faces row 0
UNSEEN, EMPTY, WALL = 0, 1, 2
FORWARD, PICK_UP, DROP, TOGGLE = 2, 3, 4, 5  # MiniGrid's numbers of actions
DONE = "You have done what you were asked to do."
OPEN, CLOSED, LOCKED = 0, 1, 2
Cell = tuple[int, int, int]


def describe(image: np.ndarray, language: Wording = ENGLISH, faithful_walls: bool = False) -> list[str]:
    """Returns the sentences.

    Args:
      image: [7, 7, 3] uint8, see the module docstring.
      language: the templates and words.
      faithful_walls: mention a wall even if an object lies before it. Otherwise, as published, objects hide walls from
        the sentences, though the image shows them. Doors always hide walls, because they replace a part of the wall.
    """
    cells = image.tolist()
    sentences = []
    kind, colour, _ = cells[COLUMN][ROW]
    if kind > WALL:
        english = {"english_kind": ENGLISH.kinds[kind], "english_colour": COLOURS[colour]}
        sentences.append(language.carry.format(kind=language.kinds[kind], colour=language.colours[colour], **english))
    lines = (
        (language.forward, ((COLUMN, row) for row in range(ROW - 1, -1, -1))),
        (language.left, ((column, ROW) for column in range(COLUMN - 1, -1, -1))),
        (language.right, ((column, ROW) for column in range(COLUMN + 1, VIEW))),
    )
    for side, line in lines:
        if distance := _wall_at([cells[column][row][0] for column, row in line], faithful_walls):
            sentences.append(language.wall.format(place=_part(language, distance, side)))
    for column in range(VIEW):
        for row in range(VIEW):
            kind, colour, state = cells[column][row]
            if kind > WALL and (column, row) != (COLUMN, ROW):
                words = {"kind": language.kinds[kind], "colour": language.colours[colour]}
                words["place"] = place(language, column - COLUMN, ROW - row)
                template = language.door if kind == DOOR else language.thing
                sentences.append(template.format(state=language.states[state], **words))
    return sentences


def _wall_at(kinds: Iterable[int], faithful: bool) -> int:
    """Returns the steps to the wall in a line of cells, the nearest first; 0 if it is not mentioned."""
    for distance, kind in enumerate(kinds, 1):
        if kind == WALL:
            return distance
        if kind > WALL and (kind == DOOR or not faithful):
            return 0
    return 0


def place(language: Wording, right: int, forward: int) -> str:
    """Returns a place as steps to the right (negative: left) and forward."""
    aside = language.right if right > 0 else language.left
    parts = ((abs(right), aside), (forward, language.forward))
    return language.both.join(_part(language, count, side) for count, side in parts if count)


def _part(language: Wording, count: int, side: str) -> str:
    return (language.step if count == 1 else language.steps).format(count=count, side=side)


def caption(before: np.ndarray | None, action: int, after: np.ndarray, done: bool) -> str:
    """Returns the caption of a moment: the effect of the last action, or else the object right before the player.

    There are only a few hundred different captions, so a judge is seldom asked about a new one.

    Args:
      before: the view before the action; None at the beginning. [7, 7, 3]
      action: MiniGrid's action number.
      after: the current view. [7, 7, 3]
      done: whether the mission was accomplished.
    """
    happened = _happened(before, action, after) if before is not None else ""
    if done:
        return f"{happened} {DONE}".lstrip()
    if happened:
        return happened
    ahead = _cell(after, COLUMN, ROW - 1)
    return "The way ahead is free." if ahead[0] in (UNSEEN, EMPTY) else f"You stand before {_a(ahead)}."


def _happened(before: np.ndarray, action: int, after: np.ndarray) -> str:
    ahead, now = (_cell(image, COLUMN, ROW - 1) for image in (before, after))
    held, holds = (_cell(image, COLUMN, ROW) for image in (before, after))
    is_open = ahead[0] == DOOR and ahead[2] == OPEN
    if action == FORWARD and np.array_equal(before, after) and ahead[0] > EMPTY and not is_open:
        return f"{_a(ahead).capitalize()} is in your way."
    if action == PICK_UP and holds != held:
        return f"You pick up {_a(holds)}."
    if action == DROP and holds != held:
        return f"You drop {_a(held)}."
    if action == TOGGLE and ahead[0] == DOOR:
        if now[2] == ahead[2]:
            return f"You cannot open {_a(ahead)} without its key."
        verb = "close" if now[2] != OPEN else "unlock and open" if ahead[2] == LOCKED else "open"
        return f"You {verb} a {_name(ahead)}."
    if action == TOGGLE and ahead[0] == BOX and now != ahead:
        return f"You open a {_name(ahead)}, which is gone."
    return ""


def _cell(image: np.ndarray, column: int, row: int) -> Cell:
    return tuple(image[column, row].tolist())


def _name(cell: Cell) -> str:
    return f"{ENGLISH.colours[cell[1]]} {ENGLISH.kinds[cell[0]]}"


def _a(cell: Cell) -> str:
    if cell[0] == WALL:
        return "a wall"
    state = f"{ENGLISH.states[cell[2]]} " if cell[0] == DOOR else ""
    return f"{'an' if state.startswith('o') else 'a'} {state}{_name(cell)}"


BYTES_FLAG = "--config.env.babyai.prompt_bytes"


class Prompt:
    """The prompt of one game."""

    def __init__(self, language: Wording, actions: Sequence[str], window: int, rewrite: Callable[[str], str]):
        """Makes an empty prompt. `window`: maximum number of observations. `rewrite`: applied to the whole text."""
        self._language, self._rewrite = language, rewrite
        self._head = f"{language.actions} {', '.join(actions)}"
        self._steps: collections.deque[tuple[str, Callable[[], Sequence[str]]]] = collections.deque(maxlen=window)

    def begin(self, goal: str, sentences: Callable[[], Sequence[str]]) -> None:
        """Starts an episode; `sentences` computes those of the first observation on demand."""
        self.goal = goal
        self._steps.clear()
        self.go_on("", sentences)

    def go_on(self, action: str, sentences: Callable[[], Sequence[str]]) -> None:
        """Adds an action and the observation that follows it."""
        self._steps.append((action, sentences))

    def text(self) -> str:
        language, text = self._language, f"{self._head} \n {self._language.goal} {self.goal}"
        for number, (action, sentences) in enumerate(self._steps):
            seen = "".join(f"{sentence}, " for sentence in sentences())
            text += f"{action * bool(number)} \n {language.observation} {number}: {seen}\n {language.action} {number}: "
        return self._rewrite(text)


def encode_prompt(text: str, length: int) -> np.ndarray:
    """Encodes a prompt as UTF-8 padded with zeros, [length] uint8; raises UserError if it is longer."""
    if (size := len(text.encode())) > length:
        raise UserError(
            f"a prompt of {size:,} bytes does not fit into {length:,} ({BYTES_FLAG}, or fewer observations: "
            f"--config.env.babyai.window): {text[:100]!r}..."
        )
    return to_row(text, length)


# Goal and objects in view: steps to the right (negative: left) and forward, 0 and 0 if it is carried; kind; colour.
Things = tuple[tuple[int, int, int, str], ...]
BESIDE: Things = ((-2, 4, BOX, "grey"), (3, 1, KEY, "green"))  # distractors
SCENES: dict[str, tuple[str, Things]] = {
    "go to it, 3 steps ahead": ("go to the red ball", (*BESIDE, (0, 3, BALL, "red"))),
    "go to it, 2 steps left": ("go to the red ball", (*BESIDE, (-2, 0, BALL, "red"))),
    "go to it, 2 steps right": ("go to the red ball", (*BESIDE, (2, 0, BALL, "red"))),
    "go to it, left and ahead": ("go to the red ball", (*BESIDE, (-1, 2, BALL, "red"))),
    "go to it, not in sight": ("go to the red ball", BESIDE),
    "go to it, not in sight, wall ahead": ("go to the red ball", (*BESIDE, (0, 1, WALL, "grey"))),
    "pick it up, right ahead": ("pick up the blue key", (*BESIDE, (0, 1, KEY, "blue"))),
    "put it next to the box, box left and ahead": (
        "put the blue key next to the yellow box", ((0, 0, KEY, "blue"), (-1, 1, BOX, "yellow")),
    ),
    "open it, with its key, right ahead": (
        "open the purple door", ((0, 0, KEY, "purple"), (0, 1, DOOR, "purple")),
    ),
}  # fmt: skip


def make_probes(settings: BabyAISettings) -> dict[str, str]:
    """Returns the prompts by name."""
    return {name: _prompt(settings, goal, things) for name, (goal, things) in SCENES.items()}


def _prompt(settings: BabyAISettings, goal: str, things: Things) -> str:
    image = np.zeros((VIEW, VIEW, 3), np.uint8)
    image[..., 0] = EMPTY
    for right, forward, kind, colour in things:
        image[COLUMN + right, ROW - forward] = kind, COLOURS.index(colour), LOCKED if kind == DOOR else 0
    prompt = Prompt(settings.words, settings.action_names, settings.window, settings.rewrite)
    sentences = describe(image, settings.words, settings.faithful_walls)
    prompt.begin(settings.goal(goal), lambda: sentences)
    return prompt.text()

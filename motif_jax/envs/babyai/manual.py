"""Manuals: readable templates of right actions, for training a language model from scratch.

A manual is a TOML file; manuals/goto.toml explains the form. Its templates become pairs of a prompt, in the form of
BabyAI-Text, and the right action. The pairs are generated, not recorded from games.
"""

from __future__ import annotations

import operator
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.config.table import shown
from motif_jax.envs.babyai.words import CANONICAL, COLOURS, ENGLISH, HELD_OUT, NOUNS, place, prompt_text
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import LIMIT, read_bytes

SHIPPED = Path(__file__).parent / "manuals"
FLAG = "--config.transcripts.import_from"
MOST_STEPS = 6  # distance of objects and walls
MOST_OTHERS = 7  # visible objects in addition to the lesson's
MOST_EXAMPLES = 250_000  # of a manual; some formats keep twelve of each in memory
KINDS = tuple(NOUNS)


class Lesson(NamedTuple):
    """The right actions for a goal and a view, as templates."""

    goals: tuple[str, ...]  # one is drawn for each example
    see: tuple[str, ...]
    do: tuple[str, ...]  # actions; one is drawn for each example
    blocked: bool  # the lesson fills the cells straight ahead; otherwise the next cell is free
    examples: int  # number of examples to make


class Example(NamedTuple):
    """A prompt and the right action."""

    prompt: str
    action: str


def find_manual(name: str) -> Path:
    """Returns the file of a manual, given the name of a shipped one or a path."""
    shipped = SHIPPED / f"{name}.toml"
    file = shipped if re.fullmatch(r"\w+", name) and shipped.is_file() else Path(name)
    if not file.is_file():
        names = ", ".join(sorted(path.stem for path in SHIPPED.glob("*.toml")))
        raise UserError(f"there is no manual {name!r}: give a file, or choose from {names} ({FLAG})")
    return file


def read_manual(file: Path) -> list[Lesson]:
    """Reads the lessons of a manual; raises UserError if the file is not a manual."""
    with legible(f"{str(file)!r} as a manual", FLAG, TypeError, KeyError, RecursionError):
        manual = tomllib.loads(read_bytes(file, LIMIT).decode())
        goals, examples = dict(manual["goals"]), manual["examples"]
        lessons = [_read_lesson(goals, examples, **lesson) for lesson in manual["lesson"]]
        if not 0 < (count := sum(lesson.examples for lesson in lessons)) <= MOST_EXAMPLES:
            raise ValueError(f"its lessons have {shown(count)} examples, not 1 to {MOST_EXAMPLES:,}")
        return lessons


def _read_lesson(
    goals: Mapping[str, Any], examples: int, *, goal: Any, see: Any, do: Any, about: str = "", blocked: bool = False,
    weight: int = 1,
) -> Lesson:  # fmt: skip
    """A lesson from its table; raises ValueError, KeyError or TypeError if it is not one."""
    aims = [text for name in goal for text in goals[name]]
    if not aims or not do or not all(isinstance(texts, list) for texts in (see, do, *map(goals.get, goal))):
        raise ValueError("each lesson needs lists of goals, of what is seen, and of actions")
    words = _draw_words(random.Random(0))
    for text in (*aims, *see, *do):
        _fill(text, words)  # KeyError: an unknown placeholder
    count = operator.index(examples) * operator.index(weight)
    if count < 0:
        raise ValueError(f"a lesson has {shown(count)} examples")
    return Lesson(tuple(aims), tuple(see), tuple(do), blocked, count)


def make_examples(lessons: Sequence[Lesson], window: int) -> Iterator[Example]:
    """Yields the examples of all lessons.

    Placeholders never stand for a pair of colour and kind that is held out, as in MixedTrainLocal. `window`: maximum
    number of observations in a prompt; those before the last come from unrelated lessons.
    """
    rng = random.Random(0)
    for lesson in lessons:
        for _ in range(lesson.examples):
            words = _draw_words(rng)
            goal, action = (_fill(rng.choice(texts), words) for texts in (lesson.goals, lesson.do))
            before = [rng.choice(lessons) for _ in range(rng.randrange(window))]
            seen = [_sentences(shown, words, rng) for shown in (*before, lesson)]
            taken = [_fill(rng.choice(earlier.do), words) for earlier in before]
            yield Example(prompt_text(ENGLISH, CANONICAL, goal, zip(["", *taken], seen, strict=True)), action)


def _fill(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"{(\w*)}", lambda match: words[match[1]], text)


def _draw_words(rng: random.Random) -> dict[str, str]:
    things = [f"{colour} {kind}" for colour in COLOURS for kind in KINDS if f"{colour} {kind}" not in HELD_OUT]
    words = dict(zip(("thing", "second", "other"), rng.sample(things, 3), strict=True))
    far, far2 = (rng.randint(2, MOST_STEPS) for _ in range(2))
    some, some2 = (rng.randint(1, MOST_STEPS // 2) for _ in range(2))
    words |= {"the": rng.choice(("the", "a")), "side": rng.choice((ENGLISH.left, ENGLISH.right))}
    words |= {"near": _steps(1), "far": _steps(far), "far2": _steps(far2), "some": _steps(some), "some2": _steps(some2)}
    return words | {"colour": rng.choice([colour for colour in COLOURS if f"{colour} door" not in HELD_OUT])}


def _sentences(lesson: Lesson, words: Mapping[str, str], rng: random.Random) -> list[str]:
    """Returns the sentences of a view: walls, then the lesson's and other objects in random order."""
    things = [_fill(text, words) for text in lesson.see]
    carried = [text for text in things if text.startswith("You carry")]
    walls = [text for text in things if " wall " in text]
    things = [text for text in things if text not in carried and text not in walls]
    named = {words["thing"], words["second"], f"{words['colour']} key"}
    # The minimum of two draws favours simple rooms, from which words are learnt first.
    for _ in range(min(rng.randint(0, MOST_OTHERS), rng.randint(0, MOST_OTHERS))):
        thing = f"{rng.choice(COLOURS)} {rng.choice(KINDS)}"
        right, forward = rng.randint(-3, 3), rng.randint(0, MOST_STEPS)  # negative: steps to the left
        if thing not in named and (right or forward > 1):
            things.append(f"You see a {thing} {place(ENGLISH, right, forward)}")
    for side in (ENGLISH.forward, ENGLISH.left, ENGLISH.right):
        ahead = side == ENGLISH.forward
        if rng.random() < 0.4 and not (ahead and (lesson.blocked or walls)):
            count = rng.randint(2, MOST_STEPS) if ahead else rng.randint(1, 3)
            walls.append(f"You see a wall {_steps(count)} {side}")
    rng.shuffle(things)
    return [*carried, *walls, *things]


def _steps(count: int) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"

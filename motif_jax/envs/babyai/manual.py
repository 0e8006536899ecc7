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
from motif_jax.envs.babyai.words import CANONICAL, COLOURS, ENGLISH, HELD_OUT, NOUNS, all_words, place, prompt_text
from motif_jax.structs import Episode, Turn, UserError, legible
from motif_jax.system.foreign import LIMIT, read_bytes

SHIPPED = Path(__file__).parent / "manuals"
FLAG = "--config.transcripts.import_from"
MOST_STEPS = 6  # distance of objects and walls
MOST_OTHERS = 7  # visible objects in addition to the lesson's
MOST_EXAMPLES = 250_000  # of a manual; exercises make twelve of each, in memory
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


# Exercises in reading, for a new network: statements, then their first words again, which it completes.
#
#     You see a red ball 2 steps left, You see a blue key 3 steps forward, ... You see a blue key | 3 steps forward,
#
# A policy that plays must look up what its prompt says about the thing that its goal names. From a manual alone, new
# networks did not learn to (docs/reading.md). Exercises come in four kinds, in this order: statements of random words
# that begin with a word of their own; statements that begin with two words, most of which occur in other statements,
# too; prompts of random words, with a goal before the statements; and the lessons of manuals, with questions about
# what is seen in them. No goal and no question names a pair of colour and kind that is held out, as in
# MixedTrainLocal.

EXERCISES = "exercises"  # in place of a manual's file
WORDS, PAIRS, GOALS = 64_000, 32_000, 32_000  # exercises of each kind
LESSONS = 12  # examples of a lesson, for each that the manual asks for
REVIEW = 8  # lessons between two exercises of the other kinds
MOST_STATEMENTS = 8
QUESTIONS = 16  # about the statements of an exercise of the first two kinds
GOAL_QUESTIONS, LESSON_QUESTIONS = 4, 2  # about what a prompt with a goal shows, and a lesson, if there is anything
WORD = re.compile(r"\w+")  # one token
SEEN = re.compile(r"(You see a (?!wall)[\w ]*?) (\d+ steps? [\w ]*,)")

Statements = Sequence[tuple[str, str]]  # the beginning, and what completes it


def make_exercises(lessons: Sequence[Lesson], window: int) -> Iterator[Episode]:
    """Yields all exercises; what completes a statement is the agent's turn. `window`: see `make_examples`."""
    rng = random.Random(0)
    words = sorted({word for text in all_words() for word in text.split() if WORD.fullmatch(word)})
    kinds = (
        lambda: _exercise(_about_words(rng, words), rng),
        lambda: _exercise(_about_pairs(rng, words), rng),
        lambda: _with_goal(rng, words),
    )
    for kind, count in zip(kinds, (WORDS, PAIRS, GOALS), strict=True):
        yield from (kind() for _ in range(count))
    longer = [lesson._replace(examples=LESSONS * lesson.examples) for lesson in lessons]
    examples = list(make_examples(longer, window))
    rng.shuffle(examples)
    for number, example in enumerate(examples):
        yield _lesson(example, rng)
        if not number % REVIEW:  # otherwise the network forgets words that lessons do not use
            yield rng.choice(kinds)()


def _exercise(statements: Statements, rng: random.Random) -> Episode:
    statement = Turn(" ".join(f"{beginning} {rest}" for beginning, rest in statements))
    return Episode((statement, *_questions(statements, QUESTIONS, rng)), terminal=True)


def _with_goal(rng: random.Random, words: Sequence[str]) -> Episode:
    """A prompt of random words: the goal ends with the beginning of a statement, and the answer is the rest of it."""
    statements = rng.choice((_about_words, _about_pairs))(rng, words)
    named, answer = rng.choice(statements)
    asked = rng.sample(words, rng.randint(1, 3))
    if any(pair in " ".join(asked) for pair in HELD_OUT):
        asked.reverse()
    seen = [(f"You see a {beginning}", rest) for beginning, rest in statements]
    view = "".join(f"{beginning} {rest}, " for beginning, rest in seen)
    prompt = f"{ENGLISH.goal} {' '.join(asked)} the {named} \n {ENGLISH.observation} 0: {view}\n {ENGLISH.action} 0: "
    return Episode((Turn(prompt), Turn(answer, 0.0), *_questions(seen, GOAL_QUESTIONS, rng)), terminal=True)


def _lesson(example: Example, rng: random.Random) -> Episode:
    """An example, and questions about things that its prompt names once."""
    seen = SEEN.findall(example.prompt)
    names = [name for name, _ in seen]
    clear = [(name, where) for name, where in seen if names.count(name) == 1 and not name.endswith(HELD_OUT)]
    questions = _questions(clear, LESSON_QUESTIONS, rng) if clear else ()
    return Episode((Turn(example.prompt), Turn(example.action, 0.0), *questions), terminal=True)


def _questions(statements: Statements, count: int, rng: random.Random) -> Iterator[Turn]:
    for beginning, rest in rng.choices(statements, k=count):
        yield Turn(f" {beginning} ")
        yield Turn(rest, 0.0)


def _about_words(rng: random.Random, words: Sequence[str]) -> Statements:
    """Statements that each begin with a word of their own."""
    drawn = iter(rng.sample(words, 5 * MOST_STATEMENTS))
    return [
        (next(drawn), " ".join(next(drawn) for _ in range(rng.randint(1, 4))))
        for _ in range(rng.randint(3, MOST_STATEMENTS))
    ]


def _about_pairs(rng: random.Random, words: Sequence[str]) -> Statements:
    """Statements that begin with two of six words; most of these words occur in several statements."""
    drawn = rng.sample(words, 6 + 3 * MOST_STATEMENTS)
    pairs = [f"{first} {second}" for first in drawn[:3] for second in drawn[3:6]]
    pairs = [pair for pair in pairs if pair not in HELD_OUT]
    rest = iter(drawn[6:])
    return [
        (pair, " ".join(next(rest) for _ in range(rng.randint(1, 3))))
        for pair in rng.sample(pairs, min(rng.randint(3, MOST_STATEMENTS), len(pairs)))
    ]

"""Exercises in reading, for a new network: statements, then their first words again, which it completes.

    You see a red ball 2 steps left, You see a blue key 3 steps forward, ... You see a blue key | 3 steps forward,

A policy that plays must look up what its prompt says about the thing that its goal names. From a manual alone, new
networks did not learn to (docs/reading.md). Exercises come in four kinds, in this order: statements of random words
that begin with a word of their own; statements that begin with two words, most of which occur in other statements,
too; prompts of random words, with a goal before the statements; and the lessons of manuals, with questions about
what is seen in them. No goal and no question names a pair of colour and kind that is held out, as in
MixedTrainLocal.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.envs.babyai.manual import Example, Lesson, make_examples, read_manual
from motif_jax.envs.babyai.words import ENGLISH, HELD_OUT, all_words
from motif_jax.stages.train_language.manual import Manual
from motif_jax.structs import Episode, Turn
from motif_jax.transcripts.store import vocabulary

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


class Exercises(Manual):
    """The format `exercises` of `transcripts.import_format`: all words of the world, then exercises and lessons."""

    def episodes(self, files: Sequence[Path], env: Mapping[str, Any], seed: int) -> Iterator[Episode]:
        yield from vocabulary(all_words())
        yield from make_exercises([lesson for file in files for lesson in read_manual(file)], env["babyai"]["window"])


EXERCISES = Exercises()

"""A stand-in for a language model: rules over what the game says, transparent and deterministic.

Each rule has a pattern and a value per goal (rules.py); a caption is worth the sum of the rules that match it, and of
two captions the one worth more is better. Equal worth is a tie. A caption alone is helpful if it is worth more than 0.
It knows what a player would say at a glance and nothing else: it is here so that everything runs without a download,
and so that results can be checked against rules that one can read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from motif_jax.annotation.annotator import PAUSE, Answer, Question
from motif_jax.annotation.texts import LEXICON_FLAG, Texts
from motif_jax.structs import UserError

MAX_KNOWN = 100_000  # captions, so that memory stays bounded whatever the dataset


class Lexicon:
    """Answers by the rules of a game."""

    def __init__(self, texts: Texts, goal: str):
        """Takes what is said of the game, and one of its goals by name."""
        found = texts.rules()
        if not found.rules:
            raise UserError(
                f"this game has no lexicon: name a file of rules ({LEXICON_FLAG}), put a lexicon.toml where the "
                "world's `texts` points, or ask a language model (--config.annotate.backend=vllm or server)"
            )
        if goal not in texts.goals:
            raise UserError(
                f"the lexicon knows the goals {', '.join(texts.goals)}, and not {goal!r} (--config.annotate.goal): a "
                "goal in your own words needs a language model, --config.annotate.backend=vllm or server"
            )
        self._rules = [(rule.name, re.compile(rule.pattern), rule.worth_to(goal)) for rule in found.rules]
        self._known: dict[str, tuple[float, str]] = {}

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, Answer]]:
        """Answers the questions one by one, in order."""
        for question in questions:
            if question is not PAUSE:
                yield question, self.answer(question)

    def answer(self, question: Question) -> Answer:
        """The caption worth more is better; a caption alone is helpful if it is worth anything."""
        first, why_first = self.worth(question.first)
        if question.second is None:
            return Answer(float(first > 0), f"{why_first} ({first:+g})")
        second, why_second = self.worth(question.second)
        better = 0.5 if first == second else float(second > first)
        return Answer(better, f"1: {why_first} ({first:+g}); 2: {why_second} ({second:+g})")

    def worth(self, caption: str) -> tuple[float, str]:
        """What a caption is worth, and the rules that say so."""
        found = self._known.get(caption)
        if found is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            matched = [
                (name, value)
                for line in caption.split("\n")
                for name, pattern, value in self._rules
                if value and pattern.search(line)
            ]
            why = ", ".join(name for name, _ in matched) or "nothing of note"
            found = self._known[caption] = (sum(value for _, value in matched), why)
        return found

    def close(self) -> None:
        """Does nothing: there is nothing to release."""

"""The backend `lexicon`: rules over the game's messages, a deterministic stand-in for a language model.

Each rule has a pattern and a worth per goal (texts.py). A caption's worth is the sum over its matching rules. Of two
captions the one with the higher worth is better, and equal worths are a tie; with a temperature, the difference of
worth decides the probability. A single caption is helpful if its worth is above 0. The lexicon needs no download, and
results can be checked against its rules.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from motif_jax.annotation.annotator import Annotator, Question, QuestionAnswer
from motif_jax.envs.texts import LEXICON_FLAG, Texts, preference
from motif_jax.structs import UserError


class Lexicon(Annotator):
    """Answers questions by the rules of a game."""

    model = ""

    def __init__(self, texts: Texts, goal: str, temperature: float | None = None):
        """Checks that the game has rules. `temperature`: of probabilities (`rules.preference`); None: verdicts."""
        rules = texts.rules()
        if not rules.rules:
            raise UserError(
                f"this game has no lexicon: name a file of rules ({LEXICON_FLAG}), put a lexicon.toml where the "
                "world's `texts` points, or ask a language model (--config.annotate.backend=model, vllm or server)"
            )
        if goal not in texts.goals:
            raise UserError(
                f"the lexicon knows the goals {', '.join(texts.goals)}, and not {goal!r} (--config.annotate.goal): a "
                "goal in your own words needs a language model, --config.annotate.backend=model, vllm or server"
            )
        self._temperature = temperature
        self._worth = functools.lru_cache(100_000)(rules.worth_to(goal))

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        for question in filter(None, questions):  # without pauses
            yield question, self.answer(question)

    def answer(self, question: Question) -> QuestionAnswer:
        first, why_first = self.worth(question.first)
        if question.second is None:
            return QuestionAnswer(float(first > 0), f"{why_first} ({first:+g})")
        second, why_second = self.worth(question.second)
        better = preference(second - first, self._temperature)
        return QuestionAnswer(better, f"1: {why_first} ({first:+g}); 2: {why_second} ({second:+g})")

    def worth(self, caption: str) -> tuple[float, str]:
        value, names = self._worth(caption)
        return value, ", ".join(names) or "nothing of note"

"""All answers of a judge so far, in memory and in the answer cache on disk (answers.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.annotation.annotator import Question, QuestionAnswer
from motif_jax.annotation.answers import AnswerStore, read_answers


class AnswerMemory:
    """Answers by question. Answers without a verdict are not kept, so that the question is asked again."""

    def __init__(self, cache: Path | None, about: Mapping[str, Any], one: bool):
        """Reads the cache.

        If `cache` is None, nothing is kept on disk. `about`: everything the answers depend on; if empty, no answer is
        kept, because rules are fast.
        """
        self._answers: dict[Question, float] = {}
        self._remembers = bool(about)
        self._store = AnswerStore(cache, about) if cache is not None and about else None
        if self._store is not None:
            for question, answer in read_answers(self._store.folder, one):
                if answer.yes is not None:
                    self._answers[question] = answer.yes
            self._store.open()

    def get(self, question: Question) -> QuestionAnswer | None:
        """The earlier answer to a question, or None."""
        yes = self._answers.get(question)
        return None if yes is None else QuestionAnswer(yes)

    def add(self, question: Question, answer: QuestionAnswer) -> None:
        """Stores an answer; it is on disk about a second later."""
        if answer.yes is not None and self._remembers:
            self._answers[question] = answer.yes
        if self._store is not None:
            self._store.add([(question, answer)], at_once=False)

    def write(self) -> None:
        """Writes new answers to disk, unless the last write was less than a second ago."""
        if self._store is not None:
            self._store.write()

    def close(self) -> None:
        """Writes the remaining answers, and closes the file."""
        if self._store is not None:
            self._store.close()

"""The cache of one judge's answers, in memory and on disk, where all jobs that ask the same judge share it.

    <cache>/<model>-<mode>-<hash>/about.json     everything the answers depend on (backends.py)
    <cache>/<model>-<mode>-<hash>/*.jsonl        one line per answer, one file per job (system/shared_lines.py)

The folder's name contains a hash of everything the answers depend on, so answers of another judge cannot be mixed in.
The lines contain the captions, so that other datasets and people can use the answers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from motif_jax.annotation.annotator import Question, QuestionAnswer
from motif_jax.system.shared_lines import SharedLines, read_shared, slug

FLAG = "--config.annotate.cache_dir"


class AnswerCache:
    """Answers by question. Those without a verdict are written but not returned: such a question is asked again."""

    def __init__(self, metadata: Mapping[str, Any], cache: Path | None):
        """Reads earlier answers to a judge with this metadata. `cache`: None keeps them in memory only."""
        self._verdicts: dict[Question, float] = {}
        self._lines: SharedLines | None = None
        if cache is not None:
            words = (slug(str(metadata.get("model") or metadata["backend"])), metadata.get("mode"))
            self._lines = SharedLines(cache, "-".join(filter(None, words)), metadata, FLAG)
            for question, answer in read_answers(self._lines.folder):
                self._remember(question, answer)
            self._lines.open()

    @property
    def folder(self) -> Path | None:
        """The folder on disk; None if answers are kept in memory only."""
        return self._lines.folder if self._lines else None

    def get(self, question: Question) -> QuestionAnswer | None:
        """The earlier answer to a question, or None."""
        yes = self._verdicts.get(question)
        return None if yes is None else QuestionAnswer(yes)

    def add(self, question: Question, answer: QuestionAnswer) -> None:
        """Keeps an answer."""
        self._remember(question, answer)
        if self._lines:
            row: dict[str, Any] = {"first": question.first, "second": question.second}  # null: about one caption
            row["second_better"] = None if answer.yes is None else round(answer.yes, 6)
            row |= {"mass": round(answer.mass, 6)} if answer.mass != 1.0 else {}
            row |= {"said": answer.said} if answer.said else {}
            self._lines.add([row])

    def _remember(self, question: Question, answer: QuestionAnswer) -> None:
        if answer.yes is not None:  # many questions share a caption, which is stored once
            texts = (sys.intern(text) if text is not None else None for text in question)
            self._verdicts[Question(*texts)] = answer.yes  # type: ignore[arg-type]

    def close(self) -> None:
        """Syncs and closes the file."""
        if self._lines:
            self._lines.close()


def read_answers(folder: Path) -> Iterator[tuple[Question, QuestionAnswer]]:
    """Yields the answers of all jobs, including those without a verdict, in no particular order."""
    for row in read_shared(folder):
        answer = QuestionAnswer(row["second_better"], row.get("said", ""), row.get("mass", 1.0))
        yield Question(row["first"], row["second"]), answer

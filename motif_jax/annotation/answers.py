"""The answer cache on disk: a folder of JSON lines, shared by all runs with the same model, prompt and sampling.

    <cache>/<model>-<mode>-<hash>/about.json            model, prompt and sampling: everything the answers depend on
    <cache>/<model>-<mode>-<hash>/*.jsonl               one line per answer, one file per job (shared_lines.py)

The lines contain the captions, so that other datasets and people can use the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from motif_jax.annotation.annotator import Question, QuestionAnswer
from motif_jax.annotation.shared_lines import SharedLines, read_entries, slug


class AnswerStore:
    """The answers of one model to one prompt."""

    def __init__(self, cache: Path, about: Mapping[str, Any]):
        """Derives the folder from `about`; `open` it before adding answers."""
        name = f"{slug(str(about['model']))}-{about['mode']}"
        self._lines = SharedLines(cache, name, about, "--config.annotate.cache_dir")
        self.folder = self._lines.folder

    def open(self) -> None:
        self._lines.open()

    def add(self, answered: Iterable[tuple[Question, QuestionAnswer]], at_once: bool = True) -> None:
        """Appends answers to this job's file; without `at_once` they are on disk after a `write` a second later."""
        self._lines.add((_entry(question, answer) for question, answer in answered), at_once)

    def write(self) -> None:
        """Writes new answers to disk, unless the last write was less than a second ago."""
        self._lines.write()

    def close(self) -> None:
        """Writes the remaining answers and closes the file; removes an empty file."""
        self._lines.close()


def read_answers(folder: Path, one: bool = False) -> Iterator[tuple[Question, QuestionAnswer]]:
    """Yields the answers of all jobs, including those without a verdict, in no particular order.

    `one`: those about one caption instead of two.
    """
    for entry in read_entries(folder):
        found = _parse(entry, one)
        if found is not None:
            yield found


def _entry(question: Question, answer: QuestionAnswer) -> dict[str, Any]:
    entry: dict[str, Any] = {"first": question.first, "second": question.second}  # null: about one caption
    entry["second_better"] = None if answer.yes is None else round(answer.yes, 6)
    if answer.mass != 1.0:
        entry["mass"] = round(answer.mass, 6)
    if answer.said:
        entry["said"] = answer.said
    return entry


def _parse(entry: Mapping[str, Any], one: bool) -> tuple[Question, QuestionAnswer] | None:
    try:
        question = Question(entry["first"], entry["second"])
        yes, mass, said = entry["second_better"], entry.get("mass", 1.0), entry.get("said", "")
    except KeyError:
        return None
    if one != (question.second is None):
        return None
    if not all(isinstance(text, str) for text in (question.first, question.second or "", said)):
        return None
    if yes is not None and not (isinstance(yes, int | float) and 0 <= yes <= 1):
        return None
    return question, QuestionAnswer(yes, said, mass if isinstance(mass, int | float) and 0 <= mass <= 1 else 1.0)

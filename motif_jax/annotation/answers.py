"""Keeps answers on disk: a folder of JSON lines, shared by all runs that ask the same model the same way.

    <cache>/<model>-<mode>-<hash>/about.json            model, prompt, sampling: what the answers depend on
    <cache>/<model>-<mode>-<hash>/*.jsonl               one line per answer, one file per job (shared_lines.py)

The lines hold the captions, so that answers can be used for other datasets, and read by people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from motif_jax.annotation.annotator import Answer, Question
from motif_jax.annotation.shared_lines import SharedLines, read_entries, slug


class AnswerStore:
    """The answers of one model to one prompt."""

    def __init__(self, cache: Path, about: Mapping[str, Any]):
        """Derives the folder from `about`; `open` it before the first answer is added."""
        name = f"{slug(str(about['model']))}-{about['mode']}"
        self._lines = SharedLines(cache, name, about, "--config.annotate.cache_dir")
        self.folder = self._lines.folder

    def open(self) -> None:
        """Makes the file of this job."""
        self._lines.open()

    def add(self, answered: Iterable[tuple[Question, Answer]], at_once: bool = True) -> None:
        """Appends answers to this job's file; they are on disk when this returns, or if not `at_once`, see `write`."""
        self._lines.add((_entry(question, answer) for question, answer in answered), at_once)

    def write(self) -> None:
        """Forces answers to disk that were added a second ago or earlier."""
        self._lines.write()

    def close(self) -> None:
        """Writes what is left and closes the file; removes it if nothing was answered."""
        self._lines.close()


def read_answers(folder: Path, one: bool = False) -> Iterator[tuple[Question, Answer]]:
    """Reads the answers of all jobs, also those without a verdict, in no particular order.

    Args:
      folder: an `AnswerStore.folder`.
      one: reads the answers about one caption, rather than those about two.
    """
    for entry in read_entries(folder):
        found = _parse(entry, one)
        if found is not None:
            yield found


def _entry(question: Question, answer: Answer) -> dict[str, Any]:
    entry: dict[str, Any] = {"first": question.first, "second": question.second}  # null: asked about one
    entry["second_better"] = None if answer.yes is None else round(answer.yes, 6)
    if answer.mass != 1.0:
        entry["mass"] = round(answer.mass, 6)
    if answer.said:
        entry["said"] = answer.said
    return entry


def _parse(entry: Mapping[str, Any], one: bool) -> tuple[Question, Answer] | None:
    try:
        question = Question(entry["first"], entry["second"])
        yes, mass, said = entry["second_better"], entry.get("mass", 1.0), entry.get("said", "")
    except KeyError:
        return None
    if one != (question.second is None):
        return None  # of another question
    if not all(isinstance(text, str) for text in (question.first, question.second or "", said)):
        return None
    if yes is not None and not (isinstance(yes, int | float) and 0 <= yes <= 1):
        return None
    return question, Answer(yes, said, mass if isinstance(mass, int | float) and 0 <= mass <= 1 else 1.0)

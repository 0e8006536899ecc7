"""Keeps answers on disk: a folder of JSON lines, shared by all runs that ask the same model the same way.

    <cache>/<model>-<mode>-<hash>/about.json            model, prompt, sampling: what the answers depend on
    <cache>/<model>-<mode>-<hash>/<host>-<process>-<random>.jsonl     one line per answer, one file per job

Every job writes to a file of its own, so that jobs on several machines need no locks; a line that was cut off or
changed is not read, and its question is asked again. The lines hold the captions, so that answers can be used
for other datasets, and read by people.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from motif_jax.annotation.annotator import Answer, Question
from motif_jax.files import json_line, parse_json, write_json
from motif_jax.structs import UserError

LONGEST_LINE = 2**22  # bytes; longer lines were not written by this store and are skipped, piece by piece


class AnswerStore:
    """The answers of one model to one prompt."""

    def __init__(self, cache: Path, about: Mapping[str, Any]):
        """Derives the folder from `about`; `open` it before the first answer is added."""
        key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = cache / f"{slug(str(about['model']))}-{about['mode']}-{key}"
        self._about = dict(about)
        self._file: BinaryIO | None = None

    def add(self, answered: Iterable[tuple[Question, Answer]]) -> None:
        """Appends answers to this job's file and waits until they are on disk."""
        assert self._file is not None, "it is not open"
        lines = []
        for question, answer in answered:
            entry: dict[str, Any] = {"first": question.first, "second": question.second}  # null: asked about one
            entry["second_better"] = None if answer.yes is None else round(answer.yes, 6)
            if answer.mass != 1.0:
                entry["mass"] = round(answer.mass, 6)
            if answer.said:
                entry["said"] = answer.said
            lines.append(json_line(entry))
        if lines:
            with self._refusals():
                self._file.write("".join(lines).encode())
                self._file.flush()
                os.fsync(self._file.fileno())

    def open(self) -> None:
        """Makes the file of this job."""
        name = f"{slug(socket.gethostname())}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        with self._refusals():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / "about.json", self._about)
            self._file = open(self.folder / name, "xb")  # noqa: SIM115 - until close

    def close(self) -> None:
        """Closes the file, and removes it if nothing was answered."""
        if self._file is not None:
            with self._refusals():
                empty = self._file.tell() == 0
                self._file.close()
                if empty:
                    Path(self._file.name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turns errors of the file system into a UserError."""
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot write answers to {str(self.folder)!r}: {error.strerror} (--config.annotate.cache_dir)"
            ) from error


def read_answers(folder: Path, one: bool = False) -> Iterator[tuple[Question, Answer]]:
    """Reads the answers of all jobs, also those without a verdict, in no particular order.

    Args:
      folder: an `AnswerStore.folder`.
      one: reads the answers about one caption, rather than those about two.
    """
    for file in sorted(path for path in folder.glob("*.jsonl") if path.is_file()):
        with contextlib.suppress(FileNotFoundError), open(file, "rb") as lines:  # a job may delete its empty file
            for line in iter(functools.partial(lines.readline, LONGEST_LINE), b""):
                found = _parse(line, one)
                if found is not None:
                    yield found


def slug(text: str) -> str:
    """A file name made of the letters and digits of `text`, with hyphens and without dots."""
    return re.sub(r"[^a-z0-9]+", "-", Path(text).name.lower()).strip("-")[:48] or "unnamed"


def _parse(line: bytes, one: bool) -> tuple[Question, Answer] | None:
    if not line.endswith(b"\n"):
        return None  # the job was killed in the middle of it
    try:
        entry = parse_json(line)
        question = Question(entry["first"], entry["second"])
        yes, mass, said = entry["second_better"], entry.get("mass", 1.0), entry.get("said", "")
    except (ValueError, KeyError):
        return None
    if one != (question.second is None):
        return None  # of another question
    if not all(isinstance(text, str) for text in (question.first, question.second or "", said)):
        return None
    if yes is not None and not (isinstance(yes, int | float) and 0 <= yes <= 1):
        return None
    return question, Answer(yes, said, mass if isinstance(mass, int | float) and 0 <= mass <= 1 else 1.0)

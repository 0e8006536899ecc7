"""The report's warning of annotators of whose answers next to none could be read."""

from __future__ import annotations

from pathlib import Path

from motif_jax.annotation.readable import too_few
from motif_jax.pages.formats import esc
from motif_jax.rewards.choice import ONLINE
from motif_jax.stages.report.found import Kinds, checked, read_object, typed
from motif_jax.stages.report.parts import Found, Training

LOG: Kinds = {"model": str, "asked": int, "no_verdict": int}  # of an annotation's job


def warnings(found: Found) -> list[str]:
    """A sentence for each such annotator, as HTML."""
    return [
        f"<b>{f'Only {read:,}' if read else 'None'} of the {answers:,} answers of {esc(name)} could be read</b>, so "
        "they taught next to nothing."
        for name, (answers, read) in sorted(_counts(found.path, found.training).items())
        if too_few(read, answers, "")
    ]


def _counts(path: Path, training: Training | None) -> dict[str, tuple[int, int]]:
    """By annotator: its answers, and how many could be read. Also of annotations that were given up for that."""
    found: dict[str, tuple[int, int]] = {}

    def add(name: str, answers: int, read: int) -> None:
        before = found.get(name, (0, 0))
        found[name] = before[0] + answers, before[1] + read

    for file in sorted((path / "annotations").glob("*/shard-*.json")):
        record = read_object(file) or {"log": {}}
        with checked(file):
            log = typed(record["log"], LOG)
        asked = log.get("asked", 0)
        add(log.get("model") or file.parent.name, asked, asked - log.get("no_verdict", 0))
    if training:
        section, last = training.config.get("annotate") or {}, training.rows[-1]
        name = str(section.get("model") or section.get("backend") or "the judge")
        add(name, *(int(last.get(f"reward/{ONLINE}_{one}", 0)) for one in ("answers", "answers_read")))
    return found

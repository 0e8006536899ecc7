"""The report's warning of annotators of whose answers next to none could be read."""

from __future__ import annotations

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
        for name, answers, read in [*_of_annotations(found), *_of_training(found.training)]
        if too_few(read, answers, "")
    ]


def _of_annotations(workdir: Found) -> list[tuple[str, int, int]]:
    """The annotator of each annotation, its answers, and how many could be read; also of those that were given up.

    Once a reward is learnt, only of those that it was learnt from.
    """
    found: dict[str, tuple[str, int, int]] = {}
    for file in sorted((workdir.path / "annotations").glob("*/shard-*.json")):
        if workdir.learnt and file.parent.name not in workdir.learnt.annotators:
            continue
        record = read_object(file) or {"log": {}}
        with checked(file):
            log = typed(record["log"], LOG)
        folder, asked = file.parent.name, log.get("asked", 0)
        _, answers, read = found.get(folder, ("", 0, 0))
        found[folder] = log.get("model") or folder, answers + asked, read + asked - log.get("no_verdict", 0)
    return list(found.values())


def _of_training(training: Training | None) -> list[tuple[str, int, int]]:
    """The same of the judge that was asked during training."""
    if not training:
        return []
    section, last = training.config.get("annotate") or {}, training.rows[-1]
    name = str(section.get("model") or section.get("backend") or "the judge")
    answers, read = (int(last.get(f"reward/{ONLINE}_{figure}", 0)) for figure in ("answers", "answers_read"))
    return [(name, answers, read)]

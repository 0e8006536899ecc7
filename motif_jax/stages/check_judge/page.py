"""The page about a judge's trial."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from motif_jax.annotation.section import AnnotateSection
from motif_jax.files import write_whole
from motif_jax.pages.blocks import page, quoted, table, tiles
from motif_jax.pages.formats import esc
from motif_jax.run import StageRun
from motif_jax.stages.check_judge.trial import Answer, Trial, percent

SHOWN = 12  # answers of each kind
TITLE = "The judge"  # of the report's part


def write_page(stage: StageRun, trial: Trial, section: AnnotateSection) -> Path:
    """Writes `check_judge/index.html`, and the report's part."""
    name = " · ".join(
        esc(word) for word in (section.backend, trial.model, f"mode {section.mode}", section.goal) if word
    )
    verdict = f"Not good enough: {trial.problem}" if trial.problem else "Nothing speaks against this judge"
    head = [f'<p class="soft">{name}</p>', f"<p><b>{esc(verdict)}.</b></p>", tiles(_figures(trial))]
    path = stage.path / "index.html"
    text = page(
        f"The judge {trial.model or section.backend}", ["<h1>What is this judge worth?</h1>", *head, *_details(trial)]
    )
    write_whole(path, lambda file: file.write(text.encode("utf-8", "replace")))
    link = '<p class="soft"><a href="../check_judge/index.html">details</a></p>'
    stage.section(TITLE, *head, link)
    stage.report()
    return path


def _figures(trial: Trial) -> list[tuple[str, str]]:
    figures = [(percent(trial.decided), f"of {trial.decided.of:,} questions are decided; the others are ties")]
    if trial.agreement:
        figures.append(
            (percent(trial.agreement), f"of {trial.agreement.of:,} are decided as by the rules; chance is 50%")
        )
    if trial.reversals:
        figures.append((percent(trial.reversals), "change with the order of the two captions"))
    if trial.read.value < 1:
        figures.append((percent(trial.read), "of the answers have a verdict"))
    return [*figures, (f"{trial.seconds:,.0f} s", "for this trial")]


def _details(trial: Trial) -> list[str]:
    body = []
    if trial.margins:
        rows = [[f"{margin:g}", percent(decided), percent(agreement)] for margin, decided, agreement in trial.margins]
        body += [
            "<h2>Is it right where it is sure?</h2>",
            '<p class="soft">Answers as close as this to one half are ties: --config.annotate.tie_margin.</p>',
            table(("tie_margin", "decided", "as by the rules"), rows, numbers=(1, 2), kind="fits"),
        ]
        wrong = [one for one in trial.answers if (side(one.yes) * side(one.rules)) < 0]
        body += _examples("Surest answers that the rules contradict", wrong)
    return [*body, *_examples("Surest answers", trial.answers)]


def side(yes: float) -> float:
    """-1: the first, 0: a tie or no verdict, 1: the second."""
    return 0.0 if np.isnan(yes) else float(np.sign(yes - 0.5))


def _examples(title: str, answers: list[Answer]) -> list[str]:
    read = [one for one in answers if not np.isnan(one.yes)]
    rows = []
    for one in sorted(read, key=lambda one: -abs(one.yes - 0.5))[:SHOWN]:
        marks = ("better", "worse") if one.yes < 0.5 else ("worse", "better")
        captions = [
            f'<span class="{mark}">{quoted(text)}</span>'
            for mark, text in zip(marks, (one.first, one.second), strict=True)
        ]
        rules = {-1.0: "first", 0.0: "tie", 1.0: "second"}[side(one.rules)] if not np.isnan(one.rules) else "–"
        rows.append([*captions, f"{one.yes:.2f}", rules])
    head = ("first", "second", "P(second is better)", "by the rules")
    return [f"<h2>{title}</h2>", table(head, rows, numbers=(2,))] if rows else []

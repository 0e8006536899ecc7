"""The report's comparison of this run with others: what each was asked for, and what its agent then did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from motif_jax.charts import amount, curves, esc
from motif_jax.pages import table
from motif_jax.stages.report_found import link
from motif_jax.stages.report_head import annotator, duration
from motif_jax.stages.report_parts import Found
from motif_jax.stages.report_players import behaviours, figures_table
from motif_jax.stages.report_policy import CURVES, curve
from motif_jax.stages.report_reward import liked
from motif_jax.stages.reward_page import percent

SHOWN = 6  # captions of each reward
ALONE = ("train/entropy", "steps_per_s", "episode/steps")  # curves that tell nothing about what agents do


def of_runs(runs: Mapping[str, Found], home: Path) -> list[str]:
    """Side by side.

    Args:
      runs: by name, this one first.
      home: where the report lies.
    """
    body = [_origins(runs, home)]
    charts = []
    for name, title, note, _ in CURVES:
        lines = {run: curve(found.training, name) for run, found in runs.items() if found.training}
        if name in ALONE or not any(value for points in lines.values() for _, value in points):
            continue
        if name == "episode/intrinsic_return":
            note = "each by its own reward"
        charts.append(curves(lines, "steps", title=title, note=note))
    if charts:
        body += ["<h3>Training</h3>", f'<div class="charts">{"".join(charts)}</div>']
    played = [(run, found.own) for run, found in runs.items() if found.own]
    chance = next((found.chance for found in runs.values() if found.chance), None)
    named = [(run, player) for run, player in played if player] + ([("random play", chance)] if chance else [])
    if len(named) > 1:
        body += [
            "<h3>Evaluation</h3>",
            '<p class="soft">Means with 95 % bootstrap intervals.</p>',
            figures_table(named),
            *behaviours(named),
        ]
    likes = [
        f"<div><h3>{esc(run)} likes most</h3>{liked(found.learnt.captions['most'][:SHOWN])}</div>"
        for run, found in runs.items()
        if found.learnt and found.learnt.captions
    ]
    return [*body, f'<div class="pair">{"".join(likes)}</div>'] if likes else body


def _origins(runs: Mapping[str, Found], home: Path) -> str:
    """What each run was made of."""
    rows = []
    for run, found in runs.items():
        page = link(found.path / "report" / "index.html", home) if found.path.resolve() != home.resolve().parent else ""
        last = found.learnt.history[-1] if found.learnt and found.learnt.history else {}
        training = found.training
        rows.append([
            f'<a href="{esc(page)}">{esc(run)}</a>' if page else f"<b>{esc(run)}</b>",
            esc(found.goal or "–"),
            annotator(found) or "–",
            percent(last.get("accuracy")),
            amount(training.steps) if training else "–",
            duration(training.seconds) if training else "–",
        ])  # fmt: skip
    return table(("run", "asked for", "by", "accuracy of the reward", "steps", "trained for"), rows, (3, 4, 5))


def by_name(found: Sequence[Found]) -> dict[str, Found]:
    """Runs by the names of their directories, with as much of the path as tells them apart."""
    names: dict[str, Found] = {}
    for one in found:
        parts = one.path.resolve().parts
        same = [other.path.resolve().parts for other in found if other is not one]
        depth = 1
        while depth < len(parts) and any(other[-depth:] == parts[-depth:] for other in same):
            depth += 1
        names["/".join(parts[-depth:])] = one
    return names

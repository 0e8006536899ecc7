"""The report's part on options: who was in charge, for how long, and what each earned meanwhile."""

from __future__ import annotations

import re

from motif_jax.pages.blocks import table
from motif_jax.pages.charts import curves
from motif_jax.pages.formats import esc
from motif_jax.rewards.options import MIXTURES
from motif_jax.stages.report.parts import Training

CELL = '<span style="background:color-mix(in srgb, var(--first) {1}, transparent);padding:.2em .5em">{0:.4f}</span>'
EARNS = re.compile(r"option/(.+)/earns/(.+)")


def of_options(training: Training) -> list[str]:
    """The part, as HTML; empty for a policy without options."""
    rows = [row for row in training.rows if any(name.startswith("option/") for name in row)]
    if not rows:
        return []
    last = rows[-1]
    found = [match for name in last if (match := EARNS.fullmatch(name))]
    names, kinds = (list(dict.fromkeys(match[place] for match in found)) for place in (1, 2))

    def over_time(what: str) -> dict[str, list[tuple[float, float]]]:
        return {name: [(row["env_steps"], row[f"option/{name}/{what}"]) for row in rows] for name in names}

    cells = []
    for name in names:
        best = {kind: max(abs(last[f"option/{other}/earns/{kind}"]) for other in names) or 1.0 for kind in kinds}
        earned = [last[f"option/{name}/earns/{kind}"] for kind in kinds]
        shades = [max(value, 0.0) / best[kind] for value, kind in zip(earned, kinds, strict=True)]
        cells.append([
            esc(name), f"{last[f'option/{name}/share']:.1%}", f"{last[f'option/{name}/length']:.1f}",
            *(CELL.format(value, f"{shade * 0.35:.0%}") for value, shade in zip(earned, shades, strict=True)),
        ])  # fmt: skip
    mixed = training.settings.get("controller_chooses") == MIXTURES
    meaning = " A mixture counts for each of its options by its coefficient." if mixed else ""
    charts = [
        curves(over_time("share"), "steps", 0.0, 1.0, title="share of the time", note="in charge"),
        curves(over_time("length"), "steps", 0.0, title="length of a turn", note="game steps"),
    ]
    head = ["in charge", "of the time", "steps per turn", *(f"earns for {kind}" for kind in kinds)]
    return [
        "<h3>Options</h3>",
        '<p class="soft">The last figures of training. Each row shows what an option earned per step while it was in '
        f"charge, in the reward of each option and of the controller.{meaning}</p>",
        table(head, cells, range(1, len(head)), kind="fits"),
        f'<div class="charts">{"".join(charts)}</div>',
    ]

"""The report's charts of what a policy thinks of fixed prompts, update by update (train_policy/probes.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.pages.charts import COLOURS, Point, curves
from motif_jax.stages.report.found import checked
from motif_jax.stages.report.numbers import number
from motif_jax.system.files import read_json, read_lines
from motif_jax.system.metrics import PROBES, PROMPTS

LEAST = 0.02  # actions whose probability is always lower have no line

Lines = dict[str, dict[str, list[Point]]]  # by prompt and action: steps, and the action's probability


def find_probes(path: Path) -> Lines:
    """The probabilities of actions that the policy of a workdir gave while it learnt; empty if none were recorded."""
    file = path / "policy" / PROBES
    found: Lines = {}
    with checked(file):
        if not file.is_file() or not (path / "policy" / PROMPTS).is_file():
            return found
        names = [str(name) for name in read_json(path / "policy" / PROMPTS)["actions"]]
        for row in read_lines(file, appended=True):
            for prompt, odds in _mapping(row["probabilities"]).items():
                lines = found.setdefault(str(prompt), {name: [] for name in names})
                for name, odd in zip(names, odds, strict=True):
                    lines[name].append((number(row["env_steps"]), number(odd)))
    return found


def of_probes(found: Lines) -> list[str]:
    """A chart for each prompt, with a line for each action, as HTML."""
    if not found:
        return []
    names = list(dict.fromkeys(name for lines in found.values() for name in lines))
    colours = dict(zip(names, COLOURS * len(names), strict=False))
    charts = []
    for prompt, lines in found.items():
        shown = {name: points for name, points in lines.items() if max(odd for _, odd in points) >= LEAST}
        charts.append(curves(shown, "steps", 0.0, 1.0, title=prompt, colours=colours))
    return [
        "<h3>What it would do in fixed moments</h3>",
        '<p class="soft">Probabilities of the actions, behind prompts that stay the same.</p>',
        f'<div class="charts">{"".join(charts)}</div>',
    ]


def _mapping(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise ValueError("probabilities that are no mapping")
    return value

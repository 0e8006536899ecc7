"""The report's comparison of several runs: goals, training, evaluation, and rewards."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from motif_jax.pages.blocks import table
from motif_jax.pages.charts import COLOURS, curves
from motif_jax.pages.figures import curve, curves_of
from motif_jax.pages.formats import amount, duration, esc
from motif_jax.pages.players import behaviours, figures_table
from motif_jax.stages.report.record import RunRecord

ALONE = ("train/entropy", "steps_per_s", "episode/steps")  # not compared: curves that do not show behaviour


def of_runs(runs: Mapping[str, RunRecord], home: Path) -> list[str]:
    """The part that compares several runs, as HTML.

    Args:
      runs: workdirs by name, this one first.
      home: directory of the report.
    """
    differ = differences(list(runs.values()))
    body = [_origins(runs, home)]
    if differ:
        listed = "; ".join(f"{name}: {', '.join(values)}" for name, values in differ.items())
        body.append(f'<p class="soft">The games of these runs differ, so compare with care ({esc(listed)}).</p>')
    charts, colours = [], dict(zip(runs, COLOURS * len(runs), strict=False))
    metrics = (metric for found in runs.values() for row in found.rows for metric in row)
    for name, title, note, _ in curves_of(metrics):
        lines = {run: curve(found.rows, name) for run, found in runs.items()}
        lines = {run: points for run, points in lines.items() if any(value for _, value in points)}  # not always zero
        if name in ALONE or not lines:
            continue
        if name == "episode/intrinsic_return":
            note = "each by its own reward"
        charts.append(curves(lines, "steps", title=title, note=note, colours=colours))
    if charts:
        body += ["<h3>Training</h3>", f'<div class="charts">{"".join(charts)}</div>']
    played = [(run, found.own) for run, found in runs.items() if found.own]
    chance = next((found.chance for found in runs.values() if found.chance), None) if not differ else None
    named = [(run, player) for run, player in played if player] + ([("random play", chance)] if chance else [])
    if len(named) > 1:
        body += [
            "<h3>Evaluation</h3>",
            '<p class="soft">Means with 95 % bootstrap intervals.</p>',
            figures_table(named),
            *behaviours(named),
        ]
    likes = [
        f"<div><h3>{esc(run)} likes most</h3>{found.head.likes}</div>"
        for run, found in runs.items()
        if found.head.likes
    ]
    return [*body, f'<div class="pair">{"".join(likes)}</div>'] if likes else body


def _origins(runs: Mapping[str, RunRecord], home: Path) -> str:
    """A table of the runs: task, goal, annotator, accuracy, length of training."""
    rows = []
    for run, found in runs.items():
        page, head = link(found.path, home), found.head
        rows.append([
            f'<a href="{esc(page)}">{esc(run)}</a>' if page else f"<b>{esc(run)}</b>",
            _task(found),
            esc(head.goal or "–"),
            head.judge or "–",
            head.agreement or "–",
            amount(head.steps) if head.steps is not None else "–",
            duration(head.seconds) if head.seconds is not None else "–",
        ])  # fmt: skip
    return table(
        ("run", "task", "asked for", "by", "reward agrees with its labels", "steps", "trained for"), rows, (4, 5, 6)
    )


def link(workdir: Path, home: Path) -> str:
    """The path of a workdir's report relative to another report's directory `home`; "" without one."""
    page, home = (workdir / "report/index.html").resolve(), home.resolve()
    return Path(os.path.relpath(page, home)).as_posix() if page.is_file() and page.parent != home else ""


def _task(found: RunRecord) -> str:
    """The task of a run and its limit of steps, as HTML."""
    most = games(found).get("env.max_episode_steps")
    return esc(found.head.task or "–") + (f"<br><small class=soft>at most {esc(most)} steps</small>" if most else "")


def games(found: RunRecord) -> dict[str, str]:
    """The settings of the games, and the seed, if they are known."""
    config = found.head.config or {}
    known = {f"env.{name}": str(value) for name, value in config.get("env", {}).items()}
    if found.head.task:
        known["env.task"] = found.head.task
    return known | ({"seed": str(config["seed"])} if "seed" in config else {})


def differences(found: Sequence[RunRecord]) -> dict[str, list[str]]:
    """Settings of the games, and seeds, that differ between runs, with their values."""
    settings = [games(one) for one in found]
    names = dict.fromkeys(name for known in settings for name in known)
    values = {name: list(dict.fromkeys(known[name] for known in settings if name in known)) for name in names}
    return {name: kinds for name, kinds in values.items() if len(kinds) > 1}


def by_name(found: Sequence[RunRecord]) -> dict[str, RunRecord]:
    """Runs by the names of their directories, with as many parents as make the names unique."""
    names: dict[str, RunRecord] = {}
    for one in found:
        parts = one.path.resolve().parts
        same = [other.path.resolve().parts for other in found if other is not one]
        depth = 1
        while depth < len(parts) and any(other[-depth:] == parts[-depth:] for other in same):
            depth += 1
        names["/".join(parts[-depth:])] = one
    return names

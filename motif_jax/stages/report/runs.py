"""The report's comparison of several runs: goals, training, evaluation, and rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from motif_jax.pages.blocks import table
from motif_jax.pages.charts import COLOURS, curves
from motif_jax.pages.formats import amount, esc
from motif_jax.stages.report.figures import curves_of
from motif_jax.stages.report.found import link
from motif_jax.stages.report.head import annotator, duration, task_of
from motif_jax.stages.report.judge import find_judged
from motif_jax.stages.report.parts import Facts, Found
from motif_jax.stages.report.players import behaviours, figures_table
from motif_jax.stages.report.policy import curve
from motif_jax.stages.report.reward import liked
from motif_jax.stages.train_reward.page import percent, preferences, verdict

SHOWN = 6  # captions of each reward
ALONE = ("train/entropy", "steps_per_s", "episode/steps")  # not compared: curves that do not show behaviour


def of_runs(runs: Mapping[str, Found], home: Path) -> list[str]:
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
    metrics = (metric for found in runs.values() if found.training for row in found.training.rows for metric in row)
    for name, title, note, _ in curves_of(metrics):
        lines = {run: curve(found.training, name) for run, found in runs.items() if found.training}
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
        f"<div><h3>{esc(run)} likes most</h3>{liked(found.learnt.captions['most'][:SHOWN])}</div>"
        for run, found in runs.items()
        if found.learnt and found.learnt.captions
    ]
    return [*body, f'<div class="pair">{"".join(likes)}</div>'] if likes else body


def _origins(runs: Mapping[str, Found], home: Path) -> str:
    """A table of the runs: task, goal, annotator, accuracy, length of training."""
    rows = []
    for run, found in runs.items():
        page = link(found.path / "report" / "index.html", home) if found.path.resolve() != home.resolve().parent else ""
        last = found.learnt.history[-1] if found.learnt and found.learnt.history else {}
        training, judged = found.training, find_judged(found.path)
        rows.append([
            f'<a href="{esc(page)}">{esc(run)}</a>' if page else f"<b>{esc(run)}</b>",
            _task(found),
            esc(judged.schedule if judged else found.goal or "–"),
            (esc(", ".join(judged.by)) if judged else annotator(found)) or "–",
            _accuracy(last),
            amount(training.steps) if training else "–",
            duration(training.seconds) if training else "–",
        ])  # fmt: skip
    return table(
        ("run", "task", "asked for", "by", "reward agrees with its labels", "steps", "trained for"), rows, (4, 5, 6)
    )


def _accuracy(last: Facts) -> str:
    """The accuracy of a reward with its verdict, as HTML; a dash without a reward."""
    worth = (
        f"<br><small class=soft>of {esc(preferences(last))}: {esc(verdict(last))}</small>" if last.get("sided") else ""
    )
    return percent(last.get("accuracy")) + worth


def _task(found: Found) -> str:
    """The task of a run and its limit of steps, as HTML."""
    most = games(found).get("env.max_episode_steps")
    return esc(task_of(found) or "–") + (f"<br><small class=soft>at most {esc(most)} steps</small>" if most else "")


def games(found: Found) -> dict[str, str]:
    """The settings of the games, and the seed, if they are known."""
    config = found.training.config if found.training else {}
    known = {f"env.{name}": str(value) for name, value in config.get("env", {}).items()}
    if task := task_of(found):
        known["env.task"] = task
    return known | ({"seed": str(config["seed"])} if "seed" in config else {})


def differences(found: Sequence[Found]) -> dict[str, list[str]]:
    """Settings of the games, and seeds, that differ between runs, with their values."""
    settings = [games(one) for one in found]
    names = dict.fromkeys(name for known in settings for name in known)
    values = {name: list(dict.fromkeys(known[name] for known in settings if name in known)) for name in names}
    return {name: kinds for name, kinds in values.items() if len(kinds) > 1}


def by_name(found: Sequence[Found]) -> dict[str, Found]:
    """Runs by the names of their directories, with as many parents as make the names unique."""
    names: dict[str, Found] = {}
    for one in found:
        parts = one.path.resolve().parts
        same = [other.path.resolve().parts for other in found if other is not one]
        depth = 1
        while depth < len(parts) and any(other[-depth:] == parts[-depth:] for other in same):
            depth += 1
        names["/".join(parts[-depth:])] = one
    return names

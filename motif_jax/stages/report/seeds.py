"""The page about an experiment with several seeds: figures, comparisons and curves over them.

It links to the page of each run. A figure of a run is the mean over its evaluated episodes; intervals are over runs
with different seeds (over_seeds.py).
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.console import print_line
from motif_jax.files import write_whole
from motif_jax.pages.blocks import cell, noted, page, quoted, table
from motif_jax.pages.charts import COLOURS, curves, dots, reach
from motif_jax.pages.figures import better, curve, curves_of, in_order, words
from motif_jax.pages.formats import Interval, amount, duration, esc, exact, machine_words
from motif_jax.pages.over_seeds import band, estimate, improvement, interquartile_mean, seeds_needed
from motif_jax.pages.players import Player
from motif_jax.stages.report import RunRecord, differences, link, read_record
from motif_jax.structs import UserError
from motif_jax.system.runs import PlannedRun

CHANCE = "random play"
FEW = 5  # seeds: a claim about learning needs at least this many


class Variant(NamedTuple):
    """Runs with the same values and different seeds."""

    name: str
    seeds: list[int]
    runs: dict[int, RunRecord]  # runs with results, by seed


def write_page_over_seeds(runs: Sequence[PlannedRun], workdir: Path, arguments: Sequence[str] = ()) -> Path:
    """Writes the page about all runs, which `arguments` have run, and prints their figures; returns the file."""
    file = workdir / "report/index.html"
    variants = gather(runs, workdir)
    if not any(variant.runs for variant in variants):
        raise UserError(f"none of the {len(runs)} runs in {str(workdir)!r} has anything to report yet (--workdir)")
    blocks = body(variants, workdir, file.parent, arguments)
    write_whole(file, page(f"{workdir.resolve().name}: {len(runs)} runs", ["<main>", *blocks, "</main>"]))
    for rules, players in by_rules(variants):
        for name, scores in columns(players).items():
            means = (f"{figure} {estimate(values).spelt}" for figure, values in scores.items())
            print_line(f"{name}{rules}: {'; '.join(means)}")
    return file


def body(variants: Sequence[Variant], workdir: Path, home: Path, arguments: Sequence[str]) -> list[str]:
    """The page, as HTML."""
    seeds = max(len(variant.runs) for variant in variants)
    lines = [
        f'<p class="eyebrow">motif_jax · {esc(workdir.resolve().name)}</p><h1>{seeds} seeds'
        f"{f', {len(variants)} variants' if len(variants) > 1 else ''}</h1>",
        '<p class="lead">A dot is one run: the mean over its evaluated episodes. The mark is the mean over runs, the '
        "shade its 95 % interval over seeds (bootstrap).</p>",
    ]
    parts = []
    for rules, players in by_rules(variants):
        for name, every, runs in players:
            if missing := [str(seed) for seed in sorted(every) if seed not in runs or runs[seed].own is None]:
                who = esc((f" of {name}" if name else "") + rules)
                left_out = f"Not evaluated yet{who}: seed {', '.join(missing)}. They are left out."
                lines.append(f'<p class="absent">{left_out}</p>')
        scores, constant = without_constant(columns(players))
        if scores or constant:
            figures = figures_table(scores) if scores else ""
            parts.append((f"Figures over seeds{esc(rules)}", [figures, alike(constant)]))
        if len(scores) > 1:
            parts.append((f"Is it better{esc(rules)}?", [comparison(scores, has_one_reward(players))]))
    fewest = min(sum(run.evaluated is not None for run in variant.runs.values()) for variant in variants)
    if fewest < FEW:
        needs = f"A claim about learning needs at least {FEW} evaluated seeds; these are {fewest}."
        lines.append(f'<p class="absent">{needs}</p>')
    if charts := training(variants):
        parts.append(("Training", [f'<div class="charts">{"".join(charts)}</div>']))
    parts += [("The runs", [runs_table(variants, home)]), ("How it was made", [made_by(variants, arguments)])]
    for title, blocks in parts:
        lines += [f"<section><h2>{title}</h2>", *blocks, "</section>"]
    return lines


def alike(constant: Mapping[str, float]) -> str:
    """A sentence with the figures that are the same in every run, as HTML."""
    named = ", ".join(f"{words(figure)[0]} {exact(constant[figure])}" for figure in in_order(constant))
    return f'<p class="soft">The same in every run: {esc(named)}.</p>' if named else ""


def made_by(variants: Sequence[Variant], arguments: Sequence[str]) -> str:
    """A table of task, config, commit, machine and command, as HTML."""
    runs = [one for variant in variants for one in variant.runs.values()]
    tasks = [one.evaluated.task if one.evaluated else one.head.task or "" for one in runs]
    command = shlex.join(["python", "-m", "motif_jax.launch", *arguments]) if arguments else ""
    configs = [text for before, text in itertools.pairwise(arguments) if before in ("--config", "-config")]
    configs += [text.partition("=")[2] for text in arguments if re.match("--?config=", text)]
    rows = [
        ("task", [esc(task) for task in tasks]),
        ("config", [esc(text) for text in configs]),
        ("commit", [esc((one.head.machine or {}).get("commit", "")) for one in runs]),
        ("versions", [one.versions for one in runs]),
        ("machine", [machine_words(one.head.machine or {}) for one in runs]),
        ("command", [quoted(command)] if command else []),
    ]
    filled = [(name, "; ".join(dict.fromkeys(filter(None, values)))) for name, values in rows]
    return table(("", ""), [row for row in filled if row[1]], kind="fits")


def figures_table(variants: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """A row per figure: mean, interval, interquartile mean, and every seed as a dot."""
    rows, sheet = [], []
    figures = in_order(figure for scores in variants.values() for figure in scores)
    for figure in figures:
        values = {name: scores[figure] for name, scores in variants.items() if figure in scores}
        intervals = {name: estimate(array) for name, array in values.items()}
        ends = [Interval(float(end)) for array in values.values() for end in (array.min(), array.max())]
        low, high = reach([*intervals.values(), *ends])
        what, note = words(figure)
        side = better(figure, figures)
        cells = [noted(esc(what), "; ".join(filter(None, (note, f"{side} is better" if side else ""))))]
        for number, name in enumerate(variants):
            if name not in values:
                cells.append(cell(None))
                continue
            interval, middle = intervals[name], interquartile_mean(values[name])
            sheet.append((what, name, interval.mean, interval.low, interval.high, middle, len(values[name]), side))
            scale = dots(values[name].tolist(), interval, low, high, COLOURS[number % len(COLOURS)])
            cells.append(cell(interval, f" · IQM {exact(middle)}") + scale)
        rows.append(cells)
    head = ("figure", "of", "mean", "low", "high", "interquartile mean", "seeds", "better")
    return table(("", *variants), rows, kind="figures", sheet=(head, sheet))


def comparison(variants: Mapping[str, Mapping[str, np.ndarray]], one_reward: bool) -> str:
    """Each variant against random play, and the first one; learnt returns as well if they are of `one_reward`."""
    names = list(variants)
    pairs = [(name, CHANCE) for name in names if CHANCE in variants and name != CHANCE]
    pairs += [(name, names[0]) for name in names[1:] if name != CHANCE]
    figures = {figure for scores in variants.values() for figure in scores}
    rows = []
    for ours, theirs in pairs:
        shared = [figure for figure in variants[ours] if figure in variants[theirs]]
        for figure in (one for one in shared if one != "intrinsic_return" or one_reward):
            first, second = variants[ours][figure], variants[theirs][figure]
            side, needed = better(figure, figures), seeds_needed(first, second)
            sign = -1.0 if side == "lower" else 1.0
            rows.append([
                f"<b>{esc(ours)}</b> against {esc(theirs)}", esc(words(figure)[0]), side or "not known",
                f"{first.mean() - second.mean():+.2f}", improvement(sign * first, sign * second).spelt,
                "–" if needed is None else str(needed),
            ])  # fmt: skip
    return (
        '<p class="soft">The probability that a run with a new seed is better (higher, if the better side is not '
        "known; one half: no difference), and the number of seeds of each that shows a difference of this size four "
        "times out of five.</p>"
        + table(("", "figure", "better", "difference", "probability of improvement", "seeds needed"), rows, (3, 4, 5))
    )


def training(variants: Sequence[Variant]) -> list[str]:
    """Curves of training: the mean over the seeds of each variant, with its interval."""
    charts = []
    runs = [one for variant in variants for one in variant.runs.values()]
    for name, title, note in curves_of(metric for one in runs for row in one.rows for metric in row):
        rows = {variant.name or "mean over seeds": [one.rows for one in variant.runs.values()] for variant in variants}
        over = {label: band([points for one in runs if (points := curve(one, name))]) for label, runs in rows.items()}
        lines = {label: one[0] for label, one in over.items() if one}
        bands = {label: one[1] for label, one in over.items() if one}
        if len({value for points in lines.values() for _, value in points}) > 1:
            charts.append(curves(lines, "steps", title=title, note=note, bands=bands))
    return charts


def runs_table(variants: Sequence[Variant], home: Path) -> str:
    """All runs with links to their own pages; as CSV also with the figures of each."""
    rows, sheet = [], []
    runs = [(variant.name, seed, one) for variant in variants for seed, one in sorted(variant.runs.items())]
    figures = in_order(figure for _, _, one in runs if one.evaluated for figure in one.evaluated.figures)
    for name, seed, one in runs:
        target, title = link(one.path, home), f"{name} seed {seed}".strip()
        named = f'<a href="{esc(target)}">{esc(title)}</a>' if target else esc(title)
        done, own = one.head, one.evaluated.figures if one.evaluated else {}
        episodes = one.evaluated.episodes if one.evaluated else None
        rows.append([named, amount(done.steps), duration(done.seconds), "–" if episodes is None else f"{episodes:,}"])
        means = [interval.mean if (interval := own.get(figure)) else None for figure in figures]
        sheet.append((name, seed, done.steps, done.seconds, episodes, *means))
    head = ("variant", "seed", "steps", "seconds", "episodes", *(words(figure)[0] for figure in figures))
    names = ("run", "steps", "trained for", "episodes evaluated")
    return table(names, rows, (1, 2, 3), kind="fits", sheet=(head, sheet))


# ---- the figures


def gather(runs: Sequence[PlannedRun], workdir: Path) -> list[Variant]:
    """Reads the results of all runs and groups them by variant."""
    variants: dict[str, Variant] = {}
    for run in runs:
        variant = variants.setdefault(run.variant, Variant(run.variant, [], {}))
        variant.seeds.append(run.seed)
        one = read_record(workdir / run.folder)
        if one.rows or one.evaluated or one.head.asked:
            variant.runs[run.seed] = one
    return list(variants.values())


def by_rules(variants: Sequence[Variant]) -> list[tuple[str, list[Variant]]]:
    """The variants as each protocol evaluated them, first by the workdirs' own rules, with the end of its titles."""
    runs = [one for variant in variants for one in variant.runs.values()]
    own = [""] if any(one.players for one in runs) else []
    evaluations = []
    for protocol in dict.fromkeys([*own, *(name for one in runs for name in one.by_protocol)]) or [""]:
        players = [one._replace(runs={seed: run.by(protocol) for seed, run in one.runs.items()}) for one in variants]
        rules = next((one.rules for each in players for run in each.runs.values() for one in run.players), "")
        evaluations.append((f", {rules}" if rules else "", players))
    return evaluations


def columns(variants: Sequence[Variant]) -> dict[str, dict[str, np.ndarray]]:
    """The figures of each variant's policy and of random play: by name, by figure, a value per seed. [S] each"""
    scores_by_name: dict[str, dict[str, np.ndarray]] = {}
    for variant in variants:
        if decoded := by_decoding(variant):
            scores_by_name |= decoded
        else:
            scores_by_name[variant.name or "the agent"] = scores_of([one.own for one in variant.runs.values()])
    scores_by_name[CHANCE] = chance_over_seeds(variants)
    return {name: scores for name, scores in scores_by_name.items() if scores}


def chance_over_seeds(variants: Sequence[Variant]) -> dict[str, np.ndarray]:
    """The figures of random play: a value per seed, as variants repeat its games; {} if they play other games. [S]"""
    runs = [(seed, one) for variant in variants for seed, one in variant.runs.items() if one.chance]
    if differences([one for _, one in runs]).keys() - {"seed"}:
        return {}
    scores = scores_of([*{seed: one.chance for seed, one in runs}.values()])
    return {name: values for name, values in scores.items() if name != "intrinsic_return" or has_one_reward(variants)}


def has_one_reward(variants: Sequence[Variant]) -> bool:
    """Whether each seed has the same learnt reward in all variants."""
    players = [(seed, player) for variant in variants for seed, run in variant.runs.items()
               for player in (run.own, run.chance) if player]  # fmt: skip
    return len({(seed, player.reward) for seed, player in players}) == len({seed for seed, _ in players})


def by_decoding(variant: Variant) -> dict[str, dict[str, np.ndarray]]:
    """The figures of each decoding of a policy that writes, without values first, and of scripted players.

    {} if the policies of these runs do not write. Players that some runs did not evaluate are left out.
    """

    def called(player: Player) -> str:
        return f"beta {player.beta:g}, {player.kind}" if player.decoding else player.name

    runs = list(variant.runs.values())
    every = [one for run in runs for one in run.players]
    own = [one for one in every if one.decoding and one.path == "."]
    own.sort(key=lambda one: (one.kind != "sample", one.kind, one.beta))
    scripted = sorted({one.name for one in every if own and not one.path} - {"random"})
    before = f"{variant.name}: " if variant.name else ""
    players_by_name = {
        f"{before}{name}": [next((one for one in run.players if called(one) == name), None) for run in runs]
        for name in (*map(called, own), *scripted)
    }
    return {name: scores_of(players) for name, players in players_by_name.items() if None not in players}


def scores_of(players: Sequence[Player | None]) -> dict[str, np.ndarray]:
    """The figures that all of these players have, a value per player. [S] each"""
    figures_of = [player.figures for player in players if player]
    return {
        name: np.array([interval.mean for figures in figures_of if (interval := figures[name])])
        for name in (figures_of[0] if figures_of else ())
        if all(figures.get(name) for figures in figures_of)
    }


def without_constant(
    variants: Mapping[str, Mapping[str, np.ndarray]],
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, float]]:
    """The figures that differ between runs, by name, as those of a single run do; and the value of each other one."""
    values: dict[str, list[float]] = {}
    for scores in variants.values():
        for figure, array in scores.items():
            values.setdefault(figure, []).extend(array.tolist())
    constant = {figure: one[0] for figure, one in values.items() if len(set(one)) == 1 < len(one)}
    kept = {
        name: {figure: array for figure, array in scores.items() if figure not in constant}
        for name, scores in variants.items()
    }
    return {name: scores for name, scores in kept.items() if scores}, constant

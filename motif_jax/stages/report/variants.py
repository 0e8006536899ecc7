"""The results of an experiment with several seeds: the runs of each variant, and their figures by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.pages.players import Player
from motif_jax.stages.report.record import RunRecord, read_record
from motif_jax.system.runs import PlannedRun

CHANCE = "random play"


class Variant(NamedTuple):
    """Runs with the same values and different seeds."""

    name: str
    runs: dict[int, RunRecord]  # runs with results, by seed
    missing: list[int]  # seeds whose policy was not evaluated, by these rules or by any


def gather(runs: Sequence[PlannedRun], workdir: Path) -> list[Variant]:
    """Reads the results of all runs and groups them by variant."""
    found: dict[str, Variant] = {}
    for run in runs:
        variant = found.setdefault(run.variant, Variant(run.variant, {}, []))
        one = read_record(workdir / run.folder)
        if one.rows or one.evaluated or one.head.asked:
            variant.runs[run.seed] = one
        if one.evaluated is None:
            variant.missing.append(run.seed)
    return list(found.values())


def by_rules(variants: Sequence[Variant]) -> dict[str, list[Variant]]:
    """The variants as each protocol evaluated them, first by the workdirs' own rules (""), with the seeds it misses."""
    runs = [one for variant in variants for one in variant.runs.values()]
    used = dict.fromkeys(
        ([""] if any(one.players for one in runs) else []) + [name for one in runs for name in one.by_protocol]
    )
    found: dict[str, list[Variant]] = {}
    for name in used or [""]:
        found[name] = []
        for one in variants:
            players = {seed: run.by(name) for seed, run in one.runs.items()}
            missing = {seed for seed, run in players.items() if run.own is None}
            found[name].append(one._replace(runs=players, missing=sorted(missing.union(one.missing))))
    return found


def columns(variants: Sequence[Variant]) -> dict[str, dict[str, np.ndarray]]:
    """The figures of each variant's policy and of random play: by name, by figure, a value per seed. [S] each"""
    found: dict[str, dict[str, np.ndarray]] = {}
    for variant in variants:
        if decoded := by_decoding(variant):
            found |= decoded
        else:
            found[variant.name or "the agent"] = scores_of([one.own for one in variant.runs.values()])
    if chance := scores_of([one.chance for variant in variants for one in variant.runs.values()]):
        found[CHANCE] = chance
    return {name: scores for name, scores in found.items() if scores}


def by_decoding(variant: Variant) -> dict[str, dict[str, np.ndarray]]:
    """The figures of each decoding of a policy that writes, without values first, and of scripted players.

    {} if the policies of these runs do not write. Players that some runs did not evaluate are left out.
    """
    runs = list(variant.runs.values())
    own = {one.decoding for run in runs for one in run.players if one.decoding and one.path == "."}
    found: dict[str, list[Player | None]] = {}
    for decoding in sorted(own, key=lambda one: (one.words != "sample", one.words, one.beta)):
        players = [next((one for one in run.players if one.decoding == decoding), None) for run in runs]
        found[f"beta {decoding.beta:g}, {decoding.words}"] = players
    scripted = sorted({one.name for run in runs for one in run.players if own and not one.path} - {"random"})
    found |= {name: [next((one for one in run.players if one.name == name), None) for run in runs] for name in scripted}
    before = f"{variant.name}: " if variant.name else ""
    return {f"{before}{name}": scores_of(players) for name, players in found.items() if None not in players}


def scores_of(players: Sequence[Player | None]) -> dict[str, np.ndarray]:
    """The figures that all of these players have, a value per player. [S] each"""
    known = [player.figures for player in players if player]
    return {
        name: np.array([interval.mean for figures in known if (interval := figures[name])])
        for name in (known[0] if known else ())
        if all(figures.get(name) for figures in known)
    }


def without_constant(
    found: Mapping[str, Mapping[str, np.ndarray]],
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, float]]:
    """The figures that differ between runs, by name; and the value of each figure that is the same in all runs.

    The figures of a single run count as different.
    """
    values: dict[str, list[float]] = {}
    for scores in found.values():
        for figure, array in scores.items():
            values.setdefault(figure, []).extend(array.tolist())
    constant = {figure: one[0] for figure, one in values.items() if len(set(one)) == 1 < len(one)}
    kept = {
        name: {figure: array for figure, array in scores.items() if figure not in constant}
        for name, scores in found.items()
    }
    return {name: scores for name, scores in kept.items() if scores}, constant

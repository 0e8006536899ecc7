"""What options over rewards cost: the same training with three options and their controller, and without them.

A row of a rollout is a step of a game, or a decision, in which the game waits. Rows per second with options over those
without tell what the wider network, the columns of returns and the waiting cost.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ml_collections import ConfigDict

from benchmarks.policy import STRETCH, Training
from benchmarks.rows import Row, Rows, medians, take_turns

OPTIONS, CONTROLLER = "all=game,half=game:0.5,less=game:-1", "game"


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `options.*`, for the networks in `benchmark.networks`."""
    seconds, rows = config.benchmark.seconds, Rows()
    for network in config.benchmark.networks:
        trainings = {
            "with": Training(config, network, False, OPTIONS, CONTROLLER),
            "without": Training(config, network, False),
        }
        runs = {}
        for name, training in trainings.items():
            training.run(0.0)  # compiles, and leaves a batch to measure with
            runs[f"end_to_end.{name}"] = partial(_rows, training, partial(training.run, STRETCH * seconds))
            runs[f"learner.{name}"] = partial(_rows, training, partial(training.learn, seconds))
        rounds = take_turns(runs, config.benchmark.repeats)
        rates, played = medians(rounds), trainings["with"].played
        whole = rates["end_to_end.with"]
        rows.add(f"options.end_to_end.{network}", whole * played, "steps/s", **trainings["with"].sizes())
        rows.add(f"options.decisions.{network}", 100 * (1 - played), "%", rows_per_s=round(whole))
        for part in ("end_to_end", "learner"):
            name = f"options.{part}_rows_over_without.{network}"
            rows.compare(name, rounds[f"{part}.with"], rounds[f"{part}.without"], digits=2)
    return rows


def _rows(training: Training, run: partial[float]) -> float:
    """Rows per second of a run that returns steps of games per second."""
    return run() / training.played

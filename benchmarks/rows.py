"""Rows of the benchmark: each measured figure is printed as soon as it is known. Also how rates are measured."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from motif_jax.actors.worker import Layout
from motif_jax.console import print_line


class Row(NamedTuple):
    """One measured figure."""

    name: str
    value: float
    unit: str
    sizes: dict[str, Any]  # what it was measured on


class Rows(list[Row]):
    """The rows of one part, printed when they are added."""

    def add(self, name: str, value: float, unit: str, digits: int | None = 3, **sizes: Any) -> None:
        """Adds a figure, rounded to `digits` digits after the point."""
        self.append(Row(name, round(value, digits), unit, sizes))
        size = abs(value)
        shown = f"{value:,.0f}" if size >= 100 else f"{value:,.2f}" if size >= 0.1 else f"{value:.2g}"
        about = ", ".join(f"{key} {value}" for key, value in sizes.items())
        print_line(f"  {name:34} {shown:>12} {unit:16} {about}")

    def compare(self, name: str, ours: Sequence[float], others: Sequence[float], digits: int = 1) -> None:
        """Adds the median of the ratios of two runs, round by round, with the least and the largest ratio."""
        ratios = [one / other for one, other in zip(ours, others, strict=True)]
        spread: dict[str, Any] = {"least": round(min(ratios), digits), "most": round(max(ratios), digits)}
        self.add(name, statistics.median(ratios), "times", **spread)


def take_turns(runs: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """The rates of each run, one per round; each of `repeats` rounds runs all of them once."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            found[name].append(run())
            gc.collect()
    return found


def medians(rounds: Mapping[str, list[float]]) -> dict[str, float]:
    """The median rate of each run."""
    return {name: statistics.median(rates) for name, rates in rounds.items()}


def rate_of(run: Callable[[], float], seconds: float, calls: int = 1) -> float:
    """How many per second `run` does, which returns how many it has done.

    It is called for `seconds`, and at least `calls` times, after one call that does not count: that one compiles,
    starts games and fills caches.
    """
    run()
    done, called, start = 0.0, 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds or called < calls:
        done += run()
        called += 1
    return done / passed


def bytes_per_step(layout: Layout) -> int:
    """Bytes of a pool's rollouts per game and step."""
    once = sum(spec.nbytes for _, spec in layout.starts) // layout.rollout_length
    return sum(spec.nbytes for rows, spec in layout.row_specs().values() if rows > 1) + once

"""Rows of the benchmark: the runs are repeated in turn, and each figure is printed as a row."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, NamedTuple

from motif_jax.console import print_line


class Row(NamedTuple):
    """One measured figure."""

    name: str
    value: float
    unit: str
    sizes: dict[str, Any]  # what it was measured on


def say(row: Row) -> Row:
    """Prints a row as soon as it is known."""
    size = abs(row.value)
    value = f"{row.value:,.0f}" if size >= 100 else f"{row.value:,.2f}" if size >= 0.1 else f"{row.value:.2g}"
    sizes = ", ".join(f"{name} {value}" for name, value in row.sizes.items())
    print_line(f"  {row.name:34} {value:>12} {row.unit:16} {sizes}")
    return row


def take_turns(runs: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """The rates of each run, one per round; each of `repeats` rounds runs all of them once."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            found[name].append(run())
            gc.collect()
    return found

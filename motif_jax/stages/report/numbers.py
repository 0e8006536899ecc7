"""The numbers that pages show: finite, and not so large that means or squares of them are not."""

from __future__ import annotations

import math
from typing import Any

LARGEST = 1e100  # of the numbers on a page; the return of a million steps with rewards in float32 has 1e45


def number(value: Any) -> float:
    """The value as a float; ValueError if it is not finite, or so large that sums and squares would not be."""
    found = float(value)
    if not math.isfinite(found):
        raise ValueError(f"{value!r} is not a number")
    if abs(found) > LARGEST:
        raise ValueError(f"{found:g} is more than pages show, which is {LARGEST:g}")
    return found if abs(found) >= 1 / LARGEST else 0.0


def count(value: Any) -> int:
    """The value as a whole number; raises what `number` does."""
    number(value)
    return int(value)

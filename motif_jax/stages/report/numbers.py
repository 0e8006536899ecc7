"""The numbers that pages show: finite, and not so large that means or squares of them are not."""

from __future__ import annotations

import math
from typing import Any

from motif_jax.pages.formats import LARGEST


def number(value: Any) -> float:
    """The value as a float, at most LARGEST, so that sums and squares are finite; ValueError if it is not finite."""
    try:
        found = float(value)
    except OverflowError:  # a whole number
        found = LARGEST if value > 0 else -LARGEST
    if not math.isfinite(found):
        raise ValueError(f"{value!r} is not a number")
    return max(-LARGEST, min(found, LARGEST)) if abs(found) >= 1 / LARGEST else 0.0


def count(value: Any) -> int:
    """The value as a whole number; raises what `number` does."""
    found = number(value)
    return int(value if abs(found) < LARGEST else found)

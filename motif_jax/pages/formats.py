"""Formats of pages: escaped texts, short and exact numbers, intervals, and the ticks of an axis."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

LARGEST = 1e100  # largest value on a page; a million float32 rewards sum to 1e45
CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


class Interval(NamedTuple):
    """A mean and its 95 % confidence interval; None if unknown, as for a single episode."""

    mean: float
    low: float | None = None
    high: float | None = None
    median: float | None = None  # if known
    n: int | None = None  # number of values, if it differs from what the reader expects

    @property
    def band(self) -> tuple[float, float]:
        """The interval's ends; (mean, mean) if unknown."""
        return (self.mean, self.mean) if self.low is None or self.high is None else (self.low, self.high)

    @property
    def bounded(self) -> Interval:
        """The interval with values that a chart can show."""
        low, high, median = (None if end is None else number(end) for end in (self.low, self.high, self.median))
        return Interval(number(self.mean), low, high, median, self.n)

    @property
    def spelt(self) -> str:
        """The mean with its interval, in a sentence."""
        return f"{exact(self.mean)} {self.words}".rstrip()

    @property
    def words(self) -> str:
        """The interval's ends in brackets, and n; unknown parts are left out."""
        ends = "" if self.low is None or self.high is None else f"[{exact(self.low)}, {exact(self.high)}]"
        return ends if self.n is None else f"{ends} n = {self.n:,}".lstrip()


def esc(text: Any) -> str:
    """Escapes any value as HTML text; control characters are shown as U+FFFD."""
    return html.escape(str(text).translate(CONTROLS), quote=True)


def amount(value: float | None) -> str:
    """Formats a number for a label: 0.25, 1,200, 35k, 2.5M; None is a dash."""
    if value is None:
        return "–"
    if abs(value) >= LARGEST:
        return exact(value)
    short = float(f"{value:.3g}")  # first, so that 999,999 is 1M
    size = abs(short)
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= max(unit, 1e4):
            return f"{short / unit:,g}{name}" if size < 1e15 else f"{short:g}"
    if size >= 1000:
        return f"{value:,.0f}"
    return "0" if not size else f"{short:g}"


def exact(value: float) -> str:
    """Formats a number for a table: more digits than `amount`."""
    if abs(value) >= LARGEST:
        return f"{'over ' if value > 0 else 'below -'}{LARGEST:g}"
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"


def labels(marks: Sequence[float]) -> list[str]:
    """Formats ticks with just enough digits to distinguish them."""
    step = min((after - before for before, after in itertools.pairwise(marks)), default=1.0)
    short = [amount(mark) for mark in marks]
    if step >= 1 and len(set(short)) == len(marks):
        return short
    digits = next((places for places in range(9) if abs(round(step, places) - step) < step / 100), 9)
    return [f"{mark:,.{digits}f}" if mark else "0" for mark in marks]


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers from at most `low` to at least `high`."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # twelve digits would not distinguish the ticks
        high = low + (abs(low) or 1.0)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def number(value: Any) -> float:
    """The value as a float, clipped to LARGEST, so that sums and squares are finite; ValueError if it is not finite."""
    try:
        number = float(value)
    except OverflowError:  # a huge int
        number = LARGEST if value > 0 else -LARGEST
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a number")
    return max(-LARGEST, min(number, LARGEST)) if abs(number) >= 1 / LARGEST else 0.0


def in_words(count: int) -> str:
    """A number in words, such as 1.5 million."""
    short = float(f"{count:.3g}")  # first, so that 999,999,999 is 1 billion
    for size, word in ((1e9, "billion"), (1e6, "million")):
        if count >= 1e6 and short >= size:
            return f"{short / size:,g} {word}"
    return f"{count:,}"


def duration(seconds: float | None) -> str:
    """A duration in words, such as 12 minutes; None is a dash."""
    if seconds is None:
        return "–"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def machine_words(machine: Mapping[str, Any]) -> str:
    """A machine of `system.machine.describe` in a few words, as HTML; "" if it is not known."""
    if not machine.get("processor"):
        return ""
    words = [machine["processor"]]
    if machine.get("device") and "cpu" not in machine["device"].lower():
        words.insert(0, f"{machine.get('devices', 1)} × {machine['device']}")
    if machine.get("cores"):
        words.append(f"{machine['cores']} cores")
    return esc(", ".join(words))

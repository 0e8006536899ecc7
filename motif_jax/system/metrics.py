"""Timers and progress output of a run. Does not import JAX."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tqdm import tqdm

from motif_jax.console import clean, print_line


class Timers:
    """Seconds spent per named activity: `with timers("policy"): ...`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str) -> Timer:
        return Timer(self.seconds, name)


class Timer:
    """Adds the time of its block to an activity. A class, because a generator takes four times as long."""

    __slots__ = ("_name", "_seconds", "_start")

    def __init__(self, seconds: dict[str, float], name: str):
        self._seconds, self._name = seconds, name

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._name] = self._seconds.get(self._name, 0.0) + time.perf_counter() - self._start


def resident_mib() -> float:
    """Memory of this process in MiB, with shared pages counted in part (PSS); 0 if unknown."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


class Progress:
    """Shows progress, rate and time left on standard error: a bar on a terminal, otherwise a line every 15 seconds.

    The rate is that since the first update, which may include loading a model or compiling a program.
    """

    LINE_EVERY_S = 15.0

    def __init__(self, description: str, total: int | None, unit: str, done: int = 0):
        """`total`: None if it is not known yet."""
        self._terminal = sys.stderr.isatty()
        self._description, self._total, self._unit = description, total, unit
        self._first: tuple[float, int] | None = None  # time and count of the first update
        self._done, self._said, self._most_seconds = done, 0.0, float("inf")
        scaled = total is None or total >= 1000
        self._bar = tqdm(
            desc=clean(description), total=total, initial=done, unit=f" {unit}", unit_scale=scaled,
            dynamic_ncols=True, disable=not self._terminal,
        )  # fmt: skip

    def expect(self, total: int, most_seconds: float = float("inf")) -> None:
        """Changes the total; `most_seconds`: what is left of a limit of time."""
        self._total = self._bar.total = total
        self._most_seconds = max(most_seconds, 0.0)

    def update(self, done: int, **notes: str) -> None:
        self._bar.set_postfix({clean(name): clean(value) for name, value in notes.items()}, refresh=False)
        self._bar.update(done - self._done)
        self._done, now = done, time.monotonic()
        self._first = self._first or (now, done)
        if not self._terminal and now - self._said > self.LINE_EVERY_S:
            self._said = now
            rate = (done - self._first[1]) / max(now - self._first[0], 1e-9)
            speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
            speeds = [f"{speed}/s"] if rate > 0 else []
            if rate > 0 and self._total is not None:  # an update has many steps, so the last one may exceed the total
                left = min(max(self._total - done, 0) / rate, self._most_seconds)
                speeds.append(f"{left:,.0f} s left")
            of = "" if self._total is None else f" of {self._total:,}"
            words = [f"{name} {value}" for name, value in notes.items()]
            line = [f"{self._description}: {done:,}{of} {self._unit}", *speeds, *words]
            print_line(", ".join(line), sys.stderr)

    def close(self) -> None:
        self._bar.close()

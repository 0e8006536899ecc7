"""What a run says about itself: timers for every wait, and a line of progress. No JAX."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm


class Timers:
    """Seconds spent per named activity: `with timers("policy"): ...`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def resident_mib() -> float:
    """Memory of this process in MiB; pages that it shares with others count in part. 0 where that is not known."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


class Progress:
    """A bar with rate and time left on a terminal; elsewhere a line now and then, fit for a log file."""

    LINE_EVERY_S = 15.0

    def __init__(self, description: str, total: int, unit: str, done: int = 0):
        self._terminal = sys.stderr.isatty()
        self._description, self._total, self._unit = description, total, unit
        self._start, self._first, self._done, self._said = time.monotonic(), done, done, 0.0
        self._bar = tqdm(
            desc=description,
            total=total,
            initial=done,
            unit=f" {unit}",
            unit_scale=total >= 1000,
            dynamic_ncols=True,
            disable=not self._terminal,
        )

    def update(self, done: int, **notes: str) -> None:
        """Says how much is done, with a few words beside it."""
        self._bar.set_postfix(notes, refresh=False)
        self._bar.update(done - self._done)
        self._done = done
        if not self._terminal and time.monotonic() - self._said > self.LINE_EVERY_S:
            self._said = time.monotonic()
            rate = (done - self._first) / max(self._said - self._start, 1e-9)
            left = f"{(self._total - done) / rate:,.0f} s left" if rate > 0 else "starting"
            speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
            words = "".join(f", {name} {value}" for name, value in notes.items())
            print(
                f"{self._description}: {done:,} of {self._total:,} {self._unit}, {speed}/s, {left}{words}",
                file=sys.stderr,
                flush=True,
            )

    def close(self) -> None:
        """Leaves the bar as it stands."""
        self._bar.close()

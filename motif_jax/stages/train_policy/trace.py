"""Profiler traces of policy training."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax
from ml_collections import ConfigDict

from motif_jax.console import print_line


class Trace:
    """Traces some updates for XProf, TensorBoard or Perfetto."""

    def __init__(self, section: ConfigDict, folder: Path):
        """Nothing is traced if `num_steps` is 0."""
        self._left, self._start, self._folder = section.num_steps, section.start_step, folder
        self._seen, self._open = 0, False

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Around one update."""
        if self._left and self._seen >= self._start and not self._open:
            jax.profiler.start_trace(str(self._folder), create_perfetto_trace=True)
            self._open = True
        self._seen += 1
        with jax.profiler.StepTraceAnnotation("update", step_num=number):
            yield
        if self._open:
            self._left -= 1
            if not self._left:
                self.close()

    def close(self) -> None:
        """Writes what was traced."""
        if self._open:
            jax.effects_barrier()
            jax.profiler.stop_trace()
            self._open = False
            print_line(f"train_policy: a trace of the device's work is in {self._folder}")

"""A trace of the device's work, for XProf, TensorBoard or Perfetto."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax

from motif_jax.console import print_line


class Trace:
    """Traces `num_steps` updates from `start_step` on, for the stage of this name."""

    def __init__(self, name: str, folder: Path, start_step: int, num_steps: int):
        self._name, self._folder, self._first, self._end = name, folder, start_step, start_step + num_steps
        self._seen, self._open = 0, False

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        if self._first == self._seen < self._end:
            jax.profiler.start_trace(str(self._folder), create_perfetto_trace=True)
            self._open = True
        self._seen += 1
        with jax.profiler.StepTraceAnnotation("update", step_num=number):
            yield
        if self._seen == self._end:
            self.close()

    def close(self) -> None:
        if self._open:
            jax.effects_barrier()
            jax.profiler.stop_trace()
            self._open = False
            print_line(f"{self._name}: a trace of the device's work is in {self._folder}")

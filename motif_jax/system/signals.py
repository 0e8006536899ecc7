"""Signals that ask a training run to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType

from motif_jax.files import checkpoint_steps
from motif_jax.structs import Interrupted
from motif_jax.system.startup import say


class StopAsked:
    """Records that a signal asked to stop, so that training can save first; every signal prints a sentence.

    A second SIGINT stops at once if everything is saved; a third one always does. SIGTERM may come repeatedly: SLURM
    sends it before the time limit, at the limit, and on preemption.
    """

    def __init__(self) -> None:
        self.asked = ""  # name of the signal
        self._unsaved: Callable[[], str] = str  # describes the unsaved work; "": everything is saved
        self._warned = False

    def watch(self, checkpoints: Path, done: Callable[[], int], unit: str) -> None:
        """Defines unsaved work: the difference between `done` and the last checkpoint, counted in `unit`."""

        def unsaved() -> str:
            number = done() - max(checkpoint_steps(checkpoints), default=0)
            return f"{number:,} {unit}" if number > 0 else ""

        self._unsaved = unsaved

    def __enter__(self) -> StopAsked:
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, _: type | None, error: BaseException | None, __: TracebackType | None) -> None:
        if self.asked and error is not None and (lost := self._unsaved()):
            say(f"{lost} were not saved and are lost")
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if not self.asked:
            self.asked = signal.Signals(number).name
            say(f"{self.asked}: stopping as soon as the training state is saved")
        elif number == signal.SIGINT:
            if not self._warned and (unsaved := self._unsaved()):
                self._warned = True
                say(f"waiting until {unsaved} are saved; one more Ctrl-C ends the program without them")
                return
            for other in self._before:  # lets the writing of a checkpoint finish
                signal.signal(other, signal.SIG_IGN)
            raise Interrupted(number)

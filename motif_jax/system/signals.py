"""Signals that ask a training run to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType

from motif_jax.structs import Interrupted
from motif_jax.system.files import checkpoint_steps
from motif_jax.system.startup import say


class StopAsked:
    """Remembers that a signal asked to stop, so that there is time to save; each time, a sentence says what happens.

    A second SIGINT waits if something is not saved yet; otherwise it stops at once, as the third one always does.
    SIGTERM may come more than once: SLURM sends it before the time limit, at it, and if another job preempts this one.
    """

    def __init__(self) -> None:
        self.asked = ""  # name of the signal
        self._unsaved: Callable[[], str] = str  # says what would be lost now; "": nothing
        self._warned = False

    def watch(self, checkpoints: Path, done: Callable[[], int], unit: str) -> None:
        """Tells what would be lost: what was `done` after the last checkpoint in a directory, counted in `unit`."""

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
            say(f"{self.asked}: stopping as soon as what was learnt is saved")
        elif number == signal.SIGINT:
            if not self._warned and (unsaved := self._unsaved()):
                self._warned = True
                say(f"waiting until {unsaved} are saved; one more Ctrl-C ends the program without them")
                return
            for other in self._before:  # a checkpoint that is being written must become complete
                signal.signal(other, signal.SIG_IGN)
            raise Interrupted(number)

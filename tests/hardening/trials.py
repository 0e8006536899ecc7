"""A stage that is killed again and again, and what its finished workdirs must be equal to."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

from conftest import wait_for, worker_processes
from victims import Outcome, Victims

KILLS = 6


class Trial:
    """A stage, which is killed again and again."""

    def __init__(self, victims: Victims, folder: Path, stage: str, *arguments: str, **constants: object):
        self.victims, self.folder, self.arguments = victims, folder, [*arguments, f"--stage={stage}"]
        self.constants = {name.replace("__", "."): value for name, value in constants.items()}
        self.killed: list[Outcome] = []
        self.terminate = stage in ("collect", "annotate", "train_reward")  # others end with 0, and say what they saved

    def kill(self, prepare: Callable[[Path], object], check: Callable[[Path], object], count: int = KILLS) -> None:
        """Kills it so often, and lets it finish in between.

        What is in the workdir after a kill depends on the changes of files before it alone, so each kill is at one of
        them: spread evenly over an undisturbed run, in random order.

        Args:
          prepare: puts into a fresh workdir what the stage needs.
          check: what has come of a workdir; called first with that of the undisturbed run.
          count: kills.
        """
        workdir = self.begin(prepare, "straight")
        changes = self.go_on(workdir).changes
        check(workdir)
        rng, number = random.Random(0), 0
        workdir = self.begin(prepare, str(number))
        while len(self.killed) < count:
            for part in rng.sample(range(count), count):
                at = 1 + int((part + rng.random()) / count * changes)
                outcome = self.go_on(
                    workdir, at, signal.SIGTERM if self.terminate and part % 3 == 2 else signal.SIGKILL
                )
                if outcome.status == 0:
                    check(workdir)
                    number += 1
                    assert number < 4 * count, "it is hardly ever hit"
                    workdir = self.begin(prepare, str(number))
        self.go_on(workdir)
        check(workdir)

    def begin(self, prepare: Callable[[Path], object], name: str) -> Path:
        workdir = self.folder / name / "run"
        workdir.mkdir(parents=True)
        prepare(workdir)
        return workdir

    def go_on(self, workdir: Path, at_change: int = 0, number: int = signal.SIGKILL) -> Outcome:
        outcome = self.victims.run(workdir, self.arguments, at_change, number, self.constants)
        assert outcome.status in (0, *((-number, 128 + number) if at_change else ())), outcome.output
        assert "Traceback" not in outcome.output
        wait_for(lambda: not worker_processes(outcome.process))
        if outcome.status == -signal.SIGKILL:
            self.killed.append(outcome)
        return outcome


class Same:
    """What every finished workdir must be equal to: the first one."""

    def __init__(self, describe: Callable[[Path], object]):
        self.describe, self.first = describe, None

    def __call__(self, workdir: Path) -> None:
        found = self.describe(workdir)
        self.first = found if self.first is None else self.first
        assert found == self.first

"""A stage that is killed again and again, and what its finished workdirs must be equal to."""

from __future__ import annotations

import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from conftest import wait_for, worker_processes
from victims import Outcome, Victims

from motif_jax.actors.transport import remove_stale_folders

KILLS = 6
LANES = 2  # that kill at a time


class Trial:
    """A stage, which is killed again and again."""

    def __init__(self, victims: list[Victims], folder: Path, stage: str, *arguments: str, **constants: object):
        self.victims, self.folder, self.arguments = victims, folder, [*arguments, f"--stage={stage}"]
        self.constants = {name.replace("__", "."): value for name, value in constants.items()}
        self.killed: list[Outcome] = []
        self.terminate = stage in ("collect", "annotate", "train_reward")  # others end with 0, and say what they saved

    def kill(
        self, prepare: Callable[[Path], object], check: Callable[[Path], object], count: int = KILLS,
        by_clock: float = 0.5,
    ) -> None:  # fmt: skip
        """Kills it so often, and lets it finish in between.

        The kills are spread evenly over an undisturbed run, in random order: some at a time, the others at a change of
        a file. What is done before it is hit is checked, and another is begun.

        Args:
          prepare: puts into a fresh workdir what the stage needs.
          check: what has come of a workdir; called first with that of the undisturbed run.
          count: kills.
          by_clock: share of the kills that are at a time.
        """
        for name in ("compiled", "straight"):  # what is compiled in the first is compiled for all
            workdir = self.begin(prepare, name)
            straight = self.go_on(self.victims[0], workdir)
        check(workdir)
        with ThreadPoolExecutor(LANES) as pool:
            each = count // LANES
            moments = [self.moments(lane, straight, each, by_clock) for lane in range(LANES)]
            lanes = [pool.submit(self.lane, lane, moments[lane], prepare, check, each) for lane in range(LANES)]
            for lane in lanes:
                lane.result()
        assert len(self.killed) >= count
        remove_stale_folders()  # as everybody does who starts workers
        for killed in self.killed:
            assert not list(Path(tempfile.gettempdir()).glob(f"motif_jax-{killed.process}-*/*"))

    def moments(self, lane: int, straight: Outcome, count: int, by_clock: float) -> Iterator[dict[str, Any]]:
        """When to kill, without an end: of `count` in a row each hits another part of the run; lanes hit in between."""
        rng = random.Random(lane)
        while True:
            for part in rng.sample(range(count), count):
                share = (part + (lane + rng.random()) / LANES) / count  # of the run
                if rng.random() >= by_clock:
                    yield {"at_change": 1 + int(share * straight.changes)}
                elif self.terminate and rng.random() < 0.3:
                    yield {"after_s": share * straight.seconds, "number": signal.SIGTERM}
                else:
                    yield {"after_s": share * straight.seconds}

    def lane(self, lane: int, moments: Iterator, prepare: Callable, check: Callable, count: int) -> None:
        finished, killed = 0, 0
        workdir = self.begin(prepare, f"{lane}-{finished}")
        while killed < count:
            outcome = self.go_on(self.victims[lane], workdir, **next(moments))
            killed += outcome.killed
            if outcome.status == 0:
                check(workdir)
                finished += 1
                assert finished < 4 * count, "it is hardly ever hit"
                workdir = self.begin(prepare, f"{lane}-{finished}")
        self.go_on(self.victims[lane], workdir)
        check(workdir)

    def begin(self, prepare: Callable[[Path], object], name: str) -> Path:
        workdir = self.folder / name / "run"
        workdir.mkdir(parents=True)
        prepare(workdir)
        return workdir

    def go_on(self, victims: Victims, workdir: Path, **moment: Any) -> Outcome:
        outcome = victims.run(workdir, self.arguments, constants=self.constants, **moment)
        hit = outcome.stopped if moment.get("number") == signal.SIGTERM else outcome.killed
        assert outcome.status == 0 or (moment and hit), outcome.output
        assert "Traceback" not in outcome.output
        wait_for(lambda: not worker_processes(outcome.process))
        if outcome.killed:
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

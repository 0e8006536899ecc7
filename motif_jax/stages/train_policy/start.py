"""Start, checkpoints, stop signals and profiler traces of policy training."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

import motif_jax
from motif_jax.checkpoint import Checkpoints
from motif_jax.config_table import record
from motif_jax.console import print_line
from motif_jax.learner.update import LearnerState, init_state
from motif_jax.locks import Held, take
from motif_jax.parallel import from_first_host, replicate
from motif_jax.parameters import leaves_by_path, rebuild
from motif_jax.policies.model import read_policy
from motif_jax.rewards.sources import RewardSources, saved_sources
from motif_jax.stages.train_policy.hosts import Hosts, Vote
from motif_jax.stages.train_policy.rescue import RESCUED, read_rescued
from motif_jax.stages.train_policy.setup import Parts
from motif_jax.structs import Interrupted, UserError

START = {"env_steps": 0, "updates": 0, "seconds": 0.0, "next_episode": 0, "episodes": 0}


class Keeper:
    """Checkpoints of a policy, each of which can be used alone."""

    def __init__(self, config: ConfigDict, folder: Path, parts: Parts):
        """Opens `folder/checkpoints`."""
        section, self._sources = config.policy, parts.sources
        self._saving = threading.Lock()  # if another host is lost, another thread saves
        folder.mkdir(parents=True, exist_ok=True)
        try:  # hosts share the workdir's own lock, and so do the hosts of another run that was started by mistake
            self._lock = take(folder / ".lock")
        except Held as held:
            raise UserError(f"another run ({held}) is writing to {str(folder)!r} (--workdir)") from None
        self._checkpoints = Checkpoints(folder / "checkpoints", section.keep_checkpoints, section.milestone_every_steps)
        self._facts: dict[str, Any] = {"model": parts.options, "config": record(config.to_dict())}
        self._facts |= {"versions": {"motif_jax": motif_jax.__version__, "jax": jax.__version__}}

    @property
    def directory(self) -> Path:
        """The directory of the checkpoints."""
        return self._checkpoints.directory

    def latest(self, like: LearnerState) -> tuple[dict[tuple[str, ...], Any], dict[str, Any], dict[str, Any]] | None:
        """The last checkpoint that can be read, or what was rescued after it.

        Returns:
          The learner's arrays by name, the arrays of everything else, and the facts.
        """
        found = self._checkpoints.latest()
        rescued = read_rescued(self.directory.parent, like, self._sources.learning())
        if rescued and (found is None or rescued[2]["progress"]["env_steps"] > found[0]):
            return rescued
        return found and (leaves_by_path(found[1]["learner"]), found[1], found[2])

    def keep_rescued(self, state: LearnerState, done: dict[str, Any]) -> None:
        """Saves a rescued state as a checkpoint unless it is one already, and removes the file of the rescue."""
        rescued = self.directory.parent / RESCUED
        if rescued.exists():
            self.save(state, done)
            self._checkpoints.wait()
            rescued.unlink()

    def save(self, state: LearnerState, done: dict[str, Any], learning: dict[str, Any] | None = None) -> None:
        """Starts to write a checkpoint, unless there is one with the same number of steps.

        Args:
          state: the learner's.
          done: how far it got.
          learning: `RewardSources.learning` at that time; None: as the sources are now.
        """
        step = int(done["env_steps"])
        arrays: dict[str, Any] = {"learner": state}
        if of_sources := self._sources.arrays() | (learning or {}):
            arrays["sources"] = of_sources
        facts = self._facts | {"sources": self._sources.facts(), "progress": dict(done)}
        with self._saving:
            if step not in self._checkpoints.steps():
                self._checkpoints.save(step, arrays, facts)

    def close(self) -> None:
        """Waits for what is being written and releases the lock; further calls do nothing."""
        if not self._lock.closed:
            self._checkpoints.close()
            self._lock.close()


def begin(config: ConfigDict, keeper: Keeper | None, parts: Parts, hosts: Hosts) -> tuple[LearnerState, dict[str, Any]]:
    """The learner's state on all devices, and how far it got.

    It comes from the first of these that exists: the run's own last checkpoint, or a state rescued after it; the
    parameters of another run; random parameters. The first host reads it and sends it to the others.
    """
    state, done = init_state(parts.model.params, parts.learner), dict(START)
    found = keeper.latest(state) if keeper else None
    if keeper and found:
        arrays, others, facts = found
        parts.sources.restore(saved_sources(facts, others))
        state = rebuild(state, arrays, keeper.directory, "--workdir")
        done = {name: type(START[name])(facts["progress"][name]) for name in START}
        keeper.keep_rescued(state, done)
    elif keeper and config.policy.init_from:
        source, flag = Path(config.policy.init_from), "--config.policy.init_from"
        try:
            other, _, _ = read_policy(source)
        except UserError as error:
            raise UserError(f"{error} ({flag})") from None
        state = init_state(rebuild(parts.model.params, leaves_by_path(other.params), source, flag), parts.learner)
    hosts.agree(Vote.GO_ON)  # until here each host worked alone, and one may have failed
    state, numbers = from_first_host((state, np.array([done[name] for name in START], np.float64)))
    if hosts.count > 1:
        done = {name: type(START[name])(value) for name, value in zip(START, np.asarray(numbers), strict=True)}
        share_sources(parts.sources)
    return replicate(state, parts.mesh), done


def share_sources(sources: RewardSources) -> None:
    """Gives the first host's state of those reward sources that learn to all hosts."""
    sources.take_over(from_first_host(sources.learning()))


class StopAsked:
    """Remembers that a signal asked to stop, so that there is time to save; a second SIGINT stops at once.

    SIGTERM may come more than once: SLURM sends it before the time limit, at it, and if another job preempts this one.
    """

    def __init__(self) -> None:
        self.asked = ""  # name of the signal

    def __enter__(self) -> StopAsked:
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise Interrupted(number)
        self.asked = signal.Signals(number).name


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

"""Start and checkpoints of policy training, and the rescue of the learner's state when another host is lost.

An update reuses the memory of the state before it, and fails or hangs if a host dies meanwhile. So each host keeps a
copy of every state until the next update has succeeded: on one device, or sharded among its devices as the state is.
This costs the memory of two states, and the time of one copy per update.

Host 0 writes the copy as a checkpoint. If host 0 is lost, another host writes `policy/rescued.npz`, because orbax needs
host 0, which may only be suspended and still hold the checkpoints. The next start turns the file into a checkpoint.
"""

from __future__ import annotations

import collections
import enum
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

import motif_jax
from motif_jax.console import print_line
from motif_jax.devices.checkpoints import Checkpoints, reading
from motif_jax.devices.host_arrays import (
    dict_from_first_host,
    from_first_host,
    host_copy,
    nested,
    same_on_every_host,
    spread_copy,
)
from motif_jax.devices.hosts import Hosts, Vote
from motif_jax.devices.mesh import place
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.files import take, write_whole
from motif_jax.learner.update import LearnerState
from motif_jax.policies.model import read_policy
from motif_jax.rewards.mixtures import behaviours_of
from motif_jax.rewards.sources import saved_sources, trusted_classes
from motif_jax.stages.train_policy.section import RESCUED
from motif_jax.stages.train_policy.setup import Parts
from motif_jax.structs import UserError
from motif_jax.system.files import read_arrays, record

FACTS, SOURCES = "facts", "sources"  # in a rescued state
START = {"env_steps": 0, "updates": 0, "seconds": 0.0, "next_episode": 0, "episodes": 0}


class Keeper:
    """Checkpoints of a policy, each of which can be used without other files."""

    def __init__(self, config: ConfigDict, folder: Path, parts: Parts):
        section, self._sources = config.policy, parts.sources
        self.frozen: Any = ()  # parameters that are not trained; every checkpoint has them
        self._saving = threading.Lock()  # another thread saves if a host is lost
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = take(folder / ".lock")  # another run, started by mistake, may share the workdir's lock
        self._checkpoints = Checkpoints(folder / "checkpoints", section.keep_checkpoints, section.milestone_every_steps)
        self._facts: dict[str, Any] = {"model": parts.options, "config": record(config.to_dict())}
        self._facts |= {"versions": {"motif_jax": motif_jax.__version__, "jax": jax.__version__}}

    @property
    def directory(self) -> Path:
        return self._checkpoints.directory

    def latest(self) -> tuple[dict[tuple[str, ...], Any], dict[str, Any], dict[str, Any]] | None:
        """The last checkpoint that can be read, or a state that was rescued after it.

        Returns:
          The arrays of network and learner by name, the arrays of everything else, and the facts.
        """
        found = self._checkpoints.latest()
        rescued = read_rescued(self.directory.parent)
        if rescued and (found is None or rescued[2]["progress"]["env_steps"] > found[0]):
            return rescued
        return found and (arrays_of(found[1]), found[1], found[2])

    def keep_rescued(self, state: LearnerState, done: dict[str, Any]) -> None:
        """Saves a rescued state as a checkpoint unless it is one already, and removes its file."""
        rescued = self.directory.parent / RESCUED
        if rescued.exists():
            self.save(state, done)
            self._checkpoints.wait()
            rescued.unlink()

    def save(self, state: LearnerState, done: dict[str, Any], learning: dict[str, Any] | None = None) -> None:
        """Starts to write a checkpoint, unless there is one with the same number of steps.

        `learning`: `RewardSources.learning` at the time of `state`; None: the sources' current arrays.
        """
        step = int(done["env_steps"])
        arrays: dict[str, Any] = {"learner": state}
        if jax.tree.leaves(self.frozen):
            arrays["frozen"] = self.frozen
        if of_sources := self._sources.arrays() | (learning or {}):
            arrays["sources"] = of_sources
        facts = self._facts | {"sources": self._sources.facts(), "progress": dict(done)}
        with self._saving:
            if step not in self._checkpoints.steps():
                self._checkpoints.save(step, arrays, facts, milestone=step == 0)

    def close(self) -> None:
        """Waits for what is being written and releases the lock; further calls do nothing."""
        if not self._lock.closed:
            self._checkpoints.close()
            self._lock.close()


class Origin(enum.IntEnum):
    """The origin of the parameters that training starts from."""

    NEW = 0  # random
    POLICY = 1  # another policy: --config.policy.init_from
    CHECKPOINT = 2  # the run's own


def arrays_of(checkpoint: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    """The arrays of a policy's checkpoint, by their names in a `whole_state`."""
    frozen = leaves_by_path(checkpoint.get("frozen", ()))
    return leaves_by_path(checkpoint["learner"]) | {("frozen", *name): array for name, array in frozen.items()}


def whole_state(state: LearnerState, frozen: Any) -> dict[str, Any]:
    """All arrays of the network and the learner, by their names in files."""
    return state._asdict() | {"frozen": frozen}


def start_or_resume(
    config: ConfigDict, keeper: Keeper | None, parts: Parts, checkpoints: Path, hosts: Hosts
) -> tuple[LearnerState, Any, dict[str, Any]]:
    """The learner's state on all devices, the network's frozen parameters as they were read, and the progress.

    They come from the first of these that exists: the run's last checkpoint, or a state rescued after it; another
    policy; random parameters. The first host decides. The other hosts read the same files, if they can, and compare
    checksums with the first host, which sends its arrays to all if one host differs. Only the first host has `keeper`,
    the run's checkpoints.
    """
    state = parts.make_state(parts.model.params)
    new = whole_state(state, parts.model.frozen)
    whole, origin, done = new, Origin.NEW, dict(START)
    found = keeper.latest() if keeper else None
    if keeper and found:
        arrays, others, facts = found
        parts.sources.restore(saved_sources(facts, others))
        whole, origin = rebuild(new, arrays, keeper.directory, "--workdir"), Origin.CHECKPOINT
        done = {name: type(START[name])(facts["progress"][name]) for name in START}
        keeper.frozen = host_copy(whole["frozen"])
        keeper.keep_rescued(state._replace(**{name: whole[name] for name in state._fields}), done)
    elif keeper and config.policy.init_from:
        whole, origin = read_initial(config, parts, new), Origin.POLICY
    hosts.agree(Vote.GO_ON)  # hosts worked alone until here, and one may have failed
    if hosts.count > 1:
        numbers = from_first_host(np.array([origin, *(done[name] for name in START)], np.float64)).tolist()
        origin = Origin(int(numbers[0]))
        done = {name: type(START[name])(value) for name, value in zip(START, numbers[1:], strict=True)}
        if hosts.me:
            whole = read_as_first_host(config, parts, new, origin, checkpoints, int(done["env_steps"]))
        hosts.agree(Vote.GO_ON)
        whole, differing = same_on_every_host(whole)
        if keeper and differing:
            names = ", ".join(map(str, differing))
            print_line(f"train_policy: sent the parameters to all hosts, as host {names} could not read the same ones")
        parts.sources.take_over(dict_from_first_host(parts.sources.learning()))
    if keeper:
        keeper.frozen = host_copy(whole["frozen"])
    frozen = whole.pop("frozen")
    return place(state._replace(**whole), parts.mesh, parts.model.rules), frozen, done


def read_initial(config: ConfigDict, parts: Parts, new: dict[str, Any]) -> dict[str, Any]:
    """A new state with the parameters of the policy that the config names."""
    source, flag = Path(config.policy.init_from), "--config.policy.init_from"
    try:
        other, facts, _ = read_policy(source, trusted=trusted_classes(config))
    except UserError as error:
        raise UserError(f"{error} ({flag})") from None
    has, needed = (options.get("options", {}) for options in (facts["model"], parts.options))
    if has != record(needed):
        raise UserError(
            f"the policy in {str(source)!r} has {_named(has)}, not {_named(needed)} ({flag}, --config.policy.options)"
        )
    params = rebuild(parts.model.params, leaves_by_path(other.params), source, flag)
    frozen = rebuild(new["frozen"], leaves_by_path(other.frozen), source, flag)
    return whole_state(parts.make_state(params), frozen)


def _named(plan: Mapping[str, Any]) -> str:
    return f"the options {', '.join(behaviours_of(plan))}" if plan else "no options"


def read_as_first_host(
    config: ConfigDict, parts: Parts, new: dict[str, Any], origin: Origin, folder: Path, step: int
) -> dict[str, Any]:
    """Reads the state that the first host has read; returns a new state if this host cannot read it.

    `origin`: what the first host has read.
    """
    try:
        if origin == Origin.POLICY:
            return read_initial(config, parts, new)
        if origin == Origin.CHECKPOINT and folder.is_dir():
            with reading(folder) as checkpoints:
                return rebuild(new, arrays_of(checkpoints.readable(str(step))[1]), folder)
    except (UserError, OSError):
        pass  # the checksums will differ
    return new


class Rescue:
    """The learner's states after the last two updates. Each host has a `Rescue`, since any other may be lost."""

    def __init__(self, write: Callable[[LearnerState, dict[str, Any], dict[str, Any]], None]):
        """`write` gets a state, the arrays of reward sources that learn, and the progress."""
        self._write = write
        self._copies: collections.deque[tuple[LearnerState, Any, dict[str, Any]]] = collections.deque(maxlen=2)

    def add(self, state: LearnerState, learning: dict[str, Any], done: dict[str, Any]) -> None:
        """Keeps copies of the state after an update, of `RewardSources.learning` (copies already) and of the progress.

        The update may still be running. The one before it must have succeeded: its metrics were read.
        """
        self._copies.append((spread_copy(state), learning, dict(done)))

    def save(self) -> str:
        """Writes the newest state that was computed; may run in any thread. Returns a message for the user."""
        for state, learning, done in reversed(list(self._copies)):
            if not all(leaf.is_ready() for leaf in jax.tree.leaves((state, learning)) if hasattr(leaf, "is_ready")):
                continue
            try:
                arrays, of_sources = jax.tree.map(np.asarray, (state, learning))
            except (RuntimeError, ValueError):  # the update failed, as its collectives do when a host is gone
                continue
            self._write(arrays, of_sources, done)
            return f"all {done['env_steps']:,} steps are saved"
        return "nothing was learnt since it started"


def write_rescued(
    folder: Path, state: Any, learning: dict[str, Any], done: dict[str, Any], sources: dict[str, Any]
) -> None:
    """Writes the file that `read_rescued` reads.

    `state`: as `whole_state` makes it. `learning`: `RewardSources.learning` at that time. `sources`:
    `RewardSources.facts`.
    """
    if not (folder / "config.json").exists():
        raise UserError(f"this host cannot see the files of host 0 in {str(folder)!r}")
    by_path = leaves_by_path(state) | {(SOURCES, *path): leaf for path, leaf in leaves_by_path(learning).items()}
    arrays: dict[str, Any] = {"/".join(path): np.asarray(leaf) for path, leaf in by_path.items()}
    facts = {"progress": done, "sources": sources}
    arrays[FACTS] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    write_whole(folder / RESCUED, lambda file: np.savez(file, **arrays))


def read_rescued(folder: Path) -> tuple[dict[tuple[str, ...], np.ndarray], dict[str, Any], dict[str, Any]] | None:
    """Reads a rescued state; None if there is not one.

    Returns:
      The learner's arrays by their paths, those of reward sources as nested dictionaries, and facts as in a checkpoint.
    """
    file = folder / RESCUED
    if not file.exists():
        return None
    try:
        arrays = read_arrays(file)
        facts = json.loads(arrays.pop(FACTS).tobytes())
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{str(file)!r} is damaged ({error}): move it away to go on from the last checkpoint (--workdir)"
        ) from error
    found = {tuple(name.split("/")): array for name, array in arrays.items()}
    of_learner = {path: array for path, array in found.items() if path[0] != SOURCES}
    of_sources = {path[1:]: array for path, array in found.items() if path[0] == SOURCES}
    return of_learner, {SOURCES: nested(of_sources)}, facts

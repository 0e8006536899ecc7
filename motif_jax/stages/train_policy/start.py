"""Start and checkpoints of policy training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import motif_jax
from motif_jax.devices.checkpoints import Checkpoints, reading
from motif_jax.devices.host_arrays import from_first_host, host_copy
from motif_jax.devices.hosts import Hosts, Vote
from motif_jax.devices.mesh import place
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.files import to_plain
from motif_jax.learner.update import LearnerState
from motif_jax.policies.model import read_policy
from motif_jax.rewards.mixtures import behaviours_of
from motif_jax.rewards.sources import saved_sources, trusted_classes
from motif_jax.stages.train_policy.section import TrainConfig
from motif_jax.stages.train_policy.setup import Parts
from motif_jax.structs import UserError

START = {"env_steps": 0, "updates": 0, "seconds": 0.0, "next_episode": 0, "episodes": 0}


class Keeper:
    """Checkpoints of a policy, each of which can be used without other files."""

    def __init__(self, config: TrainConfig, folder: Path, parts: Parts):
        """`folder`: the stage's, which is locked."""
        section, self._sources = config.policy, parts.sources
        self.frozen: Any = ()  # parameters that are not trained; every checkpoint has them
        self._checkpoints = Checkpoints(folder / "checkpoints", section.keep_checkpoints, section.milestone_every_steps)
        self._facts: dict[str, Any] = {"model": parts.options, "config": to_plain(config)}
        self._facts |= {"versions": {"motif_jax": motif_jax.__version__, "jax": jax.__version__}}

    @property
    def directory(self) -> Path:
        return self._checkpoints.directory

    def latest(self) -> tuple[int, Any, dict[str, Any]] | None:
        """Step, arrays and facts of the last checkpoint that can be read."""
        return self._checkpoints.latest()

    def save(self, state: LearnerState, done: dict[str, Any]) -> None:
        """Starts to write a checkpoint, unless there is one with the same number of steps."""
        step = int(done["env_steps"])
        if step in self._checkpoints.steps():
            return
        arrays: dict[str, Any] = {"learner": state}
        if jax.tree.leaves(self.frozen):
            arrays["frozen"] = self.frozen
        if of_sources := self._sources.arrays():
            arrays["sources"] = of_sources
        metadata = self._facts | {"sources": self._sources.facts(), "progress": dict(done)}
        self._checkpoints.save(step, arrays, metadata, milestone=step == 0)

    def close(self) -> None:
        """Waits for what is being written."""
        self._checkpoints.close()


def arrays_of(checkpoint: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    """The arrays of a policy's checkpoint, by their names in a `whole_state`."""
    frozen = leaves_by_path(checkpoint.get("frozen", ()))
    return leaves_by_path(checkpoint["learner"]) | {("frozen", *name): array for name, array in frozen.items()}


def whole_state(state: LearnerState, frozen: Any) -> dict[str, Any]:
    """All arrays of the network and the learner, by their names in files."""
    return state._asdict() | {"frozen": frozen}


def start_or_resume(
    config: TrainConfig, keeper: Keeper | None, parts: Parts, checkpoints: Path, hosts: Hosts
) -> tuple[LearnerState, Any, dict[str, Any]]:
    """The learner's state on all devices, the network's frozen parameters as they were read, and the progress.

    They come from the first of these that exists: the run's last checkpoint; another policy; random parameters. Only
    the first host has `keeper`, the run's checkpoints. The other hosts read the same checkpoint, and all compare.
    """
    state = parts.make_state(parts.model.params)
    arrays_by_name = whole_state(state, parts.model.frozen)
    done: dict[str, Any] = dict(START)
    saved = keeper.latest() if keeper else None
    hosts.agree(Vote.GO_ON)  # the first host worked alone until here, and may have failed
    step = int(from_first_host(np.int64(saved[0] if saved else -1)))
    if not keeper and step >= 0:
        with reading(checkpoints) as others:
            saved = others.readable(str(step))
    if saved:
        _, arrays, metadata = saved
        parts.sources.restore(saved_sources(metadata, arrays))
        arrays_by_name = rebuild(arrays_by_name, arrays_of(arrays), checkpoints, "--workdir")
        done = {name: type(START[name])(metadata["progress"][name]) for name in START}
    elif config.policy.init_from:
        arrays_by_name = read_initial(config, parts, arrays_by_name)
    hosts.agree(Vote.GO_ON)
    hosts.check_same("a state", [step, arrays_by_name, parts.sources.arrays()])
    if keeper:
        keeper.frozen = host_copy(arrays_by_name["frozen"])
    frozen = arrays_by_name.pop("frozen")
    return place(state._replace(**arrays_by_name), parts.mesh, parts.model.rules), frozen, done


def read_initial(config: TrainConfig, parts: Parts, new: dict[str, Any]) -> dict[str, Any]:
    """A new state with the parameters of the policy that the config names."""
    source, flag = Path(config.policy.init_from), "--config.policy.init_from"
    try:
        other, metadata, _ = read_policy(source, trusted=trusted_classes(config, config.policy.network))
    except UserError as error:
        raise UserError(f"{error} ({flag})") from None
    has, needed = (options.get("options", {}) for options in (metadata["model"], parts.options))
    if has != to_plain(needed):
        raise UserError(
            f"the policy in {str(source)!r} has {_named(has)}, not {_named(needed)} ({flag}, --config.policy.options)"
        )
    params = rebuild(parts.model.params, leaves_by_path(other.params), source, flag)
    frozen = rebuild(new["frozen"], leaves_by_path(other.frozen), source, flag)
    return whole_state(parts.make_state(params), frozen)


def _named(plan: Mapping[str, Any]) -> str:
    return f"the options {', '.join(behaviours_of(plan))}" if plan else "no options"

"""The checkpoints of a policy in training, and with what a training begins."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

import motif_jax
from motif_jax.devices.checkpoints import Checkpoints, latest_of_all
from motif_jax.devices.hosts import Hosts
from motif_jax.devices.mesh import host_copy
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.files import to_plain
from motif_jax.learner.update import LearnerState
from motif_jax.policies.learning import Learner
from motif_jax.policies.model import Model, read_policy
from motif_jax.rewards.source import RewardSources, trusted_classes
from motif_jax.structs import UserError, naming


@dataclass
class TrainingProgress:
    """What training has done so far, with all runs of it, as checkpoints and the summary hold it."""

    env_steps: int = 0
    updates: int = 0
    seconds: float = 0.0
    next_episode: int = 0
    episodes: int = 0


class PolicyCheckpoints:
    """Checkpoints of a policy, each of which can be used without other files."""

    def __init__(self, config: Any, folder: Path, spec: Mapping[str, Any], sources: RewardSources, writes: bool):
        """`folder`: the stage's, which is locked. `spec`: of the network. `writes`: else all calls do nothing."""
        section, self.folder = config.policy, folder / "checkpoints"
        keep = section.keep_checkpoints, section.milestone_every_steps
        self.files = Checkpoints(self.folder, *keep) if writes else None
        self.frozen: Any = ()  # parameters that are not trained; every checkpoint has them
        self._sources, self._section = sources, section
        versions = {"motif_jax": motif_jax.__version__, "jax": jax.__version__}
        self._always: dict[str, Any] = {"model": spec, "config": to_plain(config), "versions": versions}
        self.begin(TrainingProgress())

    def begin(self, done: TrainingProgress) -> None:
        """Counts steps and seconds until the next checkpoint from here on."""
        self._saved, self._saved_steps = time.monotonic(), done.env_steps

    def is_due(self, done: TrainingProgress, hosts: Hosts) -> bool:
        """Whether it is time for a checkpoint."""
        waited, steps = time.monotonic() - self._saved, done.env_steps - self._saved_steps
        due = steps >= self._section.save_every_steps or waited >= hosts.save_every_s(self._section.save_every_s)
        return self.files is not None and due

    def save(self, state: LearnerState, done: TrainingProgress) -> None:
        """Starts to write a checkpoint, unless there is one with the same number of steps."""
        if self.files is None or done.env_steps in self.files.steps():
            return
        others: dict[str, Any] = {"frozen": self.frozen, "sources": self._sources.arrays()}
        arrays = {"learner": state} | {name: one for name, one in others.items() if jax.tree.leaves(one)}
        metadata = self._always | {"sources": self._sources.facts(), "progress": asdict(done)}
        self.files.save(done.env_steps, arrays, metadata, milestone=done.env_steps == 0)
        self.begin(done)

    def close(self) -> None:
        """Waits until the last checkpoint is whole."""
        files, self.files = self.files, None
        if files is not None:
            files.close()


def start_or_resume(
    config: Any, checkpoints: PolicyCheckpoints, learner: Learner, hosts: Hosts
) -> tuple[LearnerState, Any, TrainingProgress]:
    """The learner's state on all devices, the network's frozen parameters as they were read, and the progress.

    From the first that exists: the run's last checkpoint; another policy; random parameters. All hosts compare theirs.
    """
    model, sources, folder = learner.model, learner.sources, checkpoints.folder
    state, frozen = learner.make_state(model.params), model.frozen
    done, step = TrainingProgress(), -1
    if saved := latest_of_all(checkpoints.files, folder, hosts):
        step, arrays, metadata = saved
        sources.restore(metadata["sources"], arrays.pop("sources", {}))
        whole = rebuild({"learner": state, "frozen": frozen}, leaves_by_path(arrays), folder, "--workdir")
        state, frozen, done = whole["learner"], whole["frozen"], TrainingProgress(**metadata["progress"])
    elif config.policy.init_from:
        params, frozen = read_initial(config, model)
        state = learner.make_state(params)
    sources.check_state()
    hosts.agree()
    hosts.check_same("a state", [step, state, frozen, sources.arrays()])
    checkpoints.frozen = host_copy(frozen)
    checkpoints.begin(done)
    return learner.place(state), frozen, done


def read_initial(config: Any, model: Model) -> tuple[Any, Any]:
    """The parameters, and the frozen ones, of the policy that the config names, for a model like it."""
    source, flag = Path(config.policy.init_from), "--config.policy.init_from"
    with naming(flag):
        other, *_ = read_policy(source, trusted=trusted_classes(config, config.policy.network))
    has, needed = other.acting, model.acting
    if to_plain(has.record) != to_plain(needed.record):
        raise UserError(f"the policy in {str(source)!r} has {has.title}, not {needed.title} ({flag})")
    params = rebuild(model.params, leaves_by_path(other.params), source, flag)
    return params, rebuild(model.frozen, leaves_by_path(other.frozen), source, flag)

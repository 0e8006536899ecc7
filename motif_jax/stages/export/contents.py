"""The arrays and facts of a workdir's policy and reward, for a release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from motif_jax.config.table import PATH, PATHS, Tables, flatten, keys
from motif_jax.devices.checkpoints import find_checkpoints
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.envs.settings import TABLE as ENV
from motif_jax.policies.choice import list_steps
from motif_jax.policies.model import read_policy
from motif_jax.rewards.choice import LEARNT
from motif_jax.rewards.learnt import Reward, load_reward
from motif_jax.rewards.learnt_source import reward_checksum
from motif_jax.rewards.sources import chosen
from motif_jax.stages import EXPERIMENT
from motif_jax.stages.annotate.setup import TABLES as ANNOTATION
from motif_jax.stages.collect import TABLES as COLLECTION
from motif_jax.stages.train_policy import TABLES as TRAINING
from motif_jax.stages.train_reward import TABLES as LEARNING
from motif_jax.structs import UserError

DECLARED: Tables = {**EXPERIMENT, "env": ENV, **COLLECTION, **ANNOTATION, **LEARNING, **TRAINING}
Arrays = dict[tuple[str, ...], Any]


class Part(NamedTuple):
    """A policy or a reward."""

    step: int  # of the policy's training, or the reward's epoch
    facts: dict[str, Any]
    arrays: Arrays  # by their paths


def find_contents(config: ConfigDict, workdir: Path) -> dict[str, Part]:
    """The last policy of a workdir and the reward that it was trained with; without one, the workdir's own reward."""
    found: dict[str, Part] = {}
    reward = _own_reward(config, workdir)
    try:
        find_checkpoints(workdir, "policy")
    except UserError:
        pass  # a reward may be released alone
    else:
        _, steps = list_steps(str(workdir), "--workdir")
        model, facts, sources = read_policy(workdir, str(steps[-1]), [choice.path for choice in chosen(config)])
        arrays = _below("params", model.params) | _below("frozen", model.frozen)
        arrays |= _below("sources", {name: part for name, part in sources.arrays().items() if name != LEARNT})
        facts = facts | {"sources": sources.facts(), "config": deciding_values(facts["config"])}
        found["policy"] = Part(steps[-1], facts, arrays)
        if sources.learnt:
            learnt = sources.learnt.reward
            same = reward is not None and reward_checksum(reward) == reward_checksum(learnt)
            reward = reward if same else learnt
    if reward is not None:
        facts = reward.facts | {"model": reward.options, "statistics": reward.statistics.record()}
        if "config" in facts:
            facts["config"] = deciding_values(facts["config"])
        arrays = _below("params", reward.params)
        arrays |= {("captions",): reward.captions, ("counts",): reward.counts}
        found["reward"] = Part(int(facts.get("epoch") or 0), facts, arrays)
    if not found:
        raise UserError(f"there is neither a policy nor a reward in {str(workdir)!r} to export (--workdir)")
    return found


def _own_reward(config: ConfigDict, workdir: Path) -> Reward | None:
    """The reward of the workdir, with all facts; None if the workdir does not have one."""
    try:
        directory = find_checkpoints(workdir / "reward")
    except UserError:
        return None
    return load_reward(directory, config.policy.reward_checkpoint)


def _below(name: str, tree: Any) -> Arrays:
    return {(name, *path): array for path, array in leaves_by_path(tree).items()}


def deciding_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a config that decide the result, nested; paths are cut to their last part, for privacy."""
    flat, found = flatten(config), dict[str, Any]()
    for key, value in keys(DECLARED).items():
        if not value.decides or key not in flat:
            continue
        *sections, name = key.split(".")
        inner = found
        for section in sections:
            inner = inner.setdefault(section, {})
        text = flat[key]
        is_path = value.kind in (PATH, PATHS) or (isinstance(text, str) and text.startswith("/"))
        inner[name] = ",".join(Path(part).name for part in text.split(",")) if is_path else text
    return found


def check_same(directory: Path, contents: Mapping[str, Part]) -> None:
    """Reads the release; raises RuntimeError if the parameters differ from those that were written."""
    for kind, part in contents.items():
        params = read_policy(directory)[0].params if kind == "policy" else load_reward(directory).params
        for path, array in _below("params", params).items():
            if not np.array_equal(array, part.arrays[path]):
                raise RuntimeError(f"{'.'.join(path)} of the {kind} differs from the written one")

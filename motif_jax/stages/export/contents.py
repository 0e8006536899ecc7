"""What a release has: arrays and facts of a workdir's policy and reward, and figures of training and evaluations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from motif_jax.config.table import PATH, PATHS, Tables, flatten, keys
from motif_jax.devices.checkpoints import find_checkpoints
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.envs.protocols import TASK, suffix
from motif_jax.envs.worlds import TABLE as ENV
from motif_jax.pages.over_seeds import estimate
from motif_jax.policies.choice import list_steps
from motif_jax.policies.model import read_policy
from motif_jax.replays.replay import LARGEST, load_replay
from motif_jax.rewards.choice import LEARNT, without_folders
from motif_jax.rewards.learnt import Reward, load_reward
from motif_jax.rewards.learnt_source import reward_checksum
from motif_jax.rewards.sources import trusted_classes
from motif_jax.stages import EXPERIMENT
from motif_jax.stages.annotate.setup import TABLES as ANNOTATION
from motif_jax.stages.collect import TABLES as COLLECTION
from motif_jax.stages.evaluate.replays import file_of
from motif_jax.stages.evaluate.summary import SUMMARY, read_json
from motif_jax.stages.train_policy import TABLES as TRAINING
from motif_jax.stages.train_reward import TABLES as LEARNING
from motif_jax.structs import UserError
from motif_jax.system.foreign import read_bytes

DECLARED: Tables = {**EXPERIMENT, "env": ENV, **COLLECTION, **ANNOTATION, **LEARNING, **TRAINING}
Arrays = dict[tuple[str, ...], Any]
CHANCE = "random"
NAMING_SOURCES = ("policy.sources", "policy.options", "policy.controller")
SEED = re.compile(r"seed-\d+")  # the folder of one of several runs
KEPT = ("episodes", "task", "figures", "greedy")  # of a summary


class ReleasePart(NamedTuple):
    """A policy or a reward."""

    step: int  # of the policy's training, or the reward's epoch
    facts: dict[str, Any]
    arrays: Arrays  # by their paths


def find_contents(config: ConfigDict, workdir: Path) -> dict[str, ReleasePart]:
    """The last policy of a workdir and the reward that it was trained with; without one, the workdir's own reward."""
    found: dict[str, ReleasePart] = {}
    reward = _own_reward(config, workdir)
    try:
        find_checkpoints(workdir, "policy")
    except UserError:
        pass  # a reward may be released alone
    else:
        _, steps = list_steps(str(workdir), "--workdir")
        model, facts, sources = read_policy(workdir, str(steps[-1]), trusted_classes(config, config.policy.network))
        arrays = _below("params", model.params) | _below("frozen", model.frozen)
        arrays |= _below("sources", {name: part for name, part in sources.arrays().items() if name != LEARNT})
        facts = facts | {"sources": sources.facts(), "config": deciding_values(facts["config"])}
        if "reads" in facts["model"]:  # JSON files have sorted keys
            facts["model"] = facts["model"] | {"order": list(model.reads)}
        found["policy"] = ReleasePart(steps[-1], facts, arrays)
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
        found["reward"] = ReleasePart(int(facts.get("epoch") or 0), facts, arrays)
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
        text = without_folders(text) if key in NAMING_SOURCES else text
        is_path = value.kind in (PATH, PATHS) or (isinstance(text, str) and text.startswith("/"))
        inner[name] = ",".join(Path(part).name for part in text.split(",")) if is_path else text
    return found


def check_same(directory: Path, contents: Mapping[str, ReleasePart], trusted: Iterable[str]) -> None:
    """Reads the release; raises RuntimeError if the parameters differ from those that were written."""
    for kind, part in contents.items():
        is_policy = kind == "policy"
        params = read_policy(directory, trusted=trusted)[0].params if is_policy else load_reward(directory).params
        for path, array in _below("params", params).items():
            if not np.array_equal(array, part.arrays[path]):
                raise RuntimeError(f"{'.'.join(path)} of the {kind} differs from the written one")


def find_results(workdir: Path, contents: Mapping[str, ReleasePart]) -> dict[str, Any]:
    """Figures of the training, and each evaluation of the released policy, compared with random play.

    {"training": {"env_steps", "seconds"}, "seeds": 1, "evaluations": [{"episodes", "figures", "random", ...}]}
    """
    found: dict[str, Any] = {"seeds": 1, "evaluations": []}
    if "policy" not in contents:
        return found
    training = read_json(workdir / "policy" / "summary.json") or {}
    if training.get("env_steps") == contents["policy"].step:
        known = ("env_steps", "seconds", "machine")
        found["training"] = {name: training[name] for name in known if name in training}
    for file, summary in _own_summaries(workdir, contents["policy"].step):
        chance = f"{CHANCE}{suffix(summary.get('protocol', TASK))}"
        beside = read_json(workdir / "evaluate" / chance / file.name) or {}
        same = all(beside.get(name) == summary.get(name) for name in ("episodes", "task"))
        kept = {name: summary[name] for name in KEPT} | {"protocol": summary.get("protocol", TASK)}
        found["evaluations"].append(kept | {CHANCE: beside["figures"] if same else None})
    over_seeds = find_over_seeds(workdir)
    return found | (over_seeds or {})


def find_over_seeds(workdir: Path) -> dict[str, Any] | None:
    """Figures over this run and those with other seeds beside it (`--config.seeds`); None for a single run.

    {"seeds": N, "over_seeds": {figure: {"mean", "low", "high"}}}: the mean of the seeds' means, with its interval.
    """
    if not SEED.fullmatch(workdir.resolve().name):
        return None
    runs = sorted(path for path in workdir.resolve().parent.iterdir() if SEED.fullmatch(path.name))
    scores = [means for run in runs if (means := _latest_means(run))]
    if len(scores) < 2:
        return None
    shared = [figure for figure in scores[0] if all(figure in means for means in scores)]
    found = {figure: estimate([np.array([means[figure] for means in scores])]) for figure in shared}
    return {
        "seeds": len(scores),
        "over_seeds": {name: {"mean": one.value, "low": one.low, "high": one.high} for name, one in found.items()},
    }


def _latest_means(workdir: Path) -> dict[str, float]:
    """The mean of each figure in the latest evaluation of a workdir's policy with the task's rules."""
    files = (workdir / "evaluate").glob(f"*/{SUMMARY}")
    own = [one for file in files if (one := read_json(file)) and one.get("path") == "." and not one.get("greedy")]
    own = [one for one in own if one.get("protocol", TASK) == TASK]
    if not own:
        return {}
    figures = max(own, key=lambda one: one["step"])["figures"]
    return {figure: interval["mean"] for figure, interval in figures.items() if interval}


def find_replay(workdir: Path, contents: Mapping[str, ReleasePart]) -> bytes | None:
    """The replay of the best episode of the released policy; None if it was not kept."""
    if "policy" not in contents:
        return None
    for file, summary in _own_summaries(workdir, contents["policy"].step):
        best = (summary.get("replays") or {}).get("best")
        if best is not None and file_of(file.parent, best).is_file():
            kept = file_of(file.parent, best)
            load_replay(kept, "--workdir")  # only a valid replay is released
            return read_bytes(kept, LARGEST)
    return None


def _own_summaries(workdir: Path, step: int) -> list[tuple[Path, dict[str, Any]]]:
    """The evaluations of the workdir's policy at this step: first those with the task's rules, not greedy."""
    files = sorted((workdir / "evaluate").glob(f"*/{SUMMARY}"))
    found = [(file, summary) for file in files if (summary := read_json(file))]
    own = [(file, one) for file, one in found if one.get("path") == "." and one.get("step") == step]
    return sorted(own, key=lambda pair: (pair[1].get("protocol", TASK) != TASK, bool(pair[1].get("greedy")), pair[0]))

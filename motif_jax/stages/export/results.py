"""Results of a released policy for the card and config.json: figures of training and of the evaluations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.envs.protocols import TASK, suffix
from motif_jax.episodes.over_seeds import estimate
from motif_jax.replays.replay import LARGEST, load_replay
from motif_jax.stages.evaluate.replays import file_of
from motif_jax.stages.evaluate.summary import SUMMARY, read_json
from motif_jax.stages.export.contents import Part
from motif_jax.system.foreign import read_bytes

CHANCE = "random"
SEED = re.compile(r"seed-\d+")  # the folder of one of several runs
KEPT = ("episodes", "task", "figures", "greedy")  # of a summary


def find_results(workdir: Path, contents: Mapping[str, Part]) -> dict[str, Any]:
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


def find_replay(workdir: Path, contents: Mapping[str, Part]) -> bytes | None:
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

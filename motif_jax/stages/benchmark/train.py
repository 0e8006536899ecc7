"""Trains for some minutes: collects and labels pairs, learns a reward, then trains the policy on it, as users do.

All of it is in `train/` of the workdir, which is a workdir like any other: --stage=train_policy goes on there.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.stages import annotate, collect, train_policy, train_reward
from motif_jax.stages.benchmark.device import usage_rows
from motif_jax.stages.benchmark.rows import Row, say
from motif_jax.stages.benchmark.watch import Watch
from motif_jax.system.files import read_json, read_lines, write_config

STARTING = 0.2  # share of the training that does not count: programs are compiled, the first episodes begin
WAITS = "time/"  # the start of their names in metrics.jsonl


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Measures this part of the benchmark; returns its rows, each printed as soon as it is known."""
    folder = free_name(workdir / "train")
    folder.mkdir(parents=True)
    config = config.copy_and_resolve_references()
    config.policy.update({"network": config.benchmark.networks[0], "reward_dir": "", "init_from": ""})
    write_config(folder, config)
    rows: list[Row] = []
    start = time.monotonic()
    for stage in (collect, annotate, train_reward):
        stage.run(config, folder)
    rows.append(
        say(Row("train.reward_ready", round(time.monotonic() - start, 1), "s", {"pairs": config.collect.num_pairs}))
    )
    start = time.monotonic()
    config.policy.train_for_seconds = max(
        config.benchmark.train_seconds - rows[0].value, config.benchmark.train_seconds / 2
    )
    with Watch() as watch:
        watch.around("train", lambda: train_policy.run(config, folder))()
    whole = time.monotonic() - start
    rows += [say(row) for row in make_rows(folder / "policy", whole, config.policy.network, config.policy.dtype)]
    return rows + usage_rows("train", watch.usage("train"))


def free_name(folder: Path) -> Path:
    """The folder's name, or with a number after it where that is taken."""
    number, found = 1, folder
    while found.exists():
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def make_rows(folder: Path, whole: float, network: str, dtype: str) -> list[Row]:
    """Rows about a training, from what it has written to `folder`; `whole`: its seconds, from start to end."""
    summary = read_json(folder / "summary.json")
    seen = list(read_lines(folder / "metrics.jsonl", appended=True))
    later = [row for row in seen if row["seconds"] > STARTING * seen[-1]["seconds"]]
    later = later[1:] or seen[-1:]  # the first of them covers some of the start
    about: dict[str, Any] = {"network": network, "dtype": dtype, "seconds": round(summary["seconds"])}
    rows = [
        Row("train.steps_per_s", statistics.median(row["steps_per_s"] for row in later), "steps/s", about),
        Row(
            "train.steps", summary["env_steps"], "steps", {"updates": summary["updates"], "with_start_s": round(whole)}
        ),
    ]
    returns = [row["episode/intrinsic_return"] for row in seen if row.get("episode/intrinsic_return") is not None]
    if returns:
        most = {"first": round(returns[0], 3), "rows": len(returns), "curve": str(folder / "metrics.jsonl")}
        rows.append(Row("train.learnt_return", round(returns[-1], 3), "", most))
    rows.append(Row("train.lag", statistics.mean(row["train/lag_mean"] for row in later), "updates", {}))
    for name in later[-1]:
        if name.startswith(WAITS):
            share = 100 * statistics.mean(row[name] for row in later)
            rows.append(Row(f"train.time.{name.removeprefix(WAITS)}", round(share, 2), "% of the time", {}))
    return rows

"""For machines with a GPU (launch/gpu.sh): a trace of some updates, a training of some minutes, and a table of both."""

from __future__ import annotations

import gzip
import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from benchmarks.device import describe_device, gpu_busy, is_accelerated
from benchmarks.limits import make_table as limits_table
from benchmarks.policy import WARMUP_BATCHES, Training
from benchmarks.rows import Row, Rows
from motif_jax.console import print_line
from motif_jax.files import read_json, read_lines, write_config
from motif_jax.stages import annotate, collect, train_policy, train_reward
from motif_jax.stages.train_policy import Profile
from motif_jax.stages.train_policy.metrics import Trace
from motif_jax.structs import UserError
from motif_jax.system.sizing import sizes_of

UPDATES = 5  # of the trace
STARTING = 0.2  # share of the training that does not count: programs are compiled, the first episodes begin
STEPS = ("limits", "numerics", "reward", "policy", "profile", "train")  # of launch/gpu.sh
REHEARSAL = (
    "**A rehearsal on a CPU: it shows that every step runs. None of these figures is of a GPU, and none belongs into a "
    "table of results.**"
)
PRECISIONS = {"exact": "float32, exact products", "float32": "float32 as trained", "bfloat16": "bfloat16"}
LINES = {  # of the table, by row; N stands for the network, M for the number of all games
    "train.steps_per_s": "training for {seconds} s, learnt reward on",
    "train.learnt_return": "learnt return of an episode at its end (at its start: {first})",
    "policy.end_to_end.N": "the same in short runs, {games} games, {workers} workers, batch {batch}",
    "policy.learner.N": "the learner alone, batch {batch}",
    "policy.inference.N": "the policy alone, {games} games at a time",
    "policy.inference_of.M.N": "the policy alone, all games in a call of {ms_per_call} ms",
    "policy.matrix_product": "one large matrix product, {dtype}",
    "policy.update_memory.N": "device memory that an update needs",
    "reward.epoch_pairs_per_s.explorer": "training the reward, batch {batch}",
    "gpu_busy.train": "GPU busy while training",
    "gpu_busy.policy.learner.N": "GPU busy in the learner alone",
    "profile.device_busy": "device busy in the profile of {updates} updates",
}


def describe_run(config: ConfigDict) -> dict[str, Any]:
    """What `benchmark.json` has about the device and this run; each is printed."""
    device, asked = describe_device(), set(config.benchmark.parts)
    print_line("benchmark: " + ", ".join(f"{name} {value}" for name, value in device.items()))
    print_line(f"benchmark: {sizes_of(config.policy).describe()}")
    if rehearsal := not is_accelerated():
        print_line(
            "benchmark: JAX has no accelerator here: this is a rehearsal, and its figures are not those of a GPU"
        )
    return {
        "device": device,
        "rehearsal": rehearsal,
        "network": config.benchmark.networks[0],
        "dtype": config.policy.dtype,
        "skipped": {name: "not asked for" for name in STEPS if name not in asked},
    }


# ---- the trace


def measure_profile(config: ConfigDict, workdir: Path) -> list[Row]:
    """Row `profile.device_busy`, from a trace of some updates with games and actors at work.

    The trace is written where train_policy writes its own, below `profile/`, for XProf or https://ui.perfetto.dev.
    """
    training = Training(config, config.benchmark.networks[0], rewarded=True)
    training.act(0.0)  # which compiles the policy
    folder, rows = workdir / "profile", Rows()
    section = Profile(start_step=WARMUP_BATCHES + 1, num_steps=UPDATES)
    training.run(0.0, updates=UPDATES + 3, trace=Trace(section, folder))
    file = max(folder.rglob("perfetto_trace.json.gz"), key=lambda file: file.stat().st_mtime, default=None)
    work = read_trace(file) if file else []
    if not work:
        raise UserError(f"the profiler has recorded no operation of the device in {str(folder)!r}")
    rows.add("profile.device_busy", busy_share(work), "% of the time", 1, updates=UPDATES, file=str(file))
    return rows


def read_trace(file: Path) -> list[tuple[float, float]]:
    """Start and end of each operation of the device, from a trace that JAX has written for Perfetto."""
    with gzip.open(file, "rt") as source:
        events = json.load(source)["traceEvents"]
    names = {(event["pid"], event.get("tid"), event["name"]): event["args"].get("name", "")
             for event in events if event.get("ph") == "M" and "args" in event}  # fmt: skip
    on_device = any(name.startswith("/device:") for (_, _, kind), name in names.items() if kind == "process_name")

    def is_work(event: dict[str, Any]) -> bool:
        """On GPUs the operations that run in a stream; on CPUs those that name their program."""
        if names.get((event["pid"], None, "process_name"), "").startswith("/device:"):
            return names.get((event["pid"], event["tid"], "thread_name"), "").startswith("Stream")
        return not on_device and "hlo_module" in event.get("args", {})

    work = [event for event in events if event.get("ph") == "X" and is_work(event)]
    return [(float(event["ts"]), float(event["ts"]) + float(event.get("dur", 0.0))) for event in work]


def busy_share(work: list[tuple[float, float]]) -> float:
    """% of the time from the first to the last operation in which at least one ran."""
    busy, first, until = 0.0, min(work)[0], min(work)[0]
    for start, end in sorted(work):
        busy += max(end - max(start, until), 0.0)
        until = max(until, end)
    return 100 * busy / max(until - first, 1e-9)


# ---- the training


def measure_train(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `train.*`: collects and labels pairs, learns a reward, then trains the policy on it, as users do.

    All of it is in `train/` of the workdir, which is a workdir like any other: --stage=train_policy continues there.
    """
    folder, number = workdir / "train", 1
    while folder.exists():
        number += 1
        folder = workdir / f"train-{number}"
    folder.mkdir(parents=True)
    config, rows = config.copy_and_resolve_references(), Rows()
    config.policy.update({"network": config.benchmark.networks[0], "reward_dir": "", "init_from": ""})
    write_config(folder, config.to_dict())
    start = time.monotonic()
    for stage in (collect, annotate, train_reward):
        stage.STAGE.run(stage.STAGE.view(config.to_dict()), folder)
    ready = time.monotonic() - start
    rows.add("train.reward_ready", ready, "s", 1, pairs=config.collect.num_pairs)
    config.policy.train_for_seconds = max(config.benchmark.train_seconds - ready, config.benchmark.train_seconds / 2)
    start = time.monotonic()
    with gpu_busy(rows, "train"):
        train_policy.STAGE.run(train_policy.STAGE.view(config.to_dict()), folder)
    add_training(rows, folder / "policy", round(time.monotonic() - start), config)
    return rows


def add_training(rows: Rows, folder: Path, whole: int, config: ConfigDict) -> None:
    """Rows about a training, from the files that it has written to `folder`; `whole`: its seconds, start included."""
    summary = read_json(folder / "summary.json")
    seen = list(read_lines(folder / "metrics.jsonl"))
    later = [row for row in seen if row["seconds"] > STARTING * seen[-1]["seconds"]]
    later = later[1:] or seen[-1:]  # the first of them covers some of the start
    about = {"network": config.policy.network, "dtype": config.policy.dtype, "seconds": round(summary["seconds"])}
    rows.add("train.steps_per_s", statistics.median(row["steps_per_s"] for row in later), "steps/s", **about)
    rows.add("train.steps", summary["env_steps"], "steps", updates=summary["updates"], with_start_s=whole)
    returns = [row["episode/intrinsic_return"] for row in seen if row.get("episode/intrinsic_return") is not None]
    if returns:
        most = {"first": round(returns[0], 3), "rows": len(returns), "curve": str(folder / "metrics.jsonl")}
        rows.add("train.learnt_return", returns[-1], "", **most)
    rows.add("train.lag", statistics.mean(row["train/lag_mean"] for row in later), "updates")
    for name in [name for name in later[-1] if name.startswith("time/")]:
        share = 100 * statistics.mean(row[name] for row in later)
        rows.add(f"train.time.{name.removeprefix('time/')}", share, "% of the time", 2)


# ---- the table


def make_table(result: Mapping[str, Any]) -> str:
    """The content of `benchmark.json` as a table in Markdown, with the share of each thread's time below it."""
    rows = {row["name"]: Row(**row) for row in result["rows"]}
    network, device = result["network"], result["device"]
    driver = "".join(f", driver {gpu['driver']}" for gpu in device.get("gpus", [])[:1])
    about = f"{device['devices']} {device['kind']}{driver}; {result['machine']}; JAX {device['jax']}"
    lines = [REHEARSAL, ""] if result["rehearsal"] else []
    if "limits.ceiling" in rows:
        lines += [limits_table(rows), ""]
    lines += [f"| {about}; network {network}, {result['dtype']} | |", "| --- | ---: |"]
    most = max((int(name.split(".")[2]) for name in rows if name.startswith("policy.inference_of.")), default=0)
    for pattern, text in LINES.items():
        if row := rows.get(pattern.replace(".M", f".{most}").replace(".N", f".{network}")):
            sizes = {name: f"{size:,}" if isinstance(size, int) else size for name, size in row.sizes.items()}
            value = f"{row.value:,.0f}" if abs(row.value) >= 100 else f"{row.value:.3g}"
            lines.append(f"| {text.format(**sizes)} | {value} {row.unit} |")
    for precision, words in PRECISIONS.items():
        found = [row for name, row in rows.items() if name.startswith("numerics.") and name.endswith(f".{precision}")]
        if found:
            worst = max(found, key=lambda row: row.value / row.sizes["tolerance"])
            verdict = "agrees" if all(row.sizes["agrees"] for row in found) else "**differs**"
            name, tolerance = worst.name.split(".")[1], worst.sizes["tolerance"]
            value = f"{worst.value:g} in {name} (tolerated: {tolerance:g})"
            lines.append(f"| {words}, against the CPU: {verdict} | {value} |")
    start, end = ("train.time.", "") if "train.time.wait_for_batch" in rows else ("policy.time.", f".{network}")
    shares = {
        name.removeprefix(start).removesuffix(end): row.value
        for name, row in rows.items()
        if name.startswith(start) and name.endswith(end)
    }
    if shares:
        of_each = (f"{name} {share:.0f} %" for name, share in sorted(shares.items(), key=lambda item: -item[1]))
        lines += ["", f"Time of each thread: {', '.join(of_each)}."]
    if result["skipped"]:
        skipped = (f"{name} ({reason})" for name, reason in result["skipped"].items())
        lines += ["", f"Not measured: {', '.join(skipped)}."]
    return "\n".join(lines) + "\n"

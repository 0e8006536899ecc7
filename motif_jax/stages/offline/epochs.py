"""Offline training: epochs over batches that depend only on the seed, the epoch and the step.

A stopped or killed run resumes at the batch after its last checkpoint, and ends with the same bits and the same rows of
metrics as an uninterrupted run, because checkpoints hold the metrics since the last row. With several hosts, each
computes its rows of every batch, and the first one writes the files.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from motif_jax.console import print_line
from motif_jax.devices.checkpoints import Checkpoints, reading
from motif_jax.devices.host_arrays import from_first_host, same_on_every_host
from motif_jax.devices.hosts import Hosts, Vote, start_hosts
from motif_jax.devices.mesh import batch_parts, make_mesh
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.files import take
from motif_jax.structs import Stopped, UserError
from motif_jax.system.files import json_line, write_config
from motif_jax.system.locks import open_in_place
from motif_jax.system.meeting import find_meeting
from motif_jax.system.metrics import Progress, drop_rows_after
from motif_jax.system.signals import StopAsked
from motif_jax.transcripts.store import Transcripts

LOSS = "loss"  # a figure of every evaluation
RANK = "rank"  # an optional figure of evaluations that ranks checkpoints instead of the loss; lower is better
FINITE = "finite"  # a metric of updates: 0 if the update was not finite and did not change the state


class TrainingJob(NamedTuple):
    """A training: its state, its batches and its functions."""

    stage: str  # its name
    folder: Path  # checkpoints and metrics.jsonl are written here
    state: Any  # new, on the host; the same on every host
    place: Callable[[Any], Any]  # puts a state on the devices
    num_steps: Callable[[int], int]  # batches of an epoch
    batch: Callable[[int, int], Any]  # (epoch, step) -> this host's rows of the batch, on the devices
    update: Callable[[Any, Any], tuple[Any, dict[str, jax.Array]]]  # (state, batch) -> (state, metrics)
    evaluate: Callable[[Any], dict[str, float]]  # figures of a state, LOSS among them; every host calls it
    facts: dict[str, Any]  # saved in every checkpoint, which can then be used alone
    identity: dict[str, Any]  # facts that a checkpoint must share for training to resume from it


class Pace(NamedTuple):
    """Duration of training, and intervals of logging, evaluating and saving."""

    num_epochs: int
    log_every: int  # updates per row of metrics
    evaluate_every: int  # updates between evaluations; 0: only before the first epoch and after each
    save_every_s: float  # the most seconds of work that a kill can cost
    keep: int = 2  # checkpoints beside the best


class Outcome(NamedTuple):
    """The result of a training."""

    state: Any
    steps: int  # updates
    epoch: int
    best: dict[str, float]  # the row of the best evaluation


def train(job: TrainingJob, pace: Pace, hosts: Hosts, stop: StopAsked) -> Outcome:
    """Trains from the last checkpoint on, or from the start; raises Stopped after a signal."""
    keeper = Checkpoints(job.folder / "checkpoints", pace.keep) if hosts.me == 0 else None
    try:
        return _train(job, pace, hosts, stop, keeper)
    finally:
        if keeper:
            keeper.close()


def _train(job: TrainingJob, pace: Pace, hosts: Hosts, stop: StopAsked, keeper: Checkpoints | None) -> Outcome:
    state, done = _start_or_resume(job, keeper, hosts)
    expected = pace.num_epochs * job.num_steps(0)
    progress = Progress(job.stage, expected, "updates", done["steps"]) if keeper else None
    first, file = done["steps"], job.folder / "metrics.jsonl"
    started = saved = time.monotonic()
    if keeper:
        drop_rows_after(file, first or -1, "steps", job.stage)
        stop.watch(keeper.directory, lambda: done["steps"], "updates")

    def save(loss: float | None = None) -> None:
        nonlocal saved
        if keeper and done["steps"] not in keeper.steps():
            keeper.save(done["steps"], {"train": state}, job.facts | {"progress": dict(done)}, loss)
        saved = time.monotonic()

    def log(row: dict[str, Any]) -> None:
        if keeper:
            with open_in_place(file, "a") as out:
                out.write(json_line(row))

    def evaluate() -> None:
        figures = dict(job.evaluate(state))
        rank = figures.pop(RANK, figures[LOSS])
        row = {"steps": done["steps"], "epoch": done["epoch"]} | {f"valid_{name}": figures[name] for name in figures}
        if not np.isfinite(figures[LOSS]):
            raise UserError(f"the validation loss is not finite {_where(done)}; {_remedy(job)}")
        if not done["best"] or rank < done["rank"]:
            done["best"], done["rank"] = row, rank
        log(row)
        save(rank)

    if not done["steps"]:
        evaluate()
    while done["epoch"] < pace.num_epochs:
        size = job.num_steps(done["epoch"])
        while done["step"] < size:
            vote = Vote.STOP if stop.asked else Vote.GO_ON
            if hosts.count > 1:
                vote, _ = hosts.agree(vote)
            if vote == Vote.STOP:
                _check(job, done)
                save()
                raise Stopped(
                    f"stopped by {stop.asked or 'a signal to another host'} after {done['steps']:,} updates, which are "
                    "saved; give the same command again to go on"
                )
            if keeper and done["steps"] == first:
                print_line(f"{job.stage}: compiling the first update")
            state, metrics = job.update(state, job.batch(done["epoch"], done["step"]))
            done["step"] += 1
            done["steps"] += 1
            done["pending"].append(metrics)
            if done["steps"] % pace.log_every == 0:
                means = _check(job, done)
                done["pending"] = []
                if progress:
                    rate = (done["steps"] - first) / max(time.monotonic() - started, 1e-9)  # since this process began
                    log({"steps": done["steps"], "epoch": done["epoch"]} | means | {"updates_per_s": round(rate, 3)})
                    progress.update(done["steps"], loss=f"{means[LOSS]:.4f}")
            if done["step"] == size:
                break  # to evaluate and save below
            if pace.evaluate_every and done["steps"] % pace.evaluate_every == 0:
                _check(job, done)
                evaluate()
            elif keeper and time.monotonic() - saved > pace.save_every_s:
                _check(job, done)
                save()
        _check(job, done)
        done["epoch"], done["step"] = done["epoch"] + 1, 0
        evaluate()
    if progress:
        progress.close()
    if hosts.count > 1:
        hosts.agree(Vote.END)
    return Outcome(state, done["steps"], done["epoch"], done["best"])


def _start_or_resume(job: TrainingJob, keeper: Checkpoints | None, hosts: Hosts) -> tuple[Any, dict[str, Any]]:
    """The state on all devices, and the progress: from the last checkpoint, or new."""
    done: dict[str, Any] = {"epoch": 0, "step": 0, "steps": 0, "pending": [], "best": {}}
    state, found = job.state, keeper.latest() if keeper else None
    if keeper and found:
        number, whole, facts = found
        for name, value in job.identity.items():
            if facts.get(name) != value:
                raise UserError(
                    f"the {name.replace('_', ' ')} changed since the training in {str(job.folder)!r} began: choose "
                    "another --workdir, or remove this directory"
                )
        state = rebuild(state, leaves_by_path(whole["train"]), keeper.directory, "--workdir")
        done |= facts["progress"]
        print_line(f"{job.stage}: going on after {number:,} updates")
    if hosts.count > 1:
        hosts.agree(Vote.GO_ON)  # hosts worked alone until here, and one may have failed
        numbers = from_first_host(np.array([done["epoch"], done["step"], done["steps"]], np.int64)).tolist()
        if hosts.me:
            done |= dict(zip(("epoch", "step", "steps"), numbers, strict=True))
            state = _read_as_first_host(job, done["steps"]) if done["steps"] else state
        state, _ = same_on_every_host(state)
    return job.place(state), done


def _read_as_first_host(job: TrainingJob, step: int) -> Any:
    """Reads the checkpoint that the first host has read; returns a new state if this host cannot read it."""
    try:
        with reading(job.folder / "checkpoints") as checkpoints:
            whole = checkpoints.readable(str(step))[1]
            return rebuild(job.state, leaves_by_path(whole["train"]), job.folder)
    except (UserError, OSError):
        return job.state


def _check(job: TrainingJob, done: dict[str, Any]) -> dict[str, float]:
    """Means over the updates since the last row; raises UserError if an update was not finite."""
    done["pending"] = [
        {name: float(value) for name, value in metrics.items()} for metrics in jax.device_get(done["pending"])
    ]
    for before, metrics in enumerate(reversed(done["pending"])):
        if not metrics.get(FINITE, 1.0):
            raise UserError(f"the loss is not finite {_where(done, before)}; {_remedy(job)}")
    names = done["pending"][0] if done["pending"] else ()
    return {name: float(np.mean([metrics[name] for metrics in done["pending"]])) for name in names if name != FINITE}


def _where(done: dict[str, Any], before: int = 0) -> str:
    return f"at update {done['steps'] - before:,} (epoch {done['epoch']})"


def _remedy(job: TrainingJob) -> str:
    return (
        f"earlier states are in {str(job.folder / 'checkpoints')!r}: choose another --workdir, with a smaller "
        f"--config.{job.stage}.learning_rate"
    )


def run_offline(
    config: ConfigDict,
    stage: str,
    folder: Path,
    open_data: Callable[[bool], Transcripts],
    prepare: Callable[[Transcripts, Mesh, Hosts], tuple[TrainingJob, Callable[[Outcome], None]]],
) -> None:
    """Trains in `folder`, or resumes an earlier run there.

    `open_data` is told whether this process may import them, as the first host does. `prepare` makes the job, and the
    function that writes its result on the first host.
    """
    section = config[stage]
    with StopAsked() as stop:
        start_hosts(find_meeting(config.distributed), lambda: stop.asked)
        with Hosts() as hosts, contextlib.ExitStack() as stack:
            if hosts.me == 0:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(take(folder / ".lock"))
            transcripts = open_data(True) if hosts.me == 0 else None
            if hosts.count > 1:
                hosts.agree(Vote.GO_ON)
            transcripts = transcripts or open_data(False)
            mesh = make_mesh()
            if section.batch_size % (batch_parts(mesh) * section.num_parts):
                raise UserError(
                    f"batch_size {section.batch_size} cannot be cut into {section.num_parts} parts for each of "
                    f"{batch_parts(mesh)} devices (--config.{stage}.batch_size, .num_parts)"
                )
            job, finish = prepare(transcripts, mesh, hosts)
            if hosts.me == 0:
                write_config(folder, config)
            pace = Pace(section.num_epochs, section.log_every, section.evaluate_every, section.save_every_s,
                        section.keep_checkpoints)  # fmt: skip
            outcome = train(job, pace, hosts, stop)
            if hosts.me == 0:
                finish(outcome)

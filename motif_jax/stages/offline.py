"""Offline training: epochs over token batches that depend only on the seed, the epoch and the step.

    with open_session(config, section, workdir, "train_values", "values", open_transcripts) as session:
        job = make_job(config, session, title, recipe, parts, renderer, figures)
        outcome = train(job, session, begin)

A stopped or killed run resumes at the batch after its last checkpoint, and ends with the same bits and the same rows of
metrics as an uninterrupted run, because checkpoints hold the metrics since the last row. With several hosts, each
computes its rows of every batch, and the first one writes the files.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

import motif_jax
from motif_jax.console import print_line
from motif_jax.devices.checkpoints import latest_of_all
from motif_jax.devices.hosts import Hosts, Vote, start_hosts
from motif_jax.devices.mesh import batch_parts, make_mesh, map_update, replicate, shard
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.envs.worlds import without_nethack
from motif_jax.files import read_json, to_plain
from motif_jax.language.adapt import with_additions
from motif_jax.language.config import LanguageConfig, to_record
from motif_jax.offline.losses import Replies, TranscriptBatch, Weights
from motif_jax.offline.recipes import OfflineSection, Recipe, settings_of
from motif_jax.offline.update import init_state, make_measure, make_update, means_of, objective_of, zero_sums
from motif_jax.offline.values import ModelFunctions
from motif_jax.pages.blocks import Block, Box, Heading, Tiles, amount, exact
from motif_jax.pages.charts import Curves
from motif_jax.pages.figures import all_metrics
from motif_jax.run import CONFIG, Facts, Run, StageRun, from_plain
from motif_jax.stages import Experiment
from motif_jax.structs import Stopped, UserError
from motif_jax.system.machine import describe
from motif_jax.system.meeting import find_meeting
from motif_jax.system.metrics import Progress
from motif_jax.system.startup import StopAsked
from motif_jax.tokens import Tokeniser, digest
from motif_jax.transcripts.render import EpochPlan, Renderer, Rows, make_batch, planner
from motif_jax.transcripts.store import Transcripts

LOSS = "loss"  # a figure of every evaluation
RANK = "rank"  # an optional figure of evaluations that ranks checkpoints instead of the loss; lower is better
FINITE = "finite"  # a metric of updates: 0 if the update was not finite and did not change the state
TITLE = "Learning from transcripts"  # of the report's part
CURVES = (  # of the metrics, in the report: title, and a note
    ("valid_return", "Return", "of games during training"),
    ("valid_policy", "Loss of cloning", "per token, validation"),
    ("valid_accuracy", "Tokens predicted", "share, validation"),
    ("valid_q", "Loss of Q", "validation"),
    ("valid_v", "Loss of V", "validation"),
    ("valid_value_mean", "Mean of V", "validation"),
    ("valid_advantage_mean", "Mean of Q - V", "of recorded texts, validation"),
    ("loss", "Loss", "training"),
)


class Session(NamedTuple):
    """A stage at work: its directory, its section of the config, and what it learns from."""

    stage: StageRun
    section: OfflineSection
    hosts: Hosts
    stop: StopAsked
    transcripts: Transcripts
    mesh: Mesh


@contextlib.contextmanager
def open_session(
    config: Any, section: OfflineSection, workdir: Path, name: str, folder: str,
    open_transcripts: Callable[[Any, Path, bool], Transcripts],
) -> Iterator[Session]:  # fmt: skip
    """Meets the other hosts, locks the stage's directory and opens the transcripts.

    `open_transcripts`: (config, workdir, whether this process may import them, as one host does) -> transcripts.
    """
    with StopAsked() as stop:
        start_hosts(find_meeting(config.distributed), lambda: stop.asked)
        with Hosts() as hosts, Run(workdir).stage(name, folder, writes=hosts.me == 0) as stage:
            transcripts = open_transcripts(config, workdir, True) if hosts.me == 0 else None
            hosts.agree(Vote.GO_ON)
            transcripts = transcripts or open_transcripts(config, workdir, False)
            mesh = make_mesh()
            if section.batch_size % (batch_parts(mesh) * section.num_parts):
                parts = f"{section.num_parts} parts for each of {batch_parts(mesh)} devices"
                flags = f"--config.{name}.batch_size, .num_parts"
                raise UserError(f"batch_size {section.batch_size} cannot be cut into {parts} ({flags})")
            yield Session(stage, section, hosts, stop, transcripts, mesh)


# ---- the loop


class TrainingJob(NamedTuple):
    """A training: its state, its batches and its functions."""

    title: str  # in the report
    state: Any  # new, on the host; the same on every host
    num_steps: Callable[[int], int]  # batches of an epoch
    batch: Callable[[int, int], Any]  # (epoch, step) -> this host's rows of the batch, on the devices
    update: Callable[[Any, Any], tuple[Any, dict[str, jax.Array]]]  # (state, batch) -> (state, metrics)
    evaluate: Callable[[Any], dict[str, float]]  # figures of a state, LOSS among them; every host calls it
    metadata: dict[str, Any]  # saved in every checkpoint, which can then be used alone
    identity: dict[str, Any]  # metadata that a checkpoint must share for training to resume from it


@dataclass
class Done:
    """The progress of a training, which checkpoints hold."""

    epoch: int = 0
    step: int = 0  # batches of this epoch
    steps: int = 0  # updates
    pending: list[dict[str, Any]] = field(default_factory=list)  # metrics of the updates since the last row
    best: dict[str, Any] = field(default_factory=dict)  # the row of the best evaluation, with its number of steps
    rank: float = 0.0  # of it


def train(job: TrainingJob, session: Session, begin: Callable[[], None]) -> Training:
    """Trains from the last checkpoint on, or from the start; raises Stopped after a signal.

    `begin` writes the files that belong to this training, once it is known that it may go on: a refused one leaves
    those of the training before it.
    """
    with contextlib.ExitStack() as stack:
        training = Training(job, session, stack)
        begin()
        training.run()
    session.hosts.agree(Vote.END)
    return training


class Training:
    """A training at work: its state, its progress, and the files that it writes."""

    def __init__(self, job: TrainingJob, session: Session, stack: contextlib.ExitStack):
        self.job, self.stage, self.section = job, session.stage, session.section
        self.hosts, self.stop = session.hosts, session.stop
        self.checkpoints = stack.enter_context(self.stage.checkpoints(self.section.keep_checkpoints))
        state, self.done, number, folder = job.state, Done(), -1, self.stage.path / "checkpoints"
        if latest := latest_of_all(self.checkpoints, folder, self.hosts):
            number, arrays, record = latest
            if changed := [name.replace("_", " ") for name, value in job.identity.items() if record.get(name) != value]:
                began = f"since the training in {str(self.stage.path)!r} began"
                raise UserError(f"the {changed[0]} changed {began}: choose another --workdir, or remove this directory")
            state = rebuild(state, leaves_by_path(arrays["train"]), folder, "--workdir")
            self.done = from_plain(Done, record["progress"])
            if self.checkpoints:
                print_line(f"{self.stage.name}: going on after {number:,} updates")
        self.hosts.agree(Vote.GO_ON)
        self.hosts.check_same("a state", [number, state])
        self.state, self.first = replicate(state, session.mesh), self.done.steps
        self.started = self.saved = time.monotonic()
        logs = self.section.tensorboard, self.section.wandb, job.metadata.get("config")
        self.metrics = stack.enter_context(self.stage.metrics("steps", self.first or -1, *logs))
        updates = self.section.num_epochs * job.num_steps(0)
        self.progress = Progress(self.stage.name, updates, "updates", self.first) if self.metrics else None
        if self.checkpoints:
            self.stop.watch(self.checkpoints.directory, lambda: self.done.steps, "updates")

    def run(self) -> None:
        job, section, done = self.job, self.section, self.done
        if not done.steps:
            self.evaluate()
        while done.epoch < section.num_epochs:
            while done.step < job.num_steps(done.epoch):
                if self.hosts.agree(Vote.STOP if self.stop.asked else Vote.GO_ON)[0] == Vote.STOP:  # on any host
                    self.save()
                    saved = f"after {done.steps:,} updates, which are saved; run the same command again to resume"
                    raise Stopped(f"stopped by {self.stop.asked or 'a signal to another host'} {saved}")
                if self.metrics and done.steps == self.first:
                    print_line(f"{self.stage.name}: compiling the first update")
                self.state, measured = job.update(self.state, job.batch(done.epoch, done.step))
                done.step, done.steps = done.step + 1, done.steps + 1
                done.pending.append(measured)
                if done.steps % section.log_every == 0:
                    self.log()
                if done.step == job.num_steps(done.epoch):
                    break  # to evaluate and save below
                due = time.monotonic() - self.saved > self.hosts.save_every_s(section.save_every_s)
                if section.evaluate_every and done.steps % section.evaluate_every == 0:
                    self.evaluate()
                elif self.checkpoints and due:
                    self.save()
            self.check()  # the error names the epoch
            done.epoch, done.step = done.epoch + 1, 0
            self.evaluate()
        if self.progress:
            self.progress.close()

    def evaluate(self) -> None:
        """Measures the state, and writes a row and a checkpoint."""
        self.check()
        done, figures = self.done, dict(self.job.evaluate(self.state))
        rank = figures.pop(RANK, figures[LOSS])
        row = {"epoch": done.epoch} | {f"valid_{name}": figures[name] for name in figures}
        if not np.isfinite(figures[LOSS]):
            raise self.not_finite("validation loss", done.steps)
        if not done.best or rank <= done.rank:  # of equal ones the last: the first may not have learnt anything
            done.best, done.rank = {"steps": done.steps} | row, rank
        if self.metrics:
            self.metrics.write(done.steps, row)
            report_learning(self.stage, self.job.title, {"steps": done.steps})
        self.save(rank)

    def save(self, rank: float | None = None) -> None:
        """Writes a checkpoint, unless there is one of this update."""
        self.check()
        if self.checkpoints and self.done.steps not in self.checkpoints.steps():
            record = self.job.metadata | {"progress": to_plain(self.done)}
            self.checkpoints.save(self.done.steps, {"train": self.state}, record, rank)
        self.saved = time.monotonic()

    def log(self) -> None:
        done, means = self.done, self.check()
        done.pending = []
        if self.metrics and self.progress:
            rate = (done.steps - self.first) / max(time.monotonic() - self.started, 1e-9)  # since this process began
            self.metrics.write(done.steps, {"epoch": done.epoch} | means | {"updates_per_s": round(rate, 3)})
            self.progress.update(done.steps, loss=f"{means[LOSS]:.4f}")

    def check(self) -> dict[str, float]:
        """Means over the updates since the last row; raises UserError if an update was not finite."""
        done = self.done
        done.pending = [{name: float(one) for name, one in row.items()} for row in jax.device_get(done.pending)]
        for before, metrics in enumerate(reversed(done.pending)):
            if not metrics.get(FINITE, 1.0):
                raise self.not_finite("loss", done.steps - before)
        names = done.pending[0] if done.pending else ()
        return {name: float(np.mean([row[name] for row in done.pending])) for name in names if name != FINITE}

    def not_finite(self, what: str, update: int) -> UserError:
        return UserError(
            f"the {what} is not finite at update {update:,} (epoch {self.done.epoch}); earlier states are in "
            f"{str(self.stage.path / 'checkpoints')!r}: choose another --workdir, with a smaller "
            f"--config.{self.stage.name}.learning_rate"
        )


def report_learning(stage: StageRun, title: str, summary: Mapping[str, Any], *blocks: Block) -> None:
    """Writes the stage's part of the report: figures and curves, then `blocks`."""
    rows, figures = stage.rows(), [(f"{summary['steps']:,}", "updates")]
    if "parameters" in summary:  # at the end
        figures.append((amount(summary["parameters"]), "parameters learnt"))
        figures.append((f"{summary['episodes']:,}", "episodes learnt from"))
    if rates := [row["updates_per_s"] for row in rows if "updates_per_s" in row]:
        figures.append((exact(rates[-1]), "updates/s"))
    charts = []
    for name, heading, note in CURVES:
        points = [(row["steps"], row[name]) for row in rows if row.get(name) is not None]
        if len(points) > 1:
            charts.append(Curves({heading.lower(): points}, "updates", title=heading, note=note))
    stage.section(TITLE, Heading(title), Tiles(figures), Box(charts, "charts"), *blocks, all_metrics(rows))
    config, machine = without_nethack(read_json(stage.path / CONFIG), summary.get("machine", {}))
    stage.report(Facts(config=config, machine=machine or None))


def write_summary(stage: StageRun, job: TrainingJob, done: Done, result: Mapping[str, Any], *blocks: Block) -> None:
    """Ends the stage: writes its part of the report, with `blocks`, and a summary of training and `result`."""
    summary = {
        "epoch": done.epoch, "steps": done.steps, "best": done.best, "episodes": job.metadata["episodes"], **result,
        **job.identity, "machine": describe(jax.devices()[0].device_kind, jax.device_count()),
    }  # fmt: skip
    report_learning(stage, job.title, summary, *blocks)
    stage.write("summary", summary)  # last: the stage is complete


# ---- the job


# (rows on the devices, the most texts of the agent in a row, seeds of the random numbers) -> `Replies`
ReplySource = Callable[[Rows, int, tuple[int, int, int]], Replies]
VALIDATION = 2**31 - 1  # stands for an epoch's number


class LanguageParts(NamedTuple):
    """A language model, its parameters and its tokeniser."""

    language: ModelFunctions
    params: Any  # on the host
    tokeniser: Tokeniser
    config: LanguageConfig
    graph: Any  # `nnx.merge(graph, params)` is the model
    additions: Any = None  # low-rank ones at the start, which are learnt instead of the parameters
    factor: float = 0.0  # of the additions

    def whole(self, tree: Mapping[str, Any], params: Any = None) -> dict[str, Any]:
        """The learnt parts or targets, with additions merged into `params` (by default the model's own)."""
        if self.additions is None:
            return dict(tree)
        params = self.params if params is None else params
        models = {"policy", "trunk"} & tree.keys()
        return dict(tree) | {name: with_additions(params, tree[name], self.factor) for name in models}


def choose_episodes(
    section: OfflineSection, recipe: Recipe, transcripts: Transcripts, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Episodes to learn from, the best ones if the recipe is selective, and to validate with. Ascending, [N] and [M]

    The split depends on the seed alone.
    """
    count = len(transcripts)
    order = np.random.default_rng((seed, 1)).permutation(count)
    num_held = min(max(1, round(count * section.validation_share)), count - 1)
    if not num_held:
        raise UserError(f"{count} episodes are too few to train and to validate (--config.transcripts.path)")
    learnt, held = np.sort(order[num_held:]), np.sort(order[:num_held])
    if recipe.selective:
        learnt = best_episodes(learnt, transcripts.returns(), section.best_share)
    return learnt, held


def best_episodes(episodes: np.ndarray, returns: np.ndarray, share: float) -> np.ndarray:
    """The share of the episodes with the highest returns, at least one, ascending; the first of equal ones."""
    count = max(1, round(len(episodes) * share))
    order = np.argsort(-returns[episodes], kind="stable")
    return np.sort(episodes[order[:count]])


def make_job(
    config: Experiment, session: Session, title: str, recipe: Recipe, parts: LanguageParts, renderer: Renderer,
    figures: Callable[[Any, dict[str, float]], dict[str, float]], *, trunk: Any = None, bias: float = 0.0,
    identity: Mapping[str, Any] = {}, metadata: Mapping[str, Any] = {}, replies: ReplySource | None = None,
) -> TrainingJob:  # fmt: skip
    """Makes the job of a stage. Its batches depend only on the seed, the epoch and the step.

    Args:
      title: of the report's part.
      parts, renderer: the language model, and the transcripts as its tokens.
      figures: (state, means of all terms over the validation episodes) -> figures of the evaluation.
      trunk, bias: where the values begin, if the recipe has any; see `update.init_state`.
      identity, metadata: of this stage, for its checkpoints.
      replies: for recipes that need them.
    """
    section, mesh, hosts, stage = session.section, session.mesh, session.hosts, session.stage.name
    longest, lengths = section.max_length, renderer.lengths
    if (long := int((lengths > longest).sum())) and hosts.me == 0:
        most = f"more than {longest:,} tokens, of which the {section.keep} is kept (the longest has {lengths.max():,})"
        print_line(f"{stage}: {long:,} of {len(lengths):,} episodes have {most} (--config.{stage}.max_length, .keep)")
    learnt, held = choose_episodes(section, recipe, session.transcripts, config.seed)
    layout: dict[str, Any] = {"packed": section.packed, "in_order": section.in_order, "seed": config.seed,
                              "max_length": longest, "batch_rows": section.batch_size}  # fmt: skip
    plan = functools.lru_cache(maxsize=1)(planner(renderer, learnt, **layout))  # of one epoch
    validation = planner(renderer, held, **layout)(0)
    rows = section.batch_size // hosts.count
    share = slice(hosts.me * rows, (hosts.me + 1) * rows)  # of each batch: this host's

    def batch(plan: EpochPlan, epoch: int, step: int) -> TranscriptBatch:
        placed = shard(TranscriptBatch(make_batch(renderer, plan, step, share)), mesh)
        if not replies:
            return placed
        most = max(sum(int(renderer.num_actions[episode]) for episode in row) for row in plan[step].rows)
        return placed._replace(replies=replies(placed.rows, most, (config.seed, epoch, step)))

    settings = settings_of(section, section.num_epochs * len(plan(0)))  # other epochs may differ a little
    start = parts.params if parts.additions is None else parts.additions
    given = replicate({} if recipe.learns_policy and start is parts.params else {"policy": parts.params}, mesh)

    def with_whole_models(weights: Weights) -> Weights:
        params = weights.given.get("policy")
        return Weights(parts.whole(weights.learnt, params), parts.whole(weights.target, params), weights.given)

    update = make_update(objective_of(parts.language, recipe, settings, with_whole_models), settings)
    update = map_update(update, mesh, batch_axis=0, num_constants=1)
    validated = objective_of(parts.language, recipe.validation, settings, with_whole_models)
    measure = map_update(make_measure(validated), mesh, batch_axis=0, num_constants=2)
    state = init_state(
        jax.random.key(config.seed), parts.language, recipe, settings, start, start if trunk is None else trunk, bias,
    )  # fmt: skip

    def evaluate(state: Any) -> dict[str, float]:
        sums = replicate(zero_sums(recipe.validation, settings), mesh)
        for number in range(len(validation)):
            sums = measure(sums, state, given, batch(validation, VALIDATION, number))
        means = {name: float(value) for name, value in jax.device_get(sums).items()}
        return figures(state, means_of(means, validated))

    same = {"transcripts": session.transcripts.fingerprint, "tokeniser": digest(parts.tokeniser), **identity}
    return TrainingJob(
        title=title, state=jax.tree.map(np.asarray, state),
        num_steps=lambda epoch: len(plan(epoch)), batch=lambda epoch, step: batch(plan(epoch), epoch, step),
        update=lambda state, batch: update(state, given, batch), evaluate=evaluate, identity=same,
        metadata=same | {
            "model": to_record(parts.config), "recipe": recipe.name, "config": to_plain(config),
            "episodes": len(learnt), "versions": {"motif_jax": motif_jax.__version__, "jax": jax.__version__},
            **metadata,
        },
    )  # fmt: skip

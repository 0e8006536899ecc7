"""Offline training: epochs over token batches that depend only on the seed, the epoch and the step.

    with open_session(config, section, workdir, "train_values", "values") as session:
        learner = Values(config, session, recipe, transcripts, parts, renderer)
        with resume(learner, session) as training:
            session.stage.bind(config)  # once it is known that the training goes on, not another one
            training.run()

A stopped or killed run resumes at the batch after its last checkpoint, and ends with the same bits and the same rows of
metrics as an uninterrupted run, because checkpoints hold the metrics since the last row. With several hosts, each
computes its rows of every batch, and the first one writes the files.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

import motif_jax
from motif_jax.console import print_line
from motif_jax.devices.checkpoints import latest_of_all, read_saved
from motif_jax.devices.hosts import Ballot, Hosts, Vote, start_hosts
from motif_jax.devices.mesh import batch_parts, make_mesh, map_update, replicate, shard
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.envs.worlds import without_nethack
from motif_jax.files import read_json, to_plain
from motif_jax.language.adapt import with_additions
from motif_jax.language.config import LanguageConfig, to_record
from motif_jax.language.model import ModelFunctions
from motif_jax.offline.recipes import OfflineSection, OfflineSettings, Recipe, settings_of
from motif_jax.offline.update import (
    Objective,
    TranscriptBatch,
    Weights,
    init_state,
    make_measure,
    make_update,
    means_of,
    objective_of,
)
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
from motif_jax.transcripts.render import EpochPlan, Renderer, make_batch, planner
from motif_jax.transcripts.store import Transcripts

LOSS = "loss"  # a figure of every evaluation
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
    """A stage at work: its directory, its section of the config, its hosts and devices."""

    stage: StageRun
    section: OfflineSection
    hosts: Hosts
    stop: StopAsked
    mesh: Mesh


@contextlib.contextmanager
def open_session(
    config: Experiment, section: OfflineSection, workdir: Path, name: str, folder: str
) -> Iterator[Session]:
    """Meets the other hosts, and locks the stage's directory."""
    with StopAsked() as stop:
        start_hosts(find_meeting(config.distributed), lambda: stop.asked)
        with Hosts() as hosts, Run(workdir).stage(name, folder, writes=hosts.me == 0) as stage:
            mesh = make_mesh()
            if section.batch_size % (batch_parts(mesh) * section.num_parts):
                parts = f"{section.num_parts} parts for each of {batch_parts(mesh)} devices"
                flags = f"--config.{name}.batch_size, .num_parts"
                raise UserError(f"batch_size {section.batch_size} cannot be cut into {parts} ({flags})")
            yield Session(stage, section, hosts, stop, mesh)


# ---- the loop


@dataclass
class Done:
    """The progress of a training, which checkpoints hold."""

    epoch: int = 0
    step: int = 0  # batches of this epoch
    steps: int = 0  # updates
    pending: list[dict[str, Any]] = field(default_factory=list)  # metrics of the updates since the last row
    best: dict[str, Any] = field(default_factory=dict)  # the row of the best evaluation, with its number of steps
    rank: float = 0.0  # of it


@contextlib.contextmanager
def resume(learner: Learner, session: Session) -> Iterator[Training]:
    """Opens the training after its last checkpoint, or at the start; raises UserError for the directory of another."""
    with contextlib.ExitStack() as stack:
        yield Training(learner, session, stack)
    session.hosts.agree(Ballot(Vote.END))


class Training:
    """A training at work: its state, its progress, and the files that it writes."""

    def __init__(self, learner: Learner, session: Session, stack: contextlib.ExitStack):
        self.learner, self.stage, self.section = learner, session.stage, session.section
        self.hosts, self.stop = session.hosts, session.stop
        self.checkpoints = stack.enter_context(self.stage.checkpoints(self.section.keep_checkpoints))
        state, self.done, number, folder = learner.state, Done(), -1, self.stage.path / "checkpoints"
        if latest := latest_of_all(self.checkpoints, folder, self.hosts):
            number, arrays, record = latest
            if changed := [name for name, value in learner.identity.items() if record.get(name) != value]:
                began = f"since the training in {str(self.stage.path)!r} began"
                raise UserError(f"the {changed[0]} changed {began}: choose another --workdir, or remove this directory")
            state = rebuild(state, leaves_by_path(arrays["train"]), folder, "--workdir")
            self.done = from_plain(Done, record["progress"])
            if self.checkpoints:
                print_line(f"{self.stage.name}: going on after {number:,} updates")
        self.hosts.agree()
        self.hosts.check_same("a state", [number, state])
        self.state, self.first = replicate(state, session.mesh), self.done.steps
        self.started = self.saved = time.monotonic()
        logs = self.section.tensorboard, self.section.wandb, learner.metadata.get("config")
        self.metrics = stack.enter_context(self.stage.metrics("steps", self.first or -1, *logs))
        updates = self.section.num_epochs * learner.num_steps(0)
        self.progress = Progress(self.stage.name, updates, "updates", self.first) if self.metrics else None
        if self.checkpoints:
            self.stop.watch(self.checkpoints.directory, lambda: self.done.steps, "updates")

    def run(self) -> None:
        """Trains until the last epoch; raises Stopped after a signal."""
        learner, section, done = self.learner, self.section, self.done
        if not done.steps:
            self.evaluate()
        while done.epoch < section.num_epochs:
            while done.step < learner.num_steps(done.epoch):
                self.stop_if_asked()
                if self.metrics and done.steps == self.first:
                    print_line(f"{self.stage.name}: compiling the first update")
                self.state, measured = learner.learn(self.state, done.epoch, done.step)
                done.step, done.steps = done.step + 1, done.steps + 1
                done.pending.append(measured)
                if done.steps % section.log_every == 0:
                    self.log()
                if done.step == learner.num_steps(done.epoch):
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

    def stop_if_asked(self) -> None:
        """Saves and raises Stopped if a signal has asked for it, on any host."""
        own = Ballot(Vote.STOP if self.stop.asked else Vote.GO_ON)
        if self.hosts.agree(own).vote == Vote.STOP:
            self.save()
            saved = f"after {self.done.steps:,} updates, which are saved; run the same command again to resume"
            raise Stopped(f"stopped by {self.stop.asked or 'a signal to another host'} {saved}")

    def evaluate(self) -> None:
        """Measures the state, and writes a row and a checkpoint."""
        self.check()
        done, figures = self.done, self.learner.evaluate(self.state)
        rank = self.learner.rank(figures)
        row = {"epoch": done.epoch} | {f"valid_{name}": figures[name] for name in figures}
        if not np.isfinite(figures[LOSS]):
            raise self.not_finite("validation loss", done.steps)
        if not done.best or rank <= done.rank:  # of equal ones the last: the first may not have learnt anything
            done.best, done.rank = {"steps": done.steps} | row, rank
        if self.metrics:
            self.metrics.write(done.steps, row)
            report_learning(self.stage, self.learner.title, {"steps": done.steps})
        self.save(rank)

    def save(self, rank: float | None = None) -> None:
        """Writes a checkpoint, unless there is one of this update."""
        self.check()
        if self.checkpoints and self.done.steps not in self.checkpoints.steps():
            record = self.learner.identity | self.learner.metadata | {"progress": to_plain(self.done)}
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


def write_summary(stage: StageRun, learner: Learner, done: Done, result: Mapping[str, Any], *blocks: Block) -> None:
    """Ends the stage: writes its part of the report, with `blocks`, and a summary of training and `result`."""
    summary = {
        "epoch": done.epoch, "steps": done.steps, "best": done.best, "episodes": learner.metadata["episodes"], **result,
        **learner.identity, "machine": describe(jax.devices()[0].device_kind, jax.device_count()),
    }  # fmt: skip
    report_learning(stage, learner.title, summary, *blocks)
    stage.write("summary", summary)  # last: the stage is complete


def read_state(stage: StageRun, learner: Learner, which: str) -> tuple[int, Any]:
    """The number of a checkpoint ("best", or its number) and the state in it, on the host."""
    folder = stage.path / "checkpoints"
    number, arrays, _ = read_saved(folder, "language model", which)
    return number, rebuild(learner.state, leaves_by_path(arrays["train"]), folder)


# ---- what is learnt from transcripts


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

    def merge(self, weights: Weights) -> Weights:
        """The weights with additions merged into the given policy."""
        params = weights.given.get("policy")
        return Weights(self.whole(weights.learnt, params), self.whole(weights.target, params), weights.given)


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


class Learner:
    """A recipe that learns from transcripts, by batches that depend only on the seed, the epoch and the step.

    A stage subclasses it for what it reads and measures besides.
    """

    title: str  # in the report
    config: Any
    section: Any

    def __init__(
        self, config: Experiment, session: Session, recipe: Recipe, transcripts: Transcripts, parts: LanguageParts,
        renderer: Renderer, trunk: Any = None, bias: float = 0.0,
    ):  # fmt: skip
        """`renderer`: of the transcripts. `trunk`, `bias`: where the values begin, see `update.init_state`."""
        self.config, self.section, self.recipe, self.mesh = config, session.section, recipe, session.mesh
        self.stage, self.transcripts, self.parts, self.renderer = session.stage, transcripts, parts, renderer
        report_long(session, renderer)
        learnt, self.held_out = choose_episodes(session.section, recipe, transcripts, config.seed)
        layout: dict[str, Any] = {
            "packed": self.section.packed, "in_order": self.section.in_order, "seed": config.seed,
            "max_length": self.section.max_length, "batch_rows": self.section.batch_size,
        }  # fmt: skip
        self.plan = functools.lru_cache(maxsize=1)(planner(renderer, learnt, **layout))  # of an epoch
        self.validation = planner(renderer, self.held_out, **layout)(0)
        rows, me = self.section.batch_size // session.hosts.count, session.hosts.me
        self.share = slice(me * rows, (me + 1) * rows)  # of each batch: this host's rows
        self.start = parts.params if parts.additions is None else parts.additions
        key, trunk = jax.random.key(config.seed), self.start if trunk is None else trunk
        state = init_state(key, parts.language, recipe, self.settings, self.start, trunk, bias)
        self.state = jax.tree.map(np.asarray, state)  # before the first update, the same on every host
        # What a checkpoint must share for training to resume from it, and what makes that it can be used alone.
        self.identity = {"transcripts": transcripts.fingerprint, "tokeniser": digest(parts.tokeniser)}
        self.metadata = {
            "model": to_record(parts.config), "recipe": recipe.name, "config": to_plain(config),
            "episodes": len(learnt), "versions": {"motif_jax": motif_jax.__version__, "jax": jax.__version__},
        }  # fmt: skip

    @functools.cached_property
    def settings(self) -> OfflineSettings:
        return settings_of(self.section, self.section.num_epochs * self.num_steps(0))  # other epochs differ a little

    @functools.cached_property
    def given(self) -> dict[str, Any]:
        """Parameters on the devices that are not learnt."""
        learns_all = self.recipe.learns_policy and self.start is self.parts.params
        return replicate({} if learns_all else {"policy": self.parts.params}, self.mesh)

    @functools.cached_property
    def update(self) -> Any:
        update = make_update(self.objective(self.recipe), self.settings)
        return map_update(update, self.mesh, batch_axis=0, num_constants=1)

    @functools.cached_property
    def measure(self) -> Any:
        measure = make_measure(self.objective(self.recipe.validation))
        return map_update(measure, self.mesh, batch_axis=0, num_constants=2)

    def objective(self, recipe: Recipe) -> Objective:
        return objective_of(self.parts.language, recipe, self.settings, self.parts.merge)

    def num_steps(self, epoch: int) -> int:
        """The number of updates of an epoch."""
        return len(self.plan(epoch))

    def batch(self, plan: EpochPlan, epoch: int, step: int) -> TranscriptBatch:
        """This host's rows of a batch, on the devices."""
        return shard(TranscriptBatch(make_batch(self.renderer, plan, step, self.share)), self.mesh)

    def learn(self, state: Any, epoch: int, step: int) -> tuple[Any, dict[str, Any]]:
        """The state after an update with this batch of the epoch, and metrics."""
        return self.update(state, self.given, self.batch(self.plan(epoch), epoch, step))

    def evaluate(self, state: Any) -> dict[str, float]:
        """Means of all terms over the validation episodes, LOSS among them; every host calls it."""
        objective = self.objective(self.recipe.validation)
        sums = replicate(objective.zeros(), self.mesh)
        for step in range(len(self.validation)):
            sums = self.measure(sums, state, self.given, self.batch(self.validation, VALIDATION, step))
        return means_of({name: float(value) for name, value in jax.device_get(sums).items()}, objective)

    def rank(self, figures: dict[str, float]) -> float:
        """The rank of a state with these figures among the checkpoints; lower is better."""
        return figures[LOSS]


def report_long(session: Session, renderer: Renderer) -> None:
    """Prints a line about episodes that do not fit into a row."""
    section, stage, lengths = session.section, session.stage, renderer.lengths
    if (long := int((lengths > section.max_length).sum())) and stage.writes:
        most = f"more than {section.max_length:,} tokens, of which the {section.keep} is kept"
        longest, flags = f"the longest has {lengths.max():,}", f"--config.{stage.name}.max_length, .keep"
        print_line(f"{stage.name}: {long:,} of {len(lengths):,} episodes have {most} ({longest}) ({flags})")

"""Training of the language model, from transcripts to a directory with the best model."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

import motif_jax
from motif_jax.config_table import record
from motif_jax.console import print_line
from motif_jax.distributed import start_hosts
from motif_jax.files import write_config, write_json
from motif_jax.hosts import Hosts, StopAsked, Vote
from motif_jax.locks import Held, take
from motif_jax.machine import describe
from motif_jax.offline.batch import Batch
from motif_jax.offline.recipes import recipe_of
from motif_jax.offline.settings import OPTIMIZER, Settings
from motif_jax.offline.update import init_state, make_offline_measure, make_offline_update, means_of, zero_sums
from motif_jax.parallel import batch_parts, make_mesh, map_update, replicate, shard
from motif_jax.parameters import leaves_by_path, rebuild
from motif_jax.saved import read_saved
from motif_jax.stages.offline.training import Job, Outcome, Pace
from motif_jax.stages.offline.training import train as run_job
from motif_jax.stages.train_language.data import (
    best_episodes,
    describe_cut,
    make_renderer,
    open_transcripts,
    split_episodes,
)
from motif_jax.stages.train_language.model import LanguageParts, make_parts, write_model
from motif_jax.stages.train_policy.conditions import coordinator
from motif_jax.structs import UserError
from motif_jax.tokens import digest
from motif_jax.transcripts.batches import make_batch, planner
from motif_jax.transcripts.render import Renderer
from motif_jax.transcripts.store import Transcripts

STAGE = "train_language"
SIZES = "--config.train_language.batch_size, .num_parts"


def train(config: ConfigDict, workdir: Path, folder: Path) -> None:
    """Trains the model in `folder`, or resumes an earlier run there; transcripts are those of the workdir."""
    with StopAsked() as stop:
        start_hosts(coordinator(config), config.distributed.num_processes, config.distributed.process_id)
        with Hosts() as hosts, contextlib.ExitStack() as stack:
            _train(config, workdir, folder, hosts, stop, stack)


def _train(
    config: ConfigDict, workdir: Path, folder: Path, hosts: Hosts, stop: StopAsked, stack: contextlib.ExitStack
) -> None:
    section = config.train_language
    if hosts.me == 0:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            stack.enter_context(take(folder / ".lock"))
        except Held as held:
            raise UserError(f"another run ({held}) is writing to {str(folder)!r} (--workdir)") from None

    # ---- data: the first host may import it, the others read it then
    transcripts = open_transcripts(config, workdir, may_import=True) if hosts.me == 0 else None
    if hosts.count > 1:
        hosts.agree(Vote.GO_ON)
    transcripts = transcripts or open_transcripts(config, workdir, may_import=False)

    # ---- model, devices
    mesh = make_mesh()
    pieces = batch_parts(mesh) * section.num_parts
    if section.batch_size % pieces:
        raise UserError(
            f"batch_size {section.batch_size} cannot be cut into {section.num_parts} parts for each of "
            f"{batch_parts(mesh)} devices ({SIZES})"
        )
    parts = make_parts(config.language, transcripts, section.max_length, config.seed)
    renderer = make_renderer(transcripts, parts.tokeniser, config.transcripts.template)
    if (cut := describe_cut(renderer, section.max_length)) and hosts.me == 0:
        print_line(f"{STAGE}: {cut} (--config.train_language.max_length)")

    job = make_job(config, folder, transcripts, parts, renderer, mesh, hosts)
    pace = Pace(section.num_epochs, section.log_every, section.evaluate_every, section.save_every_s,
                section.keep_checkpoints)  # fmt: skip
    if hosts.me == 0:
        write_config(folder, config)
    outcome = run_job(job, pace, hosts, stop)
    if hosts.me == 0:
        finish(folder, parts, job, outcome)


def make_job(
    config: ConfigDict, folder: Path, transcripts: Transcripts, parts: LanguageParts, renderer: Renderer, mesh: Any,
    hosts: Hosts,
) -> Job:  # fmt: skip
    """Everything that the loop needs."""
    section = config.train_language
    recipe = recipe_of(section.recipe)
    learnt, held = split_episodes(len(transcripts), section.validation_share, config.seed, "--config.transcripts.path")
    if recipe.selective:
        learnt = best_episodes(learnt, transcripts.returns(), section.best_share)
    layout: dict[str, Any] = {"packed": section.packed, "max_length": section.max_length,
                              "batch_rows": section.batch_size, "seed": config.seed}  # fmt: skip
    plans = _last_plan(planner(renderer, learnt, **layout))
    valid_plan = planner(renderer, held, **layout)(0)
    rows_here = section.batch_size // hosts.count
    share = slice(hosts.me * rows_here, (hosts.me + 1) * rows_here)

    total_steps = section.num_epochs * len(plans(0))  # those of later epochs may be a few more or less
    settings = Settings(**{name: section[name] for name in OPTIMIZER}, num_parts=section.num_parts, chunk=section.chunk,
                        mean_over_all_tokens=section.mean_over_all_tokens, total_steps=total_steps)  # fmt: skip
    update = map_update(make_offline_update(parts.language, recipe, settings), mesh, batch_axis=0, num_constants=1)
    measure = map_update(make_offline_measure(parts.language, recipe, settings), mesh, batch_axis=0, num_constants=2)
    state = init_state(jax.random.key(config.seed), parts.language, recipe, settings, parts.params, parts.params)

    def put(plan: Any, step: int) -> Batch:
        return shard(Batch(make_batch(renderer, plan, step, share)), mesh)

    def evaluate(state: Any) -> dict[str, float]:
        sums = replicate(zero_sums(recipe, settings), mesh)
        for step in range(len(valid_plan)):
            sums = measure(sums, state, {}, put(valid_plan, step))
        means = means_of({name: float(value) for name, value in jax.device_get(sums).items()}, recipe, settings)
        return {"loss": means["loss"], "accuracy": means["accuracy"]}

    identity = {"transcripts": transcripts.fingerprint, "tokeniser": digest(parts.tokeniser)}
    facts = identity | {
        "model": parts.config._asdict(), "recipe": section.recipe, "config": record(config.to_dict()),
        "episodes": len(learnt), "versions": {"motif_jax": motif_jax.__version__, "jax": jax.__version__},
    }  # fmt: skip
    return Job(
        stage=STAGE,
        folder=folder,
        state=jax.tree.map(np.asarray, state),
        place=lambda state: replicate(state, mesh),
        num_steps=lambda epoch: len(plans(epoch)),
        batch=lambda epoch, step: put(plans(epoch), step),
        update=lambda state, batch: update(state, {}, batch),
        evaluate=evaluate,
        facts=facts,
        identity=identity,
    )


def _last_plan(plan: Any) -> Any:
    """Keeps the plan of one epoch, which all of its batches are cut from."""
    kept: dict[int, Any] = {}

    def get(epoch: int) -> Any:
        if epoch not in kept:
            kept.clear()
            kept[epoch] = plan(epoch)
        return kept[epoch]

    return get


def finish(folder: Path, parts: LanguageParts, job: Job, outcome: Outcome) -> None:
    """Writes the best model and the summary, and says what came out."""
    number, whole, _ = read_saved(folder / "checkpoints", "language model", "best")
    state = rebuild(job.state, leaves_by_path(whole["train"]), folder)
    params = state.learnt["policy"]
    write_model(folder / "model", parts, params)
    size = sum(array.size for array in jax.tree.leaves(params))
    write_json(folder / "summary.json", {
        "epoch": outcome.epoch, "steps": outcome.steps, "best": outcome.best, "checkpoint": number,
        "parameters": size, "episodes": job.facts["episodes"], "tokeniser": job.identity["tokeniser"],
        "transcripts": job.identity["transcripts"],
        "machine": describe(jax.devices()[0].device_kind, jax.device_count()),
    })  # fmt: skip
    print_line(
        f"{STAGE}: {outcome.steps:,} updates, {size:,} parameters; best validation loss "
        f"{outcome.best['valid_loss']:.4f} per token of the agent, {outcome.best['valid_accuracy']:.1%} of them "
        f"predicted; {str(folder / 'model')!r} is for motif_jax.load_language"
    )

"""Trains the language model on transcripts, and writes the best model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

import motif_jax
from motif_jax.console import print_line
from motif_jax.devices.hosts import Hosts
from motif_jax.devices.mesh import map_update, replicate
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.devices.saved import read_saved
from motif_jax.language.config import MODEL, to_record
from motif_jax.offline.recipes import recipe_of
from motif_jax.offline.settings import settings_of
from motif_jax.offline.update import init_state, make_offline_update
from motif_jax.stages.offline.batches import check_sizes, choose_episodes, describe_cut, make_batches, make_validation
from motif_jax.stages.offline.epochs import Job, Outcome, Work, run_offline
from motif_jax.stages.train_language.data import make_renderer, open_transcripts
from motif_jax.stages.train_language.model import FILES, LanguageParts, make_parts, write_model
from motif_jax.system.files import record, write_json
from motif_jax.system.machine import describe
from motif_jax.system.own_folders import check_made
from motif_jax.tokens import digest
from motif_jax.transcripts.store import Transcripts

STAGE = "train_language"


def train(config: ConfigDict, workdir: Path, folder: Path) -> None:
    """Trains the model in `folder` on the workdir's transcripts, or resumes an earlier run there."""

    def prepare(transcripts: Transcripts, mesh: Mesh, hosts: Hosts) -> Work:
        parts, job = make_job(config, folder, transcripts, mesh, hosts)
        return Work(job, lambda outcome: finish(folder, parts, job, outcome))

    if not config.distributed.process_id:
        check_made(folder / MODEL, FILES)  # now, as it is replaced at the end
    # The first host may import the transcripts; the other hosts read them later.
    run_offline(config, config.train_language, folder, lambda may: open_transcripts(config, workdir, may), prepare)


def make_job(
    config: ConfigDict, folder: Path, transcripts: Transcripts, mesh: Mesh, hosts: Hosts
) -> tuple[LanguageParts, Job]:
    """The model, and the job of the training loop."""
    section = config.train_language
    check_sizes(section, STAGE, mesh)
    parts = make_parts(config.language, transcripts, section.max_length, config.seed)
    renderer = make_renderer(transcripts, parts.tokeniser, config.transcripts.template)
    if (cut := describe_cut(renderer, section.max_length)) and hosts.me == 0:
        print_line(f"{STAGE}: {cut} (--config.train_language.max_length)")
    recipe = recipe_of(section.recipe)
    learnt, held = choose_episodes(section, recipe, transcripts, config.seed)
    batches = make_batches(section, renderer, learnt, held, config.seed, mesh, hosts.me, hosts.count)

    total_steps = section.num_epochs * batches.num_steps(0)  # other epochs may have a few more or less
    settings = settings_of(section, total_steps)
    update = map_update(make_offline_update(parts.language, recipe, settings), mesh, batch_axis=0, num_constants=1)
    validate = make_validation(parts.language, recipe, settings, batches, {}, mesh)
    state = init_state(jax.random.key(config.seed), parts.language, recipe, settings, parts.params, parts.params)

    def evaluate(state: Any) -> dict[str, float]:
        means = validate(state)
        return {"loss": means["loss"], "accuracy": means["accuracy"]}

    identity = {"transcripts": transcripts.fingerprint, "tokeniser": digest(parts.tokeniser)}
    facts = identity | {
        "model": to_record(parts.config), "recipe": section.recipe, "config": record(config.to_dict()),
        "episodes": batches.learnt, "versions": {"motif_jax": motif_jax.__version__, "jax": jax.__version__},
    }  # fmt: skip
    return parts, Job(
        stage=STAGE,
        folder=folder,
        state=jax.tree.map(np.asarray, state),
        place=lambda state: replicate(state, mesh),
        num_steps=batches.num_steps,
        batch=batches.get,
        update=lambda state, batch: update(state, {}, batch),
        evaluate=evaluate,
        facts=facts,
        identity=identity,
    )


def finish(folder: Path, parts: LanguageParts, job: Job, outcome: Outcome) -> None:
    """Writes the best model and the summary, and prints a line."""
    number, whole, _ = read_saved(folder / "checkpoints", "language model", "best")
    state = rebuild(job.state, leaves_by_path(whole["train"]), folder)
    params = state.learnt["policy"]
    write_model(folder / MODEL, parts, params)
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
        f"predicted; motif_jax.load_language reads {str(folder / MODEL)!r}"
    )

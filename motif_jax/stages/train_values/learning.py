"""Trains values of texts, from transcripts and a policy to checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from motif_jax.console import print_line
from motif_jax.devices.hosts import Hosts
from motif_jax.devices.mesh import replicate
from motif_jax.devices.parameters import sum_of_arrays
from motif_jax.envs.own_code import reported
from motif_jax.envs.seeding import SeedStream
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.worlds import make_world
from motif_jax.language.config import find_trained
from motif_jax.offline.batch import Replies
from motif_jax.offline.recipes import recipe_of
from motif_jax.offline.update import OfflineState
from motif_jax.policies.conversations import play_games
from motif_jax.policies.decoding import decoding_in_training
from motif_jax.policies.programs import make_replies
from motif_jax.policies.values import POLICY, ValueModel, allowed_tokens
from motif_jax.policies.writing import ValueWriter
from motif_jax.stages.offline.epochs import RANK, Outcome, TrainingJob, run_offline
from motif_jax.stages.offline.job import LanguageParts, ReplySource, choose_episodes, make_job
from motif_jax.stages.train_language.data import check_known, describe_early_ends, make_renderer, open_transcripts
from motif_jax.stages.train_language.model import FILES, make_parts, new_params, write_model
from motif_jax.stages.train_values.by_playing import by_playing
from motif_jax.stages.train_values.found import best_texts, make_readers, ranks
from motif_jax.system.files import checkpoint_steps, write_json
from motif_jax.system.machine import describe
from motif_jax.system.own_folders import check_made
from motif_jax.transcripts.live import LiveRenderer
from motif_jax.transcripts.render import TEMPLATES, Renderer, Rows
from motif_jax.transcripts.store import Transcripts

STAGE = "train_values"
REPLIED = 4  # the number of texts per row is rounded up to a multiple, since each number is compiled
FLAG = "--config.train_values.policy"


def train(config: ConfigDict, workdir: Path, folder: Path) -> None:
    """Trains the values in `folder` on the workdir's transcripts, or resumes an earlier run there."""

    def prepare(transcripts: Transcripts, mesh: Mesh, hosts: Hosts) -> tuple[TrainingJob, Callable[[Outcome], None]]:
        parts = find_policy(config, workdir, transcripts)
        renderer = renderer_of(config, transcripts, parts)
        job = make_values_job(config, folder, transcripts, parts, renderer, mesh, hosts)
        learns_policy = bool(recipe_of(config.train_values.recipe).policy)
        goes_on = checkpoint_steps(folder / "checkpoints") and (folder / POLICY).is_dir()
        if hosts.me == 0 and not (learns_policy and goes_on):
            write_model(folder / POLICY, parts, parts.params)  # so that the folder can be used alone

        def conclude(outcome: Outcome) -> None:
            write_found(config, folder / "found.json", parts, renderer, transcripts, outcome)
            finish(folder, parts, job, outcome)  # last: its summary says that the stage is complete

        return job, conclude

    if not config.distributed.process_id:
        check_made(folder / POLICY, FILES)  # now, as it may be replaced at the end
    run_offline(config, STAGE, folder, lambda may: open_transcripts(config, workdir, may), prepare)


def renderer_of(config: ConfigDict, transcripts: Transcripts, parts: LanguageParts) -> Renderer:
    """The renderer, with the discount of the returns that the recipe learns from."""
    section = config.train_values
    discount = section.discount if recipe_of(section.recipe).v_target == "returns" else 1.0
    return make_renderer(transcripts, parts.tokeniser, config.transcripts.template, discount)


def find_policy(config: ConfigDict, workdir: Path, transcripts: Transcripts) -> LanguageParts:
    """The policy for the values: from a directory, from train_language, or new."""
    section, language = config.train_values, config.language.copy_and_resolve_references()
    flag = "--config.language.model"
    if section.start != "new":
        language.model, flag = section.policy or str(find_trained(workdir, FLAG)), FLAG
    return make_parts(language, transcripts, section.max_length, config.seed, flag, STAGE)


def make_values_job(
    config: ConfigDict, folder: Path, transcripts: Transcripts, parts: LanguageParts, renderer: Renderer, mesh: Mesh,
    hosts: Hosts,
) -> TrainingJob:  # fmt: skip
    """The job of the training loop."""
    section, recipe = config.train_values, recipe_of(config.train_values.recipe)
    check_known(transcripts, parts.tokeniser, FLAG)
    live = LiveRenderer(parts.tokeniser, TEMPLATES[config.transcripts.template])  # raises UserError if it cannot decode
    if (early := describe_early_ends(renderer, live.stop)) and hosts.me == 0:
        print_line(f"{STAGE}: {early} (--config.transcripts.template)")
    play = make_play(config, parts, renderer) if section.games and hosts.me == 0 else None

    def figures(state: Any, means: dict[str, float]) -> dict[str, float]:
        if not play:
            return means
        played = play(jax.device_get(state))
        return means | {"return": played, RANK: -played}

    job = make_job(
        config, STAGE, folder, transcripts, parts, renderer, mesh, hosts, figures,
        trunk=None if section.start == "policy" else new_params(parts, config.seed + 1),
        bias=mean_to_go(transcripts) / section.reward_scale,  # values begin at the mean reward-to-go
        identity={"policy": sum_of_arrays(parts.params)},
        facts={
            "mean_return": float(transcripts.returns().mean()),
            "emitted": renderer.emitted().tolist(),  # tokens that decoding may write
        },
        replies=reply_source(config, parts, renderer, mesh) if recipe.values == "reply" else None,
    )  # fmt: skip
    if recipe.plays:
        job = by_playing(job, config, parts, make_writer(config, parts, renderer), mesh)
    return job


def reply_source(config: ConfigDict, parts: LanguageParts, renderer: Renderer, mesh: Mesh) -> ReplySource:
    """A function that samples replies from the policy; they depend on the seed, the batch and the row's number."""
    live = LiveRenderer(parts.tokeniser, TEMPLATES[config.transcripts.template])
    allowed = jnp.asarray(allowed_tokens(parts.config.vocabulary, renderer.emitted(), live))
    count, length = config.train_values.replies, config.decoding.max_tokens
    policy, programs = replicate(parts.params, mesh), {}

    def sample(rows: Rows, max_texts: int, drawn_by: tuple[int, int, int]) -> Replies:
        max_texts = max(-(-max_texts // REPLIED) * REPLIED, REPLIED)
        if max_texts not in programs:
            programs[max_texts] = jax.jit(make_replies(parts.graph, allowed, live.stop, count, length, max_texts))
        key = jax.random.key(drawn_by[0])
        for number in drawn_by[1:]:
            key = jax.random.fold_in(key, number)
        return programs[max_texts](policy, rows, jax.random.split(key, len(rows.tokens)))

    return sample


def mean_to_go(transcripts: Transcripts) -> float:
    """The mean reward-to-go over all texts of the agent; 0 without texts."""
    reward = np.asarray(transcripts.reward, np.float64)
    before = np.cumsum(reward) - reward
    ends = np.concatenate([[0.0], np.cumsum(reward)])[transcripts.ends]  # sums up to each episode's end
    to_go = np.repeat(ends, transcripts.ends - transcripts.starts) - before
    return float(to_go[transcripts.is_action].mean()) if transcripts.is_action.any() else 0.0


def write_found(
    config: ConfigDict, file: Path, parts: LanguageParts, renderer: Renderer, transcripts: Transcripts, outcome: Outcome
) -> None:
    """Writes the texts with the highest advantages, and ranks of an expert's texts; only for values per token."""
    section = config.train_values
    recipe = recipe_of(section.recipe)
    if recipe.values != "token":
        return
    _, held = choose_episodes(section, recipe, transcripts, config.seed)
    bounds = section.value_min, section.value_max
    readers = make_readers(parts.language, jax.device_get(outcome.state), bounds)
    width = min(section.max_length, int(renderer.lengths.max()))
    write_json(file, {
        "best": best_texts(readers["target"], renderer, transcripts, held, width),
        "ranks": ranks(readers, renderer, transcripts, width),
    })  # fmt: skip


def finish(folder: Path, parts: LanguageParts, job: TrainingJob, outcome: Outcome) -> None:
    """Writes the policy, if it was learnt, and the summary; prints a line."""
    if "policy" in outcome.state.learnt:
        write_model(folder / POLICY, parts, outcome.state.learnt["policy"])
    size = sum(array.size for array in jax.tree.leaves(outcome.state.learnt))
    chosen = outcome.best["steps"] if "valid_return" in outcome.best else outcome.steps  # decoding reads it
    write_json(folder / "summary.json", {
        "epoch": outcome.epoch, "steps": outcome.steps, "recipe": job.facts["recipe"], "best": outcome.best,
        "checkpoint": chosen,
        "parameters": size, "episodes": job.facts["episodes"], **job.identity,
        "machine": describe(jax.devices()[0].device_kind, jax.device_count()),
    })  # fmt: skip
    said = f"best validation loss {outcome.best['valid_loss']:.4f}, which says little about play"
    if "valid_return" in outcome.best:
        said = f"best return {outcome.best['valid_return']:.2f} in the games of evaluations, after {chosen:,} updates"
    print_line(f"{STAGE}: {job.facts['recipe']}, {outcome.steps:,} updates, {size:,} parameters learnt; {said}")


def make_writer(config: ConfigDict, parts: LanguageParts, renderer: Renderer) -> ValueWriter:
    """The policy at the start of training, without values."""
    section = config.train_values
    live, recipe = LiveRenderer(parts.tokeniser, TEMPLATES[config.transcripts.template]), recipe_of(section.recipe)
    allowed = allowed_tokens(parts.config.vocabulary, renderer.emitted(), live)
    bounds = section.value_min, section.value_max
    model = ValueModel(
        parts.config, parts.graph, parts.params, {}, {}, recipe, parts.tokeniser, live, allowed, section.reward_scale,
        bounds,
    )  # fmt: skip
    return ValueWriter(model, as_drawn=recipe.plays)


def make_play(config: ConfigDict, parts: LanguageParts, renderer: Renderer) -> Callable[[OfflineState], float]:
    """A function from the state to the mean return of some games that are decoded with it."""
    section, world = config.train_values, make_world(config.env)
    assert isinstance(world, TextWorld)
    writer = make_writer(config, parts, renderer)
    decoding = decoding_in_training(writer.model.recipe, config.decoding, section.games_beta)
    writer.check(decoding)

    def play(state: OfflineState) -> float:
        online = {name: found for name, found in state.learnt.items() if name not in ("policy", "q")}
        writer.swap(state.learnt.get("policy", parts.params), state.target, online)
        episodes = range(section.games)
        with reported(config.env):
            games = play_games(world, writer, decoding, episodes, seed=config.seed, stream=SeedStream.TRAIN)
        return float(np.mean([game.episode_return for game in games]))

    return play

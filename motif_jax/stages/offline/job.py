"""The job of a stage that learns from transcripts: its episodes, its batches, its update and its validation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

import motif_jax
from motif_jax.console import print_line
from motif_jax.devices.hosts import Hosts
from motif_jax.devices.mesh import map_update, replicate, shard
from motif_jax.language.config import LanguageConfig, to_record
from motif_jax.offline.batch import Replies, TranscriptBatch
from motif_jax.offline.offline_settings import settings_of
from motif_jax.offline.recipes import Recipe, recipe_of
from motif_jax.offline.update import init_state, make_offline_measure, make_offline_update, means_of, zero_sums
from motif_jax.offline.values import ModelFunctions
from motif_jax.stages.offline.epochs import TrainingJob
from motif_jax.structs import UserError
from motif_jax.system.files import record
from motif_jax.tokens import Tokeniser, digest
from motif_jax.transcripts.batches import EpochPlan, make_batch, planner
from motif_jax.transcripts.render import Renderer, Rows
from motif_jax.transcripts.store import Transcripts

# (rows on the devices, the most texts of the agent in a row, seeds of the random numbers) -> `Replies`
ReplySource = Callable[[Rows, int, tuple[int, int, int]], Replies]
CLONING = "bc"  # the recipe by whose loss policies that learn from games are validated
VALIDATION = 2**31 - 1  # stands for an epoch's number


class LanguageParts(NamedTuple):
    """A language model, its parameters and its tokeniser."""

    language: ModelFunctions
    params: Any  # on the host
    tokeniser: Tokeniser
    config: LanguageConfig
    graph: Any  # `nnx.merge(graph, params)` is the model


class EpochBatches(NamedTuple):
    """Batches that depend only on the seed, the epoch and the step; each host has its rows of them."""

    learnt: int  # number of episodes
    num_steps: Callable[[int], int]  # batches of an epoch
    get: Callable[[int, int], TranscriptBatch]  # (epoch, step) -> on the devices
    num_valid: int  # batches of the validation
    valid: Callable[[int], TranscriptBatch]  # (number) -> on the devices


def make_batches(
    section: ConfigDict, renderer: Renderer, learnt: np.ndarray, held: np.ndarray, seed: int, mesh: Mesh, host: int,
    num_hosts: int, replies: ReplySource | None = None,
) -> EpochBatches:  # fmt: skip
    """Plans the batches of a stage.

    `learnt`, `held`: numbers of the episodes for learning and for validation. `replies`: for recipes that need them
    beside the rows.
    """
    layout: dict[str, Any] = {"packed": section.packed, "in_order": section.in_order, "max_length": section.max_length,
                              "batch_rows": section.batch_size, "seed": seed}  # fmt: skip
    plans = functools.lru_cache(maxsize=1)(planner(renderer, learnt, **layout))  # of one epoch
    valid_plan = planner(renderer, held, **layout)(0)
    here = section.batch_size // num_hosts
    share = slice(host * here, (host + 1) * here)

    def put(plan: EpochPlan, epoch: int, step: int) -> TranscriptBatch:
        batch = shard(TranscriptBatch(make_batch(renderer, plan, step, share)), mesh)
        if not replies:
            return batch
        most = max(sum(int(renderer.num_said[episode]) for episode in row) for row in plan.rows[step])
        return batch._replace(replies=replies(batch.rows, most, (seed, epoch, step)))

    return EpochBatches(
        len(learnt),
        lambda epoch: len(plans(epoch)),
        lambda epoch, step: put(plans(epoch), epoch, step),
        len(valid_plan),
        lambda number: put(valid_plan, VALIDATION, number),
    )


def choose_episodes(
    section: ConfigDict, recipe: Recipe, transcripts: Transcripts, seed: int
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
    config: ConfigDict, stage: str, folder: Path, transcripts: Transcripts, parts: LanguageParts, renderer: Renderer,
    mesh: Mesh, hosts: Hosts, figures: Callable[[Any, dict[str, float]], dict[str, float]], *, trunk: Any = None,
    bias: float = 0.0, identity: Mapping[str, Any] = {}, facts: Mapping[str, Any] = {},
    replies: ReplySource | None = None,
) -> TrainingJob:  # fmt: skip
    """Makes the job of a stage.

    Args:
      config, stage, folder: of the experiment; name of the stage and its section; directory of its results.
      transcripts, parts, renderer: what it learns from, and the language model.
      mesh, hosts: of the devices.
      figures: (state, means of all terms over the validation episodes) -> figures of the evaluation.
      trunk, bias: where the values begin, if the recipe has any; see `update.init_state`.
      identity, facts: of this stage, for its checkpoints.
      replies: see `make_batches`.
    """
    section, recipe = config[stage], recipe_of(config[stage].recipe)
    lengths = renderer.lengths
    if (long := int((lengths > section.max_length).sum())) and hosts.me == 0:
        print_line(
            f"{stage}: {long:,} of {len(lengths):,} episodes have more than {section.max_length:,} tokens and are "
            f"truncated (the longest has {int(lengths.max()):,}) (--config.{stage}.max_length)"
        )
    learnt, held = choose_episodes(section, recipe, transcripts, config.seed)
    batches = make_batches(section, renderer, learnt, held, config.seed, mesh, hosts.me, hosts.count, replies)
    settings = settings_of(section, section.num_epochs * batches.num_steps(0))  # other epochs may differ a little
    given = replicate({} if recipe.policy else {"policy": parts.params}, mesh)
    update = map_update(make_offline_update(parts.language, recipe, settings), mesh, batch_axis=0, num_constants=1)
    measured = recipe_of(CLONING) if recipe.plays else recipe
    measure = make_offline_measure(parts.language, measured, settings)
    measure = map_update(measure, mesh, batch_axis=0, num_constants=2)
    state = init_state(
        jax.random.key(config.seed), parts.language, recipe, settings, parts.params,
        parts.params if trunk is None else trunk, bias,
    )  # fmt: skip

    def evaluate(state: Any) -> dict[str, float]:
        sums = replicate(zero_sums(measured, settings), mesh)
        for number in range(batches.num_valid):
            sums = measure(sums, state, given, batches.valid(number))
        means = {name: float(value) for name, value in jax.device_get(sums).items()}
        return figures(state, means_of(means, measured, settings))

    same = {"transcripts": transcripts.fingerprint, "tokeniser": digest(parts.tokeniser), **identity}
    return TrainingJob(
        stage=stage,
        folder=folder,
        state=jax.tree.map(np.asarray, state),
        place=lambda state: replicate(state, mesh),
        num_steps=batches.num_steps,
        batch=batches.get,
        update=lambda state, batch: update(state, given, batch),
        evaluate=evaluate,
        identity=same,
        facts=same | {
            "model": to_record(parts.config), "recipe": section.recipe, "config": record(config.to_dict()),
            "episodes": batches.learnt, "versions": {"motif_jax": motif_jax.__version__, "jax": jax.__version__},
            **facts,
        },
    )  # fmt: skip

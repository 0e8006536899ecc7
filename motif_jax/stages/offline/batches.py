"""The episodes of offline training and their batches, for learning and for validation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from motif_jax.devices.mesh import batch_parts, map_update, replicate, shard
from motif_jax.offline.batch import Batch, Replies
from motif_jax.offline.recipes import Recipe
from motif_jax.offline.settings import Settings
from motif_jax.offline.update import make_offline_measure, means_of, zero_sums
from motif_jax.offline.values import Language
from motif_jax.structs import UserError
from motif_jax.transcripts.batches import Plan, make_batch, planner
from motif_jax.transcripts.render import Renderer, Rows
from motif_jax.transcripts.store import Transcripts

# (rows on the devices, the most texts of the agent in a row, seeds of the random numbers) -> `Replies`
ReplySource = Callable[[Rows, int, tuple[int, int, int]], Replies]
VALIDATION = 2**31 - 1  # stands for an epoch's number


class Batches(NamedTuple):
    """Batches that depend only on the seed, the epoch and the step; each host has its rows of them."""

    learnt: int  # number of episodes
    num_steps: Callable[[int], int]  # batches of an epoch
    get: Callable[[int, int], Batch]  # (epoch, step) -> on the devices
    num_valid: int  # batches of the validation
    valid: Callable[[int], Batch]  # (number) -> on the devices


def make_batches(
    section: ConfigDict, renderer: Renderer, learnt: np.ndarray, held: np.ndarray, seed: int, mesh: Mesh, host: int,
    num_hosts: int, replies: ReplySource | None = None,
) -> Batches:  # fmt: skip
    """Plans the batches of a stage.

    Args:
      section: the stage's, with batch_size, max_length and packed.
      renderer: of the transcripts.
      learnt, held: numbers of the episodes for learning and for validation.
      seed: of the order.
      mesh: of the devices.
      host, num_hosts: index of this host, and number of hosts.
      replies: samples replies for recipes that need them beside the rows.
    """
    layout: dict[str, Any] = {"packed": section.packed, "max_length": section.max_length,
                              "batch_rows": section.batch_size, "seed": seed}  # fmt: skip
    plans = functools.lru_cache(maxsize=1)(planner(renderer, learnt, **layout))  # of one epoch
    valid_plan = planner(renderer, held, **layout)(0)
    here = section.batch_size // num_hosts
    share = slice(host * here, (host + 1) * here)

    def put(plan: Plan, epoch: int, step: int) -> Batch:
        batch = shard(Batch(make_batch(renderer, plan, step, share)), mesh)
        if not replies:
            return batch
        most = max(sum(int(renderer.num_said[episode]) for episode in row) for row in plan.rows[step])
        return batch._replace(replies=replies(batch.rows, most, (seed, epoch, step)))

    return Batches(
        len(learnt),
        lambda epoch: len(plans(epoch)),
        lambda epoch, step: put(plans(epoch), epoch, step),
        len(valid_plan),
        lambda number: put(valid_plan, VALIDATION, number),
    )


def check_sizes(section: ConfigDict, name: str, mesh: Mesh) -> None:
    """Raises UserError if the batch cannot be split among the devices; `name`: the section."""
    if section.batch_size % (batch_parts(mesh) * section.num_parts):
        raise UserError(
            f"batch_size {section.batch_size} cannot be cut into {section.num_parts} parts for each of "
            f"{batch_parts(mesh)} devices (--config.{name}.batch_size, .num_parts)"
        )


def make_validation(
    language: Language, recipe: Recipe, settings: Settings, batches: Batches, given: Any, mesh: Mesh
) -> Callable[[Any], dict[str, float]]:
    """A function from the state to the means of all terms over the validation episodes."""
    measure = map_update(make_offline_measure(language, recipe, settings), mesh, batch_axis=0, num_constants=2)

    def validate(state: Any) -> dict[str, float]:
        sums = replicate(zero_sums(recipe, settings), mesh)
        for number in range(batches.num_valid):
            sums = measure(sums, state, given, batches.valid(number))
        return means_of({name: float(value) for name, value in jax.device_get(sums).items()}, recipe, settings)

    return validate


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


def describe_cut(renderer: Renderer, max_length: int) -> str:
    """A sentence about episodes that are longer than a row; "" without any."""
    long = int((renderer.lengths > max_length).sum())
    if not long:
        return ""
    return (
        f"{long:,} of {len(renderer.lengths):,} episodes have more than {max_length:,} tokens and are truncated (the "
        f"longest has {int(renderer.lengths.max()):,})"
    )

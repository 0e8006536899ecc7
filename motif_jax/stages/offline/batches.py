"""The batches of a stage of offline training: to learn from, epoch after epoch, and to validate with."""

from __future__ import annotations

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

# (rows on the devices, the most texts of the agent in a row, what decides the random numbers) -> `Replies`
ReplySource = Callable[[Rows, int, tuple[int, int, int]], Replies]
VALIDATION = 2**31 - 1  # in place of an epoch's number


class Batches(NamedTuple):
    """What is in them depends on the seed, the epoch and the step alone; each host has its rows."""

    learnt: int  # number of episodes
    num_steps: Callable[[int], int]  # batches of an epoch
    get: Callable[[int, int], Batch]  # (epoch, step) -> on the devices
    num_valid: int  # batches to validate with
    valid: Callable[[int], Batch]  # (number) -> on the devices


def make_batches(
    section: ConfigDict, renderer: Renderer, learnt: np.ndarray, held: np.ndarray, seed: int, mesh: Mesh, host: int,
    num_hosts: int, replies: ReplySource | None = None,
) -> Batches:  # fmt: skip
    """Makes the plans of a stage.

    Args:
      section: of the config; batch_size, max_length and packed of it are read.
      renderer: of the transcripts.
      learnt, held: numbers of the episodes to learn from, and to validate with.
      seed: of the order.
      mesh: of the devices.
      host, num_hosts: which host this is, of how many.
      replies: samples what recipes with values of replies need beside the rows.
    """
    layout: dict[str, Any] = {"packed": section.packed, "max_length": section.max_length,
                              "batch_rows": section.batch_size, "seed": seed}  # fmt: skip
    plans = _last_plan(planner(renderer, learnt, **layout))
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
    """Raises UserError if the batch cannot be cut among the devices; `name` is that of the section."""
    if section.batch_size % (batch_parts(mesh) * section.num_parts):
        raise UserError(
            f"batch_size {section.batch_size} cannot be cut into {section.num_parts} parts for each of "
            f"{batch_parts(mesh)} devices (--config.{name}.batch_size, .num_parts)"
        )


def make_validation(
    language: Language, recipe: Recipe, settings: Settings, batches: Batches, given: Any, mesh: Mesh
) -> Callable[[Any], dict[str, float]]:
    """The means of all terms over the episodes that are held out, as a function of the state."""
    measure = map_update(make_offline_measure(language, recipe, settings), mesh, batch_axis=0, num_constants=2)

    def validate(state: Any) -> dict[str, float]:
        sums = replicate(zero_sums(recipe, settings), mesh)
        for number in range(batches.num_valid):
            sums = measure(sums, state, given, batches.valid(number))
        return means_of({name: float(value) for name, value in jax.device_get(sums).items()}, recipe, settings)

    return validate


def _last_plan(plan: Callable[[int], Plan]) -> Callable[[int], Plan]:
    """Keeps the plan of one epoch, which all of its batches are cut from."""
    kept: dict[int, Plan] = {}

    def get(epoch: int) -> Plan:
        if epoch not in kept:
            kept.clear()
            kept[epoch] = plan(epoch)
        return kept[epoch]

    return get

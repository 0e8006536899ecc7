"""Puts the columns of a batch in groups of episodes that began alike, for grpo and gigpo (learner/groups.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from motif_jax.devices.mesh import batch_parts
from motif_jax.envs.world import waited
from motif_jax.learner.settings import find_algorithm
from motif_jax.stages.train_policy.section import Policy, splits_steps
from motif_jax.structs import UserError

NO_EPISODE = -1  # for a column in which no episode ended
AT_LEAST = 64  # steps of a batch without padding, so that few sizes are compiled


class Grouped(NamedTuple):
    """How batches are put in groups."""

    size: int  # episodes of a group, G
    parts: int = 0  # for devices, along the columns, whose played steps come first; 0: all steps stay where they are
    multiple: int = 1  # the number of steps of each part is a multiple of this


def make_grouped(section: Policy, mesh: Mesh) -> Grouped | None:
    """How batches are put in groups; None for other algorithms."""
    if not find_algorithm(section.algorithm).in_groups:
        return None
    return Grouped(section.grpo.group_size, batch_parts(mesh) if splits_steps(section) else 0, section.num_minibatches)


def in_groups(
    rows: Mapping[str, Any], ended: np.ndarray, seen: Mapping[str, np.ndarray], grouped: Grouped
) -> dict[str, Any]:
    """Sorts the columns of a batch that `EpisodePlayer` played by the seeds of their episodes, and adds `group`.

    Args:
      rows: of `Rollouts`, by name; columns on axis 1.
      ended: of `handoff.first_ends`. [2, B]
      seen: the observations by which moments are compared. [T + 1, B, ...] each
    """
    size, order = grouped.size, np.argsort(ended[0], kind="stable")
    grouped_rows, seen, ended = jax.tree.map(lambda array: np.take(array, order, 1), (dict(rows), dict(seen), ended))
    grouped_rows["first"][0] = True  # a game that waited for the others is at the beginning of its episode
    waits = waited(grouped_rows["action"])
    over = np.concatenate([waits[:1], np.logical_or.accumulate(grouped_rows["first"][1:-1] | waits[1:], 0)])
    episodes, steps = ended
    complete = (episodes != NO_EPISODE) & (steps == (~over).sum(0))
    complete &= episodes == np.repeat(episodes[::size], size)
    played = ~over & np.repeat(complete.reshape(-1, size).all(1), size)
    if not played.any():
        raise UserError(
            f"none of {len(episodes) // size} groups is complete: all {size} episodes of a group must begin and end "
            f"within a rollout of {len(waits)} steps (--config.policy.rollout_length, .grpo.group_size)"
        )
    grouped_rows["group"] = {"played": played, "visit": visits(seen, size)}
    if grouped.parts:
        grouped_rows["group"]["index"] = places(played, grouped.parts, grouped.multiple)
    return grouped_rows


def visits(seen: Mapping[str, np.ndarray], size: int) -> np.ndarray:
    """Numbers of each group's moments: equal for equal ones, below T * G. [T + 1, B, ...] -> [T, B] int32"""
    rows = [np.ascontiguousarray(array[:-1]).view(np.uint8) for array in seen.values()]
    steps, columns = rows[0].shape[:2]
    moment = np.concatenate([row.reshape(steps, columns, -1) for row in rows], 2)
    keys = np.ascontiguousarray(moment).view(np.dtype((np.void, moment.shape[2])))[..., 0]  # [T, B]
    numbers = np.zeros((steps, columns), np.int32)
    for start in range(0, columns, size):
        own = np.s_[:, start : start + size]
        numbers[own] = np.unique(keys[own], return_inverse=True)[1].reshape(steps, size)
    return numbers


def places(played: np.ndarray, parts: int, multiple: int) -> np.ndarray:
    """The places of the played steps in each part, time first, filled up with -1 to one of few sizes. [1, parts * N]"""
    own = [np.flatnonzero(part) for part in np.split(played, parts, 1)]
    least = max(AT_LEAST, *map(len, own)) if own else AT_LEAST
    room = 1 << (least - 1).bit_length()
    if least <= 3 * room // 4:
        room = 3 * room // 4
    room = -(-room // multiple) * multiple
    filled = [np.pad(part, (0, room - len(part)), constant_values=-1) for part in own]
    return np.concatenate(filled)[None].astype(np.int32)

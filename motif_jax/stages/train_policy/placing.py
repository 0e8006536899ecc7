"""Puts a batch on the devices: rewards its steps, encodes its texts, groups its episodes, keeps metrics on the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from motif_jax.actors.handoff import Arrays
from motif_jax.actors.layout import ENDED
from motif_jax.devices.mesh import DATA, FSDP, batch_parts, shard
from motif_jax.envs.world import waited
from motif_jax.learner.samples import calls_of
from motif_jax.learner.settings import Settings, find_algorithm
from motif_jax.learner.update import Rollouts
from motif_jax.networks.options import CHOICES
from motif_jax.policies.model import Model
from motif_jax.rewards.online.captioned import Captioned
from motif_jax.rewards.options import GAME, OptionPlan
from motif_jax.rewards.registry import ONLINE
from motif_jax.rewards.sources import RewardSources
from motif_jax.stages.train_policy.section import Policy, splits_steps
from motif_jax.structs import UserError

NO_EPISODE = -1  # for a column in which no episode ended
AT_LEAST = 64  # steps of a batch without padding, so that few sizes are compiled


class PlacedBatch(NamedTuple):
    """A batch on the device, and figures about it on the host."""

    rollouts: Rollouts
    rewards: dict[str, np.ndarray]  # of each source, by its name, without coefficient. [T, B] each
    ended: np.ndarray  # [T, B] bool
    first: np.ndarray  # whether each rollout begins with an episode. [B]
    played: np.ndarray  # whether the game was played; else it waited, for a decision or other games. [T, B] bool
    turns: TurnFigures | None = None  # of a policy with options
    paid_messages: np.ndarray | None = None  # of the steps with a positive online reward, if it is audited. [P, 256]


def make_place(
    model: Model,
    sources: RewardSources,
    mesh: Mesh,
    audited: Captioned | None = None,
    plan: OptionPlan | None = None,
    grouped: Grouped | None = None,
    learner: Settings | None = None,
) -> Callable[[Arrays], PlacedBatch]:
    """Makes the function that rewards the arrays of rollouts and places them on `mesh`.

    `audited`: the online reward, if its pay is audited. `learner`: whose minibatches are packed.
    """
    packs = learner is not None and find_algorithm(learner.algorithm).cuts_steps
    if not packs or jax.process_count() > 1 or batch_parts(mesh) > mesh.shape[DATA]:  # hosts need equal shapes
        learner = None

    def place(arrays: Arrays) -> PlacedBatch:
        moments = sources.moments(arrays)
        rewards = sources.shape(moments)
        sources.check(rewards, arrays["reward"].shape)
        played = ~waited(arrays["action"])
        if plan or grouped:
            rewards = {name: np.where(played, array, 0) for name, array in rewards.items()}
        paid = arrays[audited.message][: len(played)][rewards[ONLINE] > 0] if audited is not None else None
        rows: dict[str, Any] = {
            key: arrays[key] for key in Rollouts._fields if key in arrays and key not in model.reads
        }
        seen = {key: arrays[key] for key in model.reads}
        observations = model.encode(seen)
        if learner is not None and model.pack:
            steps, games = played.shape
            calls = calls_of(steps, games, mesh.shape[DATA], learner, model.chunk)
            observations = model.pack(observations, calls)
        rows |= {"observations": observations, "reward_inputs": moments}
        if plan:
            rows["control"] = {key: arrays[key] for key in CHOICES}
        if grouped:
            rows = in_groups(rows, arrays[ENDED], seen, grouped)
        return PlacedBatch(
            rollouts=shard(Rollouts(**rows), mesh, axis=1),
            rewards=rewards,
            ended=arrays["terminated"] | arrays["truncated"],
            first=arrays["first"][0],
            played=played,
            turns=turn_figures(plan, arrays, rewards) if plan else None,
            paid_messages=paid,
        )

    return place


def at_position(rollouts: Rollouts, position: float, mesh: Mesh) -> Rollouts:
    """Adds the position in the schedules, in batches of steps that were played."""
    columns = rollouts.first.shape[1] // jax.process_count()
    return rollouts._replace(schedule_position=shard(np.full((1, columns), position, np.float32), mesh, axis=1))


# ---- groups of episodes that began alike, for grpo and gigpo (learner/groups.py)


class Grouped(NamedTuple):
    """The layout of batches in groups."""

    size: int  # episodes of a group, G
    parts: int = 0  # for devices, along the columns, whose played steps come first; 0: all steps stay where they are
    multiple: int = 1  # the number of steps of each part is a multiple of this


def make_grouped(section: Policy, mesh: Mesh) -> Grouped | None:
    """The layout of batches in groups; None for algorithms without groups. Raises UserError if devices cut a group."""
    if not find_algorithm(section.algorithm).in_groups:
        return None
    # Devices along `fsdp` compute the advantages of all their columns, and then divide the steps among them.
    size, places, columns = section.grpo.group_size, mesh.shape[DATA], section.batch_size // section.rollout_length
    if columns % (places * size):
        raise UserError(
            f"{columns} episodes of a batch cannot be divided among {places} devices in groups of {size} "
            "(--config.policy.num_devices, .batch_size, .rollout_length, .grpo.group_size)"
        )
    multiple = math.lcm(section.num_minibatches, mesh.shape[FSDP])
    return Grouped(size, places if splits_steps(section) else 0, multiple)


def in_groups(
    rows: Mapping[str, Any], ended: np.ndarray, seen: Mapping[str, np.ndarray], grouped: Grouped
) -> dict[str, Any]:
    """Sorts the columns of a batch that `EpisodePlayer` played by the seeds of their episodes, and adds `group`.

    Args:
      rows: of `Rollouts`, by name; columns on axis 1.
      ended: of `handoff.first_ends`. [2, B]
      seen: the observations that are compared. [T + 1, B, ...] each
    """
    size = grouped.size
    numbers, number_of, counts = np.unique(ended[0], return_inverse=True, return_counts=True)
    whole = (numbers != NO_EPISODE) & (counts == size)
    order = np.lexsort((ended[0], ~whole[number_of]))  # a group that lacks an episode must not shift those after it
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
    """Numbers of the observations of each group, equal for equal ones, below T * G. [T + 1, B, ...] -> [T, B] int32"""
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
    """Indices of the played steps in each part, time first, padded with -1 to one of a few sizes. [1, parts * N]"""
    own = [np.flatnonzero(part) for part in np.split(played, parts, 1)]
    least = max(AT_LEAST, *map(len, own)) if own else AT_LEAST
    room = 1 << (least - 1).bit_length()
    if least <= 3 * room // 4:
        room = 3 * room // 4
    room = -(-room // multiple) * multiple
    filled = [np.pad(part, (0, room - len(part)), constant_values=-1) for part in own]
    return np.concatenate(filled)[None].astype(np.int32)


# ---- what each option did: its share of the time, the length of its turns, and what they earned


class TurnFigures(NamedTuple):
    """Sums over the steps of a batch, for K options; a mixture counts for each option by its coefficient."""

    steps: np.ndarray  # of the games while each option was in charge. [K]
    turns: np.ndarray  # that each option began. [K]
    earned: np.ndarray  # by each option's turns (rows), in the reward of each option and of the controller. [K, K + 1]


def turn_figures(plan: OptionPlan, arrays: Mapping[str, np.ndarray], rewards: Mapping[str, np.ndarray]) -> TurnFigures:
    """The figures of a batch.

    Args:
      arrays: of the rollouts: `charge`, `option` and `reward`. [T, B] each
      rewards: of each source, without coefficient. [T, B] each
    """
    charge, count = arrays["charge"], plan.controller
    names = (GAME, *(choice.name for choice in plan.sources))
    paid = (arrays["reward"] if name == GAME else rewards[name] for name in names)
    by = [np.bincount(charge.ravel(), one.ravel(), minlength=count + 1)[:count] for one in paid]
    steps = np.bincount(charge.ravel(), minlength=count + 1)[:count]
    begun = np.bincount(arrays["option"][charge == plan.controller], minlength=count)
    weights = plan.weights.T
    return TurnFigures(weights @ steps, weights @ begun, weights @ np.stack(by, -1) @ plan.factors.T)


def add_up(figures: list[TurnFigures], names: tuple[str, ...]) -> dict[str, float]:
    """A row of metrics.jsonl: shares, mean lengths and earnings per step, by option."""
    if not figures:
        return {}
    steps, turns, earned = (np.sum(parts, 0) for parts in zip(*figures, strict=True))
    row: dict[str, float] = {}
    for number, name in enumerate(names):
        row[f"option/{name}/share"] = float(steps[number] / (steps.sum() or 1))
        row[f"option/{name}/length"] = float(steps[number] / (turns[number] or 1))
        for other, what in enumerate((*names, "controller")):
            row[f"option/{name}/earns/{what}"] = float(earned[number, other] / (steps[number] or 1))
    return row

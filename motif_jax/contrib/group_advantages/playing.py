"""How games are played in groups: each one episode in a rollout, after which it waits for the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from motif_jax.actors.acting import RolloutBatch, SyncLoop, games_of
from motif_jax.actors.worker import Ended, FilledSlot, Request
from motif_jax.contrib.group_advantages.sections import NAME
from motif_jax.devices.mesh import DATA, FSDP
from motif_jax.envs.world import WAIT, waited
from motif_jax.policies.model import Acted, Model, PolicyPlayer
from motif_jax.stages.train_policy import Policy, TrainConfig, splits_steps
from motif_jax.stages.train_policy.playing import Playing
from motif_jax.structs import UserError

NO_EPISODE = -1  # for a column in which no episode ended
AT_LEAST = 64  # steps of a batch without padding, so that few sizes are compiled


class InGroups(Playing):
    """`size` consecutive episodes begin alike; their columns in a batch are neighbours."""

    def __init__(self, size: int, parts: int = 0, multiple: int = 1):
        """Where steps are divided into minibatches, those that were played come first in each of the `parts`, which are
        for devices, along the columns; their number is a multiple of `multiple`. `parts` 0: all stay where they are.
        """
        self.episodes_per_seed, self.parts, self.multiple = size, parts, multiple
        self.ended = np.zeros((2, 0), np.int64)  # `first_ends` of the batch to arrange

    def player(self, model: Model, games: int, group_size: int, seed: int) -> PolicyPlayer:
        return EpisodePlayer(model, games, group_size, seed)

    def loop(self, section: Policy, *inputs: Any) -> GroupLoop:
        return GroupLoop(self, *inputs)

    def arrange(self, rows: dict[str, Any], seen: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Sorts the columns of a batch by the seeds of their episodes, and adds what `with_group_targets` needs."""
        size = self.episodes_per_seed
        numbers, number_of, counts = np.unique(self.ended[0], return_inverse=True, return_counts=True)
        whole = (numbers != NO_EPISODE) & (counts == size)
        order = np.lexsort((self.ended[0], ~whole[number_of]))  # a group that lacks an episode must not shift others
        sorted_rows, seen, ended = jax.tree.map(
            lambda array: np.take(array, order, 1), (dict(rows), dict(seen), self.ended)
        )
        sorted_rows["first"][0] = True  # a game that waited for the others is at the beginning of its episode
        waits = waited(sorted_rows["action"])
        over = np.concatenate([waits[:1], np.logical_or.accumulate(sorted_rows["first"][1:-1] | waits[1:], 0)])
        episodes, steps = ended
        complete = (episodes != NO_EPISODE) & (steps == (~over).sum(0))
        complete &= episodes == np.repeat(episodes[::size], size)
        played = ~over & np.repeat(complete.reshape(-1, size).all(1), size)
        if not played.any():
            raise UserError(
                f"none of {len(episodes) // size} groups is complete: all {size} episodes of a group must begin and "
                f"end within a rollout of {len(waits)} steps (--config.policy.rollout_length, --config.{NAME}"
                ".group_size)"
            )
        sorted_rows["own"] = {"played": played, "visit": visits(seen, size)}
        if self.parts:
            sorted_rows["own"]["index"] = places(played, self.parts, self.multiple)
        return sorted_rows


def make_in_groups(config: TrainConfig, mesh: Mesh) -> InGroups:
    """Raises UserError if devices would cut a group."""
    # Devices along `fsdp` compute the advantages of all their columns, and then divide the steps among them.
    section, size, devices = config.policy, config.plugins[NAME].group_size, mesh.shape[DATA]
    columns = section.batch_size // section.rollout_length
    if columns % (devices * size):
        raise UserError(
            f"{columns} episodes of a batch cannot be divided among {devices} devices in groups of {size} "
            f"(--config.policy.num_devices, .batch_size, .rollout_length, --config.{NAME}.group_size)"
        )
    multiple = math.lcm(section.num_minibatches, mesh.shape[FSDP])
    return InGroups(size, devices if splits_steps(config) else 0, multiple)


class EpisodePlayer(PolicyPlayer):
    """Plays one episode of each game in a rollout. The network does not read games that wait."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.waits = True
        self._begins, self._over = np.zeros((2, self._num_games), bool)

    def begin(self, games: np.ndarray) -> None:
        """Rollouts of these games begin."""
        self._begins[games] = True

    def __call__(self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray) -> Acted:
        begins = self._begins[games]
        over = (self._over[games] | first[: len(games)]) & ~begins
        first[: len(games)] |= begins  # a game that waited for the others shows its episode's first observation again
        self._over[games], self._begins[games] = over, False
        if not over.any():
            return super().__call__(observations, first, games)
        actions = np.full(len(games), WAIT, np.int32)
        specs = self.outputs | self.starts
        outputs: dict[str, Any] = {name: np.zeros((len(games), *one.shape), one.dtype) for name, one in specs.items()}
        outputs["version"][:] = self._played.version
        plays = np.flatnonzero(~over)
        if len(plays):
            some = {name: array[plays] for name, array in observations.items()}
            actions[plays], played_outputs = super().__call__(some, first[plays], games[plays])
            for name, array in played_outputs.items():
                outputs[name][plays] = np.asarray(array)[: len(plays)]
        return actions, outputs


class GroupLoop(SyncLoop):
    """Rounds that tell the player which rollouts begin, and `groups` which episodes have ended in a batch."""

    def __init__(self, groups: InGroups, *inputs: Any):
        super().__init__(*inputs)
        self._groups = groups

    def answer(self, requests: list[Request]) -> None:
        for request in requests:
            if not request.step:
                self._policy.begin(games_of(self.pool, request))  # type: ignore[attr-defined]
        super().answer(requests)

    def batch(self, fulls: list[FilledSlot]) -> RolloutBatch:
        self._groups.ended = first_ends([self.pool.ended(full) for full in fulls], self.pool.layout.group_size)
        return super().batch(fulls)


def first_ends(episodes: list[list[Ended]], size: int) -> np.ndarray:
    """Returns number and steps of the first episode that ended in each column; -1 for none. [2, B]"""
    ends = np.full((2, len(episodes), size), NO_EPISODE, np.int64)
    for slot, ended in enumerate(episodes):
        for _, game, info in reversed(ended):
            ends[:, slot, game] = info.episode, info.steps
    return ends.reshape(2, -1)


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
    least = max(AT_LEAST, *map(len, own))
    room = 1 << (least - 1).bit_length()
    if least <= 3 * room // 4:
        room = 3 * room // 4
    room = -(-room // multiple) * multiple
    filled = [np.pad(part, (0, room - len(part)), constant_values=-1) for part in own]
    return np.concatenate(filled)[None].astype(np.int32)

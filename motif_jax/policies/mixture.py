"""Collects data with several trained policies, each of which plays its own groups of games.

A policy is assigned to a group of games, not to a step or an episode. A group requests actions for all of its games at
once, so each request is one call of one network, recurrent states stay in place, and each episode has one policy. A
policy per episode would split every request. So shares are shares of groups, and of steps, because all groups play
equally long.

Two runs have the same games: the seed and the number of an episode determine its dungeon and dice, and episodes are
taken in order. Actions differ: the group that plays episode n depends on timing, the sampling key counts the network's
calls, and a network rounds differently for other batch sizes. Two runs are bit-identical only with
`--config.collect.num_workers=0`, on one machine and without a stop.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.envs.world import World
from motif_jax.files import read_json
from motif_jax.policies.choice import Checkpoint, PlayerChoice, find, load
from motif_jax.policies.player import PlayerParameters, PolicyPlayer
from motif_jax.structs import ArraySpec, UserError

FLAG = "--config.collect.policies"
GROUPS = 2  # per worker: one plays while the other waits for actions


class Mixture:
    """An `actors.acting.BatchedPolicy` that asks each group's own policy."""

    def __init__(
        self, choices: list[PlayerChoice], world: World, *, num_workers: int, games_per_worker: int, seed: int,
        trusted: Iterable[str] = (), begun: Path | None = None, flag: str = FLAG,
    ):  # fmt: skip
        """Loads the policies.

        Args:
          choices: of the policies.
          world: the game that they play.
          num_workers, games_per_worker: as in `ActorPool`.
          seed: of the actions.
          trusted: classes of users (module:Class) that checkpoints may import.
          flag: named in errors.
          begun: the unfinished dataset; if it was begun, its checkpoints continue it even if newer ones exist.
        """
        self.checkpoints, first_episode = recorded(begun) if begun else ([], 0)
        if not self.checkpoints:
            self.checkpoints = find(choices, flag)
        workers = max(num_workers, 1)
        self.groups = groups_per_worker(len(self.checkpoints), workers, games_per_worker)
        self.counts = deal([checkpoint.share for checkpoint in self.checkpoints], workers * self.groups)
        self.outputs: dict[str, ArraySpec] = {}  # the dataset has only the games
        self.starts: dict[str, ArraySpec] = {}
        self._group_size = games_per_worker // self.groups
        self._owner = np.repeat(np.arange(len(self.counts)), self.counts)  # of each group
        self._played: list[PlayerParameters] = []  # parameters of each policy
        self._players: list[PolicyPlayer] = []  # of each policy; policies that differ only in parameters share one
        networks: dict[str, PolicyPlayer] = {}
        for checkpoint in self.checkpoints:
            model, metadata, _ = load(checkpoint.path, checkpoint.step, world, flag, trusted)
            if model.options:
                raise UserError(f"the policy in {checkpoint.path!r} has options, and cannot collect data ({flag})")
            network = json.dumps(metadata["model"], sort_keys=True)
            if network not in networks:
                games = workers * games_per_worker
                networks[network] = PolicyPlayer(model, games, self._group_size, seed + first_episode)
            self._players.append(networks[network])
            self._played.append(networks[network].prepare(model.params, len(self._played), model.frozen))
            self._action = model.space.spec if model.space else ArraySpec((), "int32")  # the same of all
        self.reads = tuple(sorted({key for player in networks.values() for key in player.reads}))

    def metadata(self) -> list[dict[str, Any]]:
        return [checkpoint._asdict() for checkpoint in self.checkpoints]

    def room(self, count: int) -> int:
        return count

    def __call__(
        self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        owners = self._owner[games // self._group_size]  # [B]
        actions = np.empty((len(games), *self._action.shape), self._action.dtype)
        for owner in np.unique(owners):
            rows = np.flatnonzero(owners == owner)
            player = self._players[owner]
            player.swap(self._played[owner], wait=True)
            seen = {key: observations[key][rows] for key in player.reads}
            actions[rows], _ = player(seen, first[rows], games[rows])
        return actions, {}


def recorded(begun: Path) -> tuple[list[Checkpoint], int]:
    """The policies of an unfinished dataset, and its next episode; [] and 0 if it was not begun."""
    if not (begun / "progress.json").exists():
        return [], 0
    progress = read_json(begun / "progress.json")
    return [Checkpoint(**policy) for policy in progress["policies"]], progress["next_episode"]


def groups_per_worker(policies: int, workers: int, games: int) -> int:
    """The smallest number of groups per worker that gives every policy a group."""
    for groups in range(min(GROUPS, games), games + 1):
        if games % groups == 0 and workers * groups >= policies:
            return groups
    raise UserError(
        f"{policies} policies need a group of games each, but {workers} workers with {games} games each have at most "
        f"{workers * games} groups ({FLAG}, --config.collect.num_workers, .games_per_worker)"
    )


def deal(shares: list[float], groups: int) -> list[int]:
    """The number of groups of each policy: one each, then the rest one by one to the largest deficit."""
    counts = np.ones(len(shares), int)
    for _ in range(groups - len(shares)):
        counts[np.argmax(np.array(shares) * groups - counts)] += 1
    return counts.tolist()

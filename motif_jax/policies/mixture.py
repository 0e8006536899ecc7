"""Collects data with several trained policies, each of which plays its own groups of games.

A group requests actions for all of its games at once, so each request is one call of one network, and recurrent states
stay in place; a policy per episode would split every request. So shares are shares of groups, and of steps, because all
groups play equally long.

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
from motif_jax.policies.player import Acted, PlayerParameters, PolicyPlayer
from motif_jax.structs import ArraySpec, UserError

FLAG = "--config.collect.policies"
GROUPS = 2  # per worker: one plays while the other waits for actions


class Mixture:
    """An `actors.acting.BatchedPolicy` that asks each group's own policy."""

    def __init__(
        self, choices: list[PlayerChoice], world: World, *, num_workers: int, games_per_worker: int, seed: int,
        trusted: Iterable[str] = (), begun: Path | None = None, flag: str = FLAG,
    ):  # fmt: skip
        """Loads the policies; `trusted`: classes of users (module:Class) that checkpoints may import.

        `begun`: the unfinished dataset; if it was begun, its checkpoints continue it even if newer ones exist.
        """
        progress: dict[str, Any] = {"policies": [], "next_episode": 0}
        if begun and (begun / "progress.json").exists():
            progress = read_json(begun / "progress.json")
        self.checkpoints = [Checkpoint(**policy) for policy in progress["policies"]] or find(choices, flag)
        workers = max(num_workers, 1)
        self.groups = groups_per_worker(len(self.checkpoints), workers, games_per_worker)
        shares, total = np.array([checkpoint.share for checkpoint in self.checkpoints]), workers * self.groups
        counts = np.ones(len(shares), int)  # each policy has one group; the largest deficit gets the next one
        for _ in range(total - len(shares)):
            counts[np.argmax(shares * total - counts)] += 1
        self.counts = counts.tolist()
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
                networks[network] = PolicyPlayer(model, games, self._group_size, seed + progress["next_episode"])
            self._players.append(networks[network])
            self._played.append(networks[network].prepare(model.params, len(self._played), model.frozen))
            self._action = model.space.spec if model.space else ArraySpec((), "int32")  # the same of all
        self.reads = tuple(sorted({key for player in networks.values() for key in player.reads}))

    def metadata(self) -> list[dict[str, Any]]:
        return [checkpoint._asdict() for checkpoint in self.checkpoints]

    def room(self, count: int) -> int:
        return count

    def __call__(self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray) -> Acted:
        owners = self._owner[games // self._group_size]  # [B]
        actions = np.empty((len(games), *self._action.shape), self._action.dtype)
        for owner in np.unique(owners):
            rows = np.flatnonzero(owners == owner)
            player = self._players[owner]
            player.swap(self._played[owner], wait=True)
            seen = {key: observations[key][rows] for key in player.reads}
            actions[rows], _ = player(seen, first[rows], games[rows])
        return actions, {}


def groups_per_worker(policies: int, workers: int, games: int) -> int:
    """The smallest number of groups per worker that gives every policy a group."""
    for groups in range(min(GROUPS, games), games + 1):
        if games % groups == 0 and workers * groups >= policies:
            return groups
    raise UserError(
        f"{policies} policies need a group of games each, but {workers} workers with {games} games each have at most "
        f"{workers * games} groups ({FLAG}, --config.collect.num_workers, .games_per_worker)"
    )

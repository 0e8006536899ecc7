"""Collects data with several trained policies at a time, each of which plays its own groups of games.

Who plays is decided per group, not per step or per episode: a group asks for all of its games at once, so its answer is
one call of one network; what a policy remembers of a game stays where it is; and no episode changes hands. A policy per
episode would cut every request into as many small ones as there are policies. So shares are shares of groups, and as
all groups play equally long, of steps.

Two runs have the same games. Episode n of a seed is the same dungeon with the same dice, whoever plays it, and
episodes are taken in order. The rest differs: which group begins episode n depends on timing, actions are
sampled with a key that counts the network's calls, and a network rounds differently in calls of another size. So two
runs give two samples of the same kind. Only with `--config.collect.num_workers=0`, on one machine and not stopped
between, are they the same to the bit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.envs.settings import make_world
from motif_jax.policies.choice import Checkpoint, find, load, parse_mixture
from motif_jax.policies.player import Played, PolicyPlayer
from motif_jax.structs import ArraySpec, UserError
from motif_jax.system.files import read_json

FLAG = "--config.collect.policies"
GROUPS = 2  # per worker: one plays while the other waits for actions


class Mixture:
    """An `inference.Policy` that asks for each group the policy that plays it."""

    def __init__(self, config: ConfigDict, partial: Path):
        """Loads the policies that the config names.

        Args:
          config: of the experiment.
          partial: the dataset in the making; if it was begun, the checkpoints that began it go on, also where there
            are later ones by now.
        """
        section, world = config.collect, make_world(config.env)
        self.checkpoints, first_episode = recorded(partial)
        if not self.checkpoints:
            self.checkpoints = find(parse_mixture(section.policies, FLAG), FLAG)
        workers = max(section.num_workers, 1)
        self.groups = groups_per_worker(len(self.checkpoints), workers, section.games_per_worker)
        self.counts = deal([checkpoint.share for checkpoint in self.checkpoints], workers * self.groups)
        self.outputs: dict[str, ArraySpec] = {}  # nothing is kept but the games
        self.starts: dict[str, ArraySpec] = {}
        self._group_size = section.games_per_worker // self.groups
        self._owner = np.repeat(np.arange(len(self.counts)), self.counts)  # of each group
        self._played: list[Played] = []  # parameters of each policy
        self._players: list[PolicyPlayer] = []  # of each policy; the same for those that differ in parameters only
        networks: dict[str, PolicyPlayer] = {}
        for checkpoint in self.checkpoints:
            model, facts, _ = load(checkpoint.path, checkpoint.step, world, FLAG)
            network = json.dumps(facts["model"], sort_keys=True)
            if network not in networks:
                games = workers * section.games_per_worker
                networks[network] = PolicyPlayer(model, games, self._group_size, config.seed + first_episode)
            self._players.append(networks[network])
            self._played.append(networks[network].prepare(model.params, len(self._played), model.frozen))
        self.reads = tuple(sorted({key for player in networks.values() for key in player.reads}))

    def facts(self) -> list[dict[str, Any]]:
        """Who plays, for `dataset.json`."""
        return [checkpoint._asdict() for checkpoint in self.checkpoints]

    def room(self, count: int) -> int:
        """See `inference.Policy`."""
        return count

    def __call__(
        self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """See `inference.Policy`."""
        owners = self._owner[games // self._group_size]  # [B]
        actions = np.empty(len(games), np.int32)
        for owner in np.unique(owners):
            rows = np.flatnonzero(owners == owner)
            player = self._players[owner]
            player.swap(self._played[owner], wait=True)
            seen = {key: observations[key][rows] for key in player.reads}
            actions[rows], _ = player(seen, first[rows], games[rows])
        return actions, {}


def recorded(partial: Path) -> tuple[list[Checkpoint], int]:
    """The policies with which an unfinished dataset was begun, and its next episode; none and 0 if it was not begun."""
    try:
        found = read_json(partial / "progress.json")
        if found["moments"]:
            return [Checkpoint(**policy) for policy in found["policies"]], found["next_episode"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass  # not begun; or damaged, which is for the writer to tell
    return [], 0


def groups_per_worker(policies: int, workers: int, games: int) -> int:
    """As few groups per worker as give every policy one."""
    for groups in range(min(GROUPS, games), games + 1):
        if games % groups == 0 and workers * groups >= policies:
            return groups
    raise UserError(
        f"{policies} policies want a group of games each, but {workers} workers with {games} games each make at most "
        f"{workers * games} groups ({FLAG}, --config.collect.num_workers, .games_per_worker)"
    )


def deal(shares: list[float], groups: int) -> list[int]:
    """How many groups each policy gets: at least one, the others where most is missing."""
    counts = np.ones(len(shares), int)
    for _ in range(groups - len(shares)):
        counts[np.argmax(np.array(shares) * groups - counts)] += 1
    return counts.tolist()

"""Policies that a flag names: `runs/score`, `runs/score@40000000:0.3`, `runs/score@all:2,runs/oracle`.

A path is a workdir, its policy directory, a directory of checkpoints, or a release (releases.py). `@` is followed by
`last` (the default), the number of a checkpoint, or `all` for all kept checkpoints, with equal shares. `:` is followed
by the share. JAX is imported only when a policy is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from motif_jax.devices.releases import list_saved
from motif_jax.envs.world import World
from motif_jax.rewards.registry import to_number
from motif_jax.structs import ArraySpec, UserError, naming

if TYPE_CHECKING:
    from motif_jax.policies.model import Acted, Model, PlayerParameters, PolicyPlayer
    from motif_jax.rewards.source import RewardSources

LAST, ALL = "last", "all"


class PlayerChoice(NamedTuple):
    """One policy that a flag names, before any file is read."""

    path: str
    which: str  # LAST, ALL, or a number
    share: float


class Checkpoint(NamedTuple):
    """One checkpoint of a policy, and its share of the games."""

    path: str  # absolute path of the directory of checkpoints
    step: int
    share: float  # all shares sum to 1


def parse_mixture(text: str, flag: str) -> list[PlayerChoice]:
    """Parses `PATH[@WHICH][:SHARE],...` into choices; the shares are not normalised."""
    choices = []
    for part in map(str.strip, text.split(",")):
        name, share = part.rsplit(":", 1) if ":" in part else (part, "1")
        if not 0 < to_number(share) < math.inf:
            raise UserError(f"the share of {name!r} must be a positive number, not {share!r} ({flag})")
        choices.append(_choice(name, to_number(share), flag))
    return choices


def parse_one(text: str, flag: str) -> PlayerChoice:
    """Parses `PATH[@WHICH]`, which must name exactly one policy."""
    choice = _choice(text.strip(), 1.0, flag)
    if choice.which == ALL or "," in text:
        raise UserError(f"name one policy, not {text!r} ({flag})")
    return choice


def _choice(text: str, share: float, flag: str) -> PlayerChoice:
    path, at, which = text.rpartition("@")
    if not at or "/" in which:  # names of directories may contain an @
        path, which = text, LAST
    if which not in (LAST, ALL) and not which.isdecimal():
        raise UserError(f"unknown checkpoint {which!r} of {path!r} ({flag}): choose last, all or a number")
    return PlayerChoice(path, which, share)


def find(choices: list[PlayerChoice], flag: str) -> list[Checkpoint]:
    """Finds the checkpoints that the choices name, without reading them."""
    total = sum(choice.share for choice in choices)
    checkpoints = []
    for choice in choices:
        directory, steps = list_steps(choice.path, flag)
        if choice.which == LAST:
            steps = steps[-1:]
        elif choice.which != ALL:
            if int(choice.which) not in steps:
                has = ", ".join(map(str, steps))
                raise UserError(f"{choice.path!r} has no checkpoint {choice.which!r} ({flag}); it has {has}")
            steps = [int(choice.which)]
        checkpoints += [Checkpoint(str(directory), step, choice.share / total / len(steps)) for step in steps]
    return checkpoints


def list_steps(path: str, flag: str) -> tuple[Path, list[int]]:
    """Finds the directory of checkpoints for a path, and their numbers, ascending; a release has one checkpoint."""
    with naming(flag):
        return list_saved(Path(path), "policy")


def load(
    path: str, step: int, world: World, flag: str, trusted: Iterable[str] = ()
) -> tuple[Model, dict[str, Any], RewardSources]:
    """Reads a policy with `model.read_policy`; raises UserError if it cannot play in this world."""
    import jax

    from motif_jax.policies.model import read_policy

    with naming(flag):
        model, metadata, sources = read_policy(path, str(step), trusted, world.action_names)
    if reason := world.plays(metadata):
        raise UserError(f"the policy in {path!r} {reason} ({flag}, --config.env)")
    params, frozen = jax.device_put((model.params, model.frozen))
    return model._replace(params=params, frozen=frozen), metadata, sources


# Data of several policies, each of which plays its own groups of games.
#
# A group requests actions for all of its games at once, so each request is one call of one network, and recurrent
# states stay in place; a policy per episode would split every request. So shares are shares of groups, and of steps,
# because all groups play equally long.
#
# Two runs have the same games: the seed and the number of an episode determine its dungeon and dice, and episodes are
# taken in order. Actions differ: the group that plays episode n depends on timing, the sampling key counts the
# network's calls, and a network rounds differently for other batch sizes. Two runs are bit-identical only with
# `--config.collect.num_workers=0`, on one machine and without a stop.

FLAG = "--config.collect.policies"
GROUPS = 2  # per worker: one plays while the other waits for actions


class Mixture:
    """An `actors.acting.BatchedPolicy` that asks each group's own policy."""

    def __init__(
        self, checkpoints: list[Checkpoint], world: World, *, num_workers: int, games_per_worker: int, seed: int,
        trusted: Iterable[str] = (), flag: str = FLAG,
    ):  # fmt: skip
        """Loads the policies; `trusted`: classes of users (module:Class) that checkpoints may import."""
        from motif_jax.policies.model import PolicyPlayer

        self.checkpoints = checkpoints
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
        games = workers * games_per_worker
        for checkpoint in self.checkpoints:
            model, metadata, _ = load(checkpoint.path, checkpoint.step, world, flag, trusted)
            if model.acting.waits:
                raise UserError(f"the games of the policy in {checkpoint.path!r} wait: it cannot collect data ({flag})")
            network = json.dumps(metadata["model"], sort_keys=True)
            if network not in networks:
                networks[network] = PolicyPlayer(model, games, self._group_size, seed)
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
    what = f"{policies} policies need a group of games each, but at most {workers * games} are possible"
    raise UserError(f"{what} ({FLAG}, --config.collect.num_workers, .games_per_worker)")

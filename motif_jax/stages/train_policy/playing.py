"""The games of a training: who plays them, how, and how their rollouts become batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from motif_jax.actors.acting import AsyncLoop, OverlappedLoop, RolloutLoop, SyncLoop
from motif_jax.actors.pool import ActorPool
from motif_jax.console import print_line
from motif_jax.envs.world import SeedStream
from motif_jax.learner.settings import find_algorithm
from motif_jax.networks.kinds import find_prompt_network
from motif_jax.policies.learning import Keep, Learner, make_place
from motif_jax.policies.model import Model, PolicyPlayer
from motif_jax.stages import find_pools
from motif_jax.stages.train_policy import Policy, TrainConfig, takes_turns

FAR_AHEAD = 32  # batches; the published system's settings make about 8


class Playing:
    """How games are played for an algorithm, and what it gets of them: here, each one episode after the other."""

    episodes_per_seed = 1  # consecutive episodes that begin alike

    def player(self, model: Model, games: int, group_size: int, seed: int) -> PolicyPlayer:
        """The player that chooses the actions; see `PolicyPlayer`."""
        return PolicyPlayer(model, games, group_size, seed)

    def loop(self, section: Policy, *inputs: Any) -> RolloutLoop:
        """The loop of pool, player, rollouts per batch, and the function that places a batch."""
        if not takes_turns(section):
            return AsyncLoop(*inputs)
        pool, _, rollouts, _ = inputs
        alike = not rollouts % (pool.layout.num_workers * pool.layout.groups)  # each group has the same share
        network = find_prompt_network(section.network)
        if network and network.overlaps and section.groups > 1 and alike:
            return OverlappedLoop(*inputs)
        return SyncLoop(*inputs)

    def arrange(self, rows: dict[str, Any], seen: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """A batch as the algorithm reads it, by the names of `Rollouts`; `seen`: observations as the games gave them.

        The arrays are [T, T + 1 or 1, B, ...].
        """
        return rows


class Games(NamedTuple):
    """The games of this host, and of its hosts of games."""

    config: TrainConfig
    env: dict[str, Any]  # the config's section
    playing: Playing
    rollouts: int  # in this host's share of a batch

    def player(self, model: Model, seed: int) -> PolicyPlayer:
        """The player that chooses the actions in all games."""
        section = self.config.policy
        games = find_pools(self.config).workers(section.num_workers) * section.games_per_worker
        return self.playing.player(model, games, section.games_per_worker // section.groups, seed)

    def open(self, player: PolicyPlayer, observations: Iterable[str], first_episode: int = 0) -> ActorPool:
        """Starts the games; `observations`: that rollouts record, beside the player's. Warns of old samples."""
        section, pools = self.config.policy, find_pools(self.config)
        groups = pools.workers(section.num_workers) * section.groups
        spare = 0 if section.wait_for_learner and not takes_turns(section) else 1  # to fill while the others wait
        slots = -(-self.rollouts // groups) + spare  # enough for a batch
        ahead = slots * groups / self.rollouts
        if ahead > FAR_AHEAD:
            print_line(
                f"train_policy: {groups} groups of games can be {ahead:.0f} batches ahead of a slow learner, whose "
                "samples are then as many updates old: use fewer games, a larger batch, or games that wait for the "
                "learner (--config.policy.games_per_worker, .batch_size, .wait_for_learner)"
            )
        if find_algorithm(section.algorithm).on_policy and self.rollouts % groups:
            print_line(
                f"train_policy: {groups} groups of games play in rounds, of which a batch of {section.batch_size:,} "
                "steps is not a multiple, so it has samples of earlier policies: use a multiple of "
                f"{section.batch_size // self.rollouts * groups:,} steps (--config.policy.batch_size)"
            )
        pool = pools.open(
            self.env, tuple(sorted({*player.reads, *observations})), num_workers=section.num_workers,
            games_per_worker=section.games_per_worker, rollout_length=section.rollout_length, groups=section.groups,
            outputs=player.outputs, starts=player.starts, waits=player.waits, warmup_steps=section.warmup_steps,
            slots_per_group=slots, seed=self.config.seed, stream=SeedStream.TRAIN, first_episode=first_episode,
            episodes_per_seed=self.playing.episodes_per_seed, hang_timeout_s=section.hang_timeout_s,
            flag="--config.policy",
        )  # fmt: skip
        player.timers = pool.timers  # its waiting for the device is a part of the time called `policy`
        return pool

    def loop(
        self, pool: ActorPool, player: PolicyPlayer, learner: Learner, keep: Keep = lambda arrays, rewards: {}
    ) -> RolloutLoop:
        """The loop that turns the games of `pool` into batches for the learner; `keep`: see `make_place`."""
        place = make_place(learner, self.playing.arrange, keep)
        return self.playing.loop(self.config.policy, pool, player, self.rollouts, place)

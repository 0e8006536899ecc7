"""Makes the learner's batches: the policy plays, rewards are added to rollouts, arrays are placed on the devices.

In `FreeRunning`, games, policy and learner work at the same time. In `Rounds` they take turns, so that a run can be
repeated exactly.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from motif_jax.actors.handoff import Arrays, Batch, Handoff, make_batch
from motif_jax.actors.inference import answer
from motif_jax.actors.layout import Full, Request
from motif_jax.actors.pool import ActorPool
from motif_jax.devices.mesh import shard
from motif_jax.learner.update import Rewards, Rollouts
from motif_jax.policies.model import Model
from motif_jax.policies.player import PolicyPlayer
from motif_jax.rewards.intrinsic import Mix, extrinsic_reward
from motif_jax.rewards.sources import RewardSources
from motif_jax.system.metrics import Timers


class Source(Protocol):
    """A source of batches for the learner."""

    timers: Timers  # of all activities except the games

    def get(self, timeout_s: float) -> Batch | None: ...
    def close(self) -> None: ...
    @property
    def depth(self) -> int: ...


class FreeRunning:
    """Runs two threads beside the learner: one drives the games, the other makes batches of rollouts."""

    def __init__(self, pool: ActorPool, policy: PolicyPlayer, rollouts: int, place: Callable[[Arrays], Any]):
        """Starts both threads. A batch has `rollouts` rollouts, and `place` puts its arrays on the devices.

        If the pool lacks a spare slot for each group, games wait for a slower learner: batches in the queue keep their
        slots.
        """
        self._pool, self._policy = pool, policy
        policy.timers = pool.timers  # its waits for the device are a part of the time `policy`
        layout = pool.layout
        hold = layout.num_slots < rollouts + layout.num_workers * layout.groups
        self._handoff = Handoff(pool, rollouts, place=place, hold=hold)
        self.timers = self._handoff.timers
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="acting", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """Number of batches that wait for the learner."""
        return self._handoff.depth

    def get(self, timeout_s: float) -> Batch | None:
        """The next batch, or None after `timeout_s`. Raises the errors of the threads."""
        if self._error is not None:
            raise self._error
        return self._handoff.get(timeout_s)

    def close(self) -> None:
        """Ends both threads."""
        self._stop.set()
        self._thread.join()
        self._handoff.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                requests, fulls = self._pool.poll(0.2)
                answer(self._pool, requests, self._policy)
                for full in fulls:
                    self._handoff.offer(full)
        except BaseException as error:  # raised by `get`
            self._error = error


class Rounds:
    """Plays in rounds: all groups ask for actions, then all get them. Games wait while the learner works."""

    depth = 0

    def __init__(self, pool: ActorPool, policy: PolicyPlayer, rollouts: int, place: Callable[[Arrays], Any]):
        """See `FreeRunning`."""
        self._pool, self._policy, self._rollouts, self._place = pool, policy, rollouts, place
        policy.timers = pool.timers
        self._requests: dict[tuple[int, int], Request] = {}  # by group; a restarted worker's replaces its old one
        self._round: list[Full] = []  # of this round
        self._fulls: list[Full] = []  # of earlier rounds, in order
        self.timers = Timers()

    def get(self, timeout_s: float) -> Batch | None:
        """Plays until there is a batch, or returns None after `timeout_s`; the next call continues."""
        deadline = time.monotonic() + timeout_s
        while len(self._fulls) < self._rollouts:
            while self._is_awaited():
                if time.monotonic() > deadline:
                    return None
                requests, fulls = self._pool.poll(0.2)
                self._requests |= {(request.worker, request.group): request for request in requests}
                self._round += fulls
            # Rollouts are in order of their rounds, so that groups get their slots back soon and each group's rollouts
            # stay in sequence; within a round they are sorted, so that the order is repeatable.
            self._fulls += sorted(self._round)
            self._round = []
            if len(self._fulls) < self._rollouts:
                answer(self._pool, [self._requests[group] for group in sorted(self._requests)], self._policy)
                self._requests = {}
        taken, self._fulls = self._fulls[: self._rollouts], self._fulls[self._rollouts :]
        return make_batch(self._pool, taken, self._place, self.timers)

    def _is_awaited(self) -> bool:
        """Whether a group with a free slot has not asked yet in this round."""
        layout = self._pool.layout
        here = collections.Counter((full.worker, full.group) for full in self._fulls + self._round)
        groups = ((worker, group) for worker in range(layout.num_workers) for group in range(layout.groups))
        return any(group not in self._requests and here[group] < layout.slots_per_group for group in groups)

    def close(self) -> None:
        """Does nothing: there are no threads."""


def make_shape_rewards(mix: Mix, sources: RewardSources) -> Callable[[Any, Rollouts], Rewards]:
    """Makes the function that computes the learner's rewards from rollouts, with all coefficients applied.

    `mix` scales and weights the game's reward; `sources` give the other rewards.
    """

    def shape_rewards(_: Any, rollouts: Rollouts) -> Rewards:
        extrinsic = mix.extrinsic * extrinsic_reward(rollouts.reward, mix)
        intrinsic = sources.total(rollouts.moments)
        intrinsic = jnp.zeros_like(extrinsic) if intrinsic is None else intrinsic
        return Rewards(extrinsic + intrinsic, extrinsic, intrinsic)

    return shape_rewards


class Placed(NamedTuple):
    """A batch on the device, and figures about it on the host."""

    rollouts: Rollouts
    rewards: dict[str, np.ndarray]  # of each source by name, without its coefficient. [T, B]
    ended: np.ndarray  # [T, B] bool
    first: np.ndarray  # whether a rollout begins with an episode. [B]


def make_place(model: Model, sources: RewardSources, mesh: Mesh) -> Callable[[Arrays], Placed]:
    """Makes the function that computes the rewards of rollouts and places their arrays on `mesh`."""

    def place(arrays: Arrays) -> Placed:
        moments = sources.moments(arrays)
        rewards = sources.shape(moments)
        sources.check(rewards, arrays["reward"].shape)
        rows: dict[str, Any] = {key: arrays[key] for key in Rollouts._fields if key in arrays}
        rows |= {"observations": model.encode({key: arrays[key] for key in model.reads}), "moments": moments}
        return Placed(
            rollouts=shard(Rollouts(**rows), mesh, axis=1),
            rewards=rewards,
            ended=arrays["terminated"] | arrays["truncated"],
            first=arrays["first"][0],
        )

    return place

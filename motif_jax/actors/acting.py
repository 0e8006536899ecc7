"""From games to batches: the policy answers waiting groups of games, in one of two ways to play.

In `AsyncLoop`, games, policy and learner work at the same time. In `SyncLoop` each waits for the others, so that a run
can be repeated exactly.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from motif_jax.actors.pool import ActorPool
from motif_jax.actors.worker import GAME, Ended, FilledSlot, Request, read_rows
from motif_jax.envs.world import waited
from motif_jax.structs import ArraySpec
from motif_jax.system.metrics import Timers

TICK_S = 0.2  # how often a blocked thread checks whether it must stop


# ---- batches of full slots

Arrays = dict[str, np.ndarray]
Group = tuple[int, int]  # of games: a worker's number, and the group's in it


class RolloutBatch(NamedTuple):
    """Rollouts stacked along the batch axis, B games in all."""

    arrays: Any  # result of `place` for {key: [T, T + 1 or 1, B, ...]}
    fulls: list[FilledSlot]  # the rollouts in order, E of the B columns each
    episodes: list[list[Ended]]  # the episodes that ended in each rollout
    steps: int  # of games: T * B, without those in which a game waits

    def columns(self) -> Iterator[tuple[Group, slice]]:
        """The group of each rollout, and the columns of its games in the arrays of `PlacedBatch`."""
        size = len(self.arrays.first) // len(self.fulls)
        for number, full in enumerate(self.fulls):
            yield (full.worker, full.group), slice(number * size, (number + 1) * size)


def make_batch(
    pool: ActorPool, fulls: list[FilledSlot], place: Callable[[Arrays], Any], timers: Timers, *, hold: bool = False
) -> RolloutBatch:
    """Stacks rollouts and calls `place` on the arrays; releases the slots, unless the caller is to `hold` them."""
    with timers("stack"):
        arrays = {key: np.concatenate([array[full.slot] for full in fulls], 1) for key, array in pool.rollouts.items()}
        arrays[GAME] = np.concatenate([games_of(pool, full) for full in fulls])[None]  # [1, B]
        episodes = [pool.ended(full) for full in fulls]
        if not hold:
            for full in fulls:
                pool.release(full)
    steps = int(np.count_nonzero(~waited(arrays["action"])))
    with timers("place"):
        placed = place(arrays)
    return RolloutBatch(placed, fulls, episodes, steps)


def games_of(pool: ActorPool, slot: FilledSlot | Request) -> np.ndarray:
    """Returns the indices in the whole pool of the games in a slot. [E]"""
    size = pool.layout.group_size
    return (slot.worker * pool.layout.groups + slot.group) * size + np.arange(size)


# ---- loops


class BatchedPolicy(Protocol):
    """A function from observations to actions, for any number of games."""

    reads: tuple[str, ...]  # names of the required observations
    outputs: dict[str, ArraySpec]  # arrays stored with each action
    starts: dict[str, ArraySpec]  # arrays stored with the first action of a rollout

    def room(self, count: int) -> int:
        """The padded number of games in a call for `count` games, at least `count`."""

    def __call__(
        self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Actions, and outputs with starts, for `games` ([B] indices); `first` [B]: an episode begins.

        Observations and `first` are padded with zeros to `room` rows.
        """


def answer(pool: ActorPool, requests: list[Request], policy: BatchedPolicy) -> None:
    """Answers all requests with one call of the policy."""
    if not requests:
        return
    seen = gather(pool, requests, policy)
    scatter(pool, requests, lambda: policy(*seen))


def scatter(pool: ActorPool, requests: list[Request], call: Callable[[], tuple[np.ndarray, dict[str, Any]]]) -> None:
    """Sends the results of a call of the policy to the games."""
    with pool.timers("policy"):
        actions, outputs = call()
    with pool.timers("scatter"):
        pool.act(requests, actions, outputs)


def gather(
    pool: ActorPool, requests: list[Request], policy: BatchedPolicy
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """The arguments of a call of the policy."""
    layout = pool.layout
    with pool.timers("gather"):
        groups = [request.worker * layout.groups + request.group for request in requests]
        games = np.arange(pool.num_games).reshape(-1, layout.group_size)[groups].reshape(-1)
        places = np.array([(request.slot, request.step) for request in requests])
        room = policy.room(len(games))
        observations = {key: read_rows(pool.rollouts[key], places, room) for key in policy.reads}
        return observations, read_rows(pool.rollouts["first"], places, room), games


class AsyncLoop:
    """Runs two threads beside the learner: one drives the games, the other stacks rollouts into a queue of one batch.

    A full queue blocks the second thread, so the workers run out of free slots and wait: the number of slots bounds the
    policy lag.
    """

    def __init__(self, pool: ActorPool, policy: BatchedPolicy, rollouts: int, place: Callable[[Arrays], Any]):
        """Starts both threads. A batch has `rollouts` rollouts, and `place` puts its arrays on the devices.

        If the pool has no slot to spare for each group, games are to wait for a slower learner: then a batch keeps its
        slots until the learner has taken the one before it.
        """
        self.pool, self._policy, self._rollouts, self._place = pool, policy, rollouts, place
        layout = pool.layout
        self._hold = layout.num_slots < rollouts + layout.num_workers * layout.groups
        self.timers = Timers()
        self._fulls: queue.SimpleQueue[FilledSlot | None] = queue.SimpleQueue()
        self._batches: queue.Queue[RolloutBatch] = queue.Queue(1)
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=work.__name__, daemon=True)
            for work in (self._act, self._stack)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def depth(self) -> int:
        """Batches that wait for the learner."""
        return self._batches.qsize()

    def get(self, timeout_s: float) -> RolloutBatch | None:
        """The next batch, or None if none comes within `timeout_s`. Errors of the threads are raised here."""
        if self._error is not None:
            raise self._error
        with self.timers("wait_for_batch"), contextlib.suppress(queue.Empty):
            return self._batches.get(timeout=timeout_s)
        return None

    def close(self) -> None:
        """Ends the threads; a queued batch is dropped."""
        self._stop.set()
        self._fulls.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                work()
        except BaseException as error:  # for the thread that reads batches
            self._error = error

    def _act(self) -> None:
        requests, fulls = self.pool.poll(TICK_S)
        answer(self.pool, requests, self._policy)
        for full in fulls:
            self._fulls.put(full)

    def _stack(self) -> None:
        fulls: list[FilledSlot] = []
        with self.timers("wait_for_rollouts"):
            while len(fulls) < self._rollouts:
                full = self._fulls.get()
                if full is None:
                    return
                fulls.append(full)
        batch = make_batch(self.pool, fulls, self._place, self.timers, hold=self._hold)
        with self.timers("wait_for_learner"):
            while not self._stop.is_set():
                with contextlib.suppress(queue.Full):
                    self._batches.put(batch, timeout=TICK_S)
                    break
        for full in fulls if self._hold else ():
            self.pool.release(full)


class SyncLoop:
    """Plays in rounds: all groups ask, then all are answered, and the games wait while the learner works."""

    depth = 0

    def __init__(
        self, pool: ActorPool, policy: BatchedPolicy, rollouts: int,
        place: Callable[[Arrays], Any] = lambda arrays: arrays,
    ):  # fmt: skip
        """See `AsyncLoop`."""
        self.pool, self._policy, self._rollouts, self._place = pool, policy, rollouts, place
        self.timers = Timers()
        # By worker and group; a restarted worker's replaces the old one.
        self._requests: dict[tuple[int, int], Request] = {}
        self._round: list[FilledSlot] = []  # of this round
        self._fulls: list[FilledSlot] = []  # in the order in which they came

    def get(self, timeout_s: float) -> RolloutBatch | None:
        """Plays until there is a batch; returns None after `timeout_s`, and the next call continues from there."""
        deadline = time.monotonic() + timeout_s
        while len(self._fulls) < self._rollouts:
            if not self._wait(deadline):
                return None
            # What filled up in the same round is put in order; which round it was decides first, so that no group is
            # kept waiting for its slots, and each group's rollouts stay in theirs.
            self._fulls += sorted(self._round)
            self._round = []
            if len(self._fulls) < self._rollouts:
                self.answer([self._requests[group] for group in sorted(self._requests)])
                self._requests = {}
        taken, self._fulls = self._fulls[: self._rollouts], self._fulls[self._rollouts :]
        return self.batch(taken)

    def answer(self, requests: list[Request]) -> None:
        """Answers what all groups have asked in a round."""
        answer(self.pool, requests, self._policy)

    def batch(self, fulls: list[FilledSlot]) -> RolloutBatch:
        """The batch of these rollouts."""
        return make_batch(self.pool, fulls, self._place, self.timers)

    def __iter__(self) -> Iterator[RolloutBatch]:
        while True:
            if batch := self.get(1.0):
                yield batch

    def _wait(self, deadline: float) -> bool:
        """Polls until no group is awaited; returns False if that takes too long."""
        while self._is_awaited():
            if time.monotonic() > deadline:
                return False
            requests, fulls = self.pool.poll(TICK_S)
            self._requests |= {request[:2]: request for request in requests}
            self._round += fulls
        return True

    def _is_awaited(self) -> bool:
        """Whether a group has yet to ask in this round: it did not ask, and not all of its slots are full."""
        layout = self.pool.layout
        here = collections.Counter(full[:2] for full in self._fulls + self._round)
        groups = itertools.product(range(layout.num_workers), range(layout.groups))
        return any(group not in self._requests and here[group] < layout.slots_per_group for group in groups)

    def close(self) -> None:
        """Does nothing, as no thread was started."""


class StartedPolicy(BatchedPolicy, Protocol):
    """A policy whose calls do not wait for the device."""

    def start(
        self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray
    ) -> Callable[[], tuple[np.ndarray, dict[str, Any]]]:
        """Starts a call, and returns the function that waits for its results."""


class OverlappedLoop(SyncLoop):
    """Rounds of a slow policy: the device works for one group of each worker, while games of the others play.

    Groups are answered in turn, each with a call of its own, so a run can be repeated exactly. A group that has filled
    its share of a batch waits for the learner.
    """

    def __init__(
        self, pool: ActorPool, policy: StartedPolicy, rollouts: int,
        place: Callable[[Arrays], Any] = lambda arrays: arrays,
    ):  # fmt: skip
        """See `SyncLoop`; `rollouts` is a multiple of the number of groups in the pool."""
        super().__init__(pool, policy, rollouts, place)
        self._starting, self._share = policy, rollouts // (pool.layout.num_workers * pool.layout.groups)
        self._turn = 0  # the group of each worker whose call comes next
        self._started: dict[int, tuple[list[Request], Callable[[], Any]]] = {}  # by turn

    def get(self, timeout_s: float) -> RolloutBatch | None:
        deadline = time.monotonic() + timeout_s
        while len(self._round) < self._rollouts:
            if started := self._started.pop(self._turn, None):
                scatter(self.pool, *started)
            if not self._wait(deadline):
                return None
            asking = [group for group in sorted(self._requests) if group[1] == self._turn and not self._is_done(group)]
            if asking:
                asked = [self._requests.pop(group) for group in asking]
                seen = gather(self.pool, asked, self._starting)
                with self.pool.timers("policy"):
                    self._started[self._turn] = asked, self._starting.start(*seen)
            self._turn = (self._turn + 1) % self.pool.layout.groups
        of_group = collections.defaultdict[tuple[int, int], list[FilledSlot]](list)
        for full in self._round:
            of_group[full[:2]].append(full)
        in_turn = zip(*(of_group[group] for group in sorted(of_group)), strict=True)  # all first ones, all second ones
        self._round, self._turn = [], 0
        return self.batch(list(itertools.chain(*in_turn)))

    def _is_done(self, group: tuple[int, int]) -> bool:
        return sum(full[:2] == group for full in self._round) >= self._share

    def _is_awaited(self) -> bool:
        """Whether a group whose turn it is has yet to ask, and must be answered before the next batch."""
        groups = [(worker, self._turn) for worker in range(self.pool.layout.num_workers)]
        return any(group not in self._requests and not self._is_done(group) for group in groups)


RolloutLoop = AsyncLoop | SyncLoop  # the source of the learner's batches

"""Makes batches of full slots: a thread stacks rollouts into a bounded queue before the learner.

A full queue blocks the thread, so the workers run out of free slots and wait. The sizes of queue and slots bound the
policy lag.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from motif_jax.actors.layout import ENDED, GAME, Ended, FilledSlot, Request
from motif_jax.actors.pool import ActorPool
from motif_jax.envs.world import waited
from motif_jax.structs import UserError
from motif_jax.system.metrics import Timers

Arrays = dict[str, np.ndarray]
TICK_S = 0.2  # how often a blocked thread checks whether it must stop


class RolloutBatch(NamedTuple):
    """Rollouts stacked along the batch axis, B games in all."""

    arrays: Any  # result of `place` for {key: [T, T + 1 or 1, B, ...]}
    fulls: list[FilledSlot]  # the rollouts in order, E of the B columns each
    episodes: list[list[Ended]]  # the episodes that ended in each rollout
    steps: int  # of games: T * B, without those in which a game waits


def make_batch(
    pool: ActorPool, fulls: list[FilledSlot], place: Callable[[Arrays], Any], timers: Timers, *, hold: bool = False
) -> RolloutBatch:
    """Stacks rollouts, releases their slots, and calls `place` on the arrays.

    With `hold`, the caller releases the slots.
    """
    with timers("stack"):
        arrays = {key: np.concatenate([array[full.slot] for full in fulls], 1) for key, array in pool.rollouts.items()}
        arrays[GAME] = np.concatenate([games_of(pool, full) for full in fulls])[None]  # [1, B]
        episodes = [pool.ended(full) for full in fulls]
        if pool.layout.alike > 1:
            arrays[ENDED] = first_ends(episodes, pool.layout.group_size)
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


def first_ends(episodes: list[list[Ended]], size: int) -> np.ndarray:
    """Returns number and steps of the first episode that ended in each column; -1 for none. [2, B]"""
    ends = np.full((2, len(episodes), size), -1, np.int64)
    for slot, ended in enumerate(episodes):
        for _, game, info in reversed(ended):
            ends[:, slot, game] = info.episode, info.steps
    return ends.reshape(2, -1)


class Handoff:
    """Collects full slots into batches; a context manager."""

    def __init__(
        self,
        pool: ActorPool,
        rollouts_per_batch: int,
        *,
        depth: int = 1,
        place: Callable[[Arrays], Any] = lambda arrays: arrays,
        hold: bool = False,
    ):
        """Starts the thread.

        Args:
          pool: the pool that owns the slots.
          rollouts_per_batch: slots per batch; each is one group's rollout.
          depth: length of the queue of batches.
          place: moves the arrays to the learner's devices, in the hand-off's thread.
          hold: whether to keep the slots of a batch until it is in the queue, which bounds the policy lag further.
        """
        self.timers = Timers()
        self._pool, self._size, self._place, self._hold = pool, rollouts_per_batch, place, hold
        self._incoming: queue.SimpleQueue[FilledSlot | None] = queue.SimpleQueue()
        self._ready: queue.Queue[RolloutBatch] = queue.Queue(depth)
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="handoff", daemon=True)
        self._thread.start()

    def __enter__(self) -> Handoff:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def depth(self) -> int:
        return self._ready.qsize()

    def offer(self, full: FilledSlot) -> None:
        """Takes a full slot, and releases it when it has been copied into a batch."""
        self._incoming.put(full)

    def get(self, timeout_s: float) -> RolloutBatch | None:
        """The next batch, or None after `timeout_s`. Raises errors of the thread."""
        with self.timers("wait_for_batch"):
            try:
                return self._ready.get(timeout=timeout_s)
            except queue.Empty:
                if isinstance(self._error, UserError):
                    raise self._error from None
                if self._error is not None:
                    raise RuntimeError("the hand-off from games to learner failed") from self._error
                return None

    def close(self) -> None:
        """Ends the thread; queued batches are dropped."""
        self._stop.set()
        self._incoming.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                batch = self._collect()
                with self.timers("wait_for_learner"):
                    while batch is not None and not self._stop.is_set():
                        try:
                            self._ready.put(batch, timeout=TICK_S)
                            for full in batch.fulls if self._hold else ():
                                self._pool.release(full)
                            break
                        except queue.Full:
                            continue
        except BaseException as error:  # `get` raises it
            self._error = error

    def _collect(self) -> RolloutBatch | None:
        fulls: list[FilledSlot] = []
        with self.timers("wait_for_rollouts"):
            while len(fulls) < self._size:
                full = self._incoming.get()
                if full is None:
                    return None
                fulls.append(full)
        return make_batch(self._pool, fulls, self._place, self.timers, hold=self._hold)

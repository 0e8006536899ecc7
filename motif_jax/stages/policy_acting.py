"""The policy on the device, and the two ways to get batches of rollouts from it.

`PolicyPlayer` answers for any number of games at a time and remembers each on the device. `Stream` lets games, policy
and learner work at the same time; `Rounds` lets one wait for the other, so that the same run can be had twice.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.actors.handoff import Arrays, Batch, Handoff, make_batch
from motif_jax.actors.inference import answer
from motif_jax.actors.layout import Full, Request
from motif_jax.actors.pool import ActorPool
from motif_jax.metrics import Timers
from motif_jax.stages.policy_setup import Model
from motif_jax.structs import ArraySpec

EXACT = 8  # so many groups may ask together in any number; more are filled up to a power of two


class Played(NamedTuple):
    """A policy that is played."""

    params: Any
    prepared: Any  # what is computed of them once
    version: int  # updates it has seen


class PolicyPlayer:
    """An `inference.Policy`: one compiled step for all that ask."""

    def __init__(self, model: Model, num_games: int, group_size: int, seed: int, greedy: bool = False):
        """Nothing is remembered of any game yet.

        Args:
          model: its parameters are played until `swap` brings others.
          num_games, group_size: of the pool.
          seed: of the sampling.
          greedy: take the most probable action rather than to sample.
        """
        self.reads = model.reads
        self.outputs = {
            "logits": ArraySpec((model.num_actions,), "float32"),
            "value": ArraySpec((), "float32"),
            "version": ArraySpec((), "int32"),
        }
        self.starts = {"core": ArraySpec((model.core_size,), "float32")}
        self._prepare = jax.jit(model.prepare)
        self._played = self.prepare(model.params, 0)
        self._coming: collections.deque[Played] = collections.deque()
        self._num_games, self._group_size = num_games, group_size
        self._cores = jnp.zeros((num_games + 1, model.core_size))  # the last row is for those who only fill up
        self._key, self._calls = jax.random.key(seed), 0
        self._step = jax.jit(partial(play_step, model.step, greedy), donate_argnums=1)

    def prepare(self, params: Any, version: int) -> Played:
        """Parameters as `swap` wants them."""
        return Played(params, self._prepare(params), version)

    def swap(self, played: Played, wait: bool) -> None:
        """This is played as soon as the device has it, or, having waited for that, from the next call on.

        Any one thread may; what is read together is replaced together.
        """
        if wait:
            jax.block_until_ready((played.params, played.prepared))
        self._coming.append(played)

    def __call__(
        self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """See `inference.Policy`."""
        while self._coming and _is_there(self._coming[0]):  # in their order, so that a busy learner holds up none
            self._played = self._coming.popleft()
        params, prepared, version = self._played
        count = len(games)
        groups = count // self._group_size
        full = groups if groups <= EXACT else 1 << (groups - 1).bit_length()
        missing = full * self._group_size - count
        if missing:
            observations = {key: _pad(array, missing, 0) for key, array in observations.items()}
            first, games = _pad(first, missing, True), _pad(games, missing, self._num_games)
        self._cores, before, actions, logits, values = self._step(
            (params, prepared), self._cores, self._key, np.int32(self._calls), observations, first, games
        )
        self._calls += 1
        outputs = {"logits": np.asarray(logits)[:count], "value": np.asarray(values)[:count]}
        outputs |= {"version": np.full(count, version, np.int32)}
        return np.asarray(actions)[:count], outputs | {"core": before}


def play_step(
    step: Callable,
    greedy: bool,
    played: tuple[Any, Any],
    cores: jax.Array,
    key: jax.Array,
    call: jax.Array,
    observations: dict[str, jax.Array],
    first: jax.Array,
    games: jax.Array,
) -> tuple[jax.Array, ...]:
    """One moment of some games: all memories, those of these games before, actions, logits, values."""
    before = cores[games]
    params, prepared = played
    logits, values, after = step(params, observations, first, before, prepared)
    if greedy:
        actions = logits.argmax(-1)
    else:
        actions = jax.random.categorical(jax.random.fold_in(key, call), logits)
    return cores.at[games].set(after), before, actions.astype(jnp.int32), logits, values


def _is_there(played: Played) -> bool:
    """Whether all of it is computed."""
    return all(
        leaf.is_ready() for leaf in jax.tree.leaves((played.params, played.prepared)) if hasattr(leaf, "is_ready")
    )


def _pad(array: np.ndarray, missing: int, value: Any) -> np.ndarray:
    return np.concatenate([array, np.full((missing, *array.shape[1:]), value, array.dtype)])


class Source(Protocol):
    """Where the learner's batches come from."""

    timers: Timers  # of everything but the games themselves

    def get(self, timeout_s: float) -> Batch | None: ...
    def close(self) -> None: ...
    @property
    def depth(self) -> int: ...


class Stream:
    """A thread that drives the games, and one that puts rollouts together, beside the learner."""

    def __init__(self, pool: ActorPool, policy: PolicyPlayer, rollouts: int, place: Callable[[Arrays], Any]):
        """Starts both."""
        self._pool, self._policy = pool, policy
        self._handoff = Handoff(pool, rollouts, place=place)
        self.timers = self._handoff.timers
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="acting", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """Batches that wait for the learner."""
        return self._handoff.depth

    def get(self, timeout_s: float) -> Batch | None:
        """The next batch, or None if there is none in time. Errors of the threads are raised here."""
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
        except BaseException as error:  # for the thread that reads batches
            self._error = error


class Rounds:
    """Nobody works while another does: all groups ask, then all are answered; and the games wait for the learner."""

    depth = 0

    def __init__(self, pool: ActorPool, policy: PolicyPlayer, rollouts: int, place: Callable[[Arrays], Any]):
        """See `Stream`."""
        self._pool, self._policy, self._rollouts, self._place = pool, policy, rollouts, place
        self._requests: dict[tuple[int, int], Request] = {}  # by group: that of a worker which died is replaced
        self._round: list[Full] = []  # of this round
        self._fulls: list[Full] = []  # in the order in which they came
        self.timers = Timers()

    def get(self, timeout_s: float) -> Batch | None:
        """Plays until there is a batch; None if there is none in time, and then the next call goes on."""
        deadline = time.monotonic() + timeout_s
        while len(self._fulls) < self._rollouts:
            while self._is_awaited():
                if time.monotonic() > deadline:
                    return None
                requests, fulls = self._pool.poll(0.2)
                self._requests |= {(request.worker, request.group): request for request in requests}
                self._round += fulls
            # What filled up in the same round is put in order; which round it was decides first, so that no group is
            # kept waiting for its slots, and each group's rollouts stay in theirs.
            self._fulls += sorted(self._round)
            self._round = []
            if len(self._fulls) < self._rollouts:
                answer(self._pool, [self._requests[group] for group in sorted(self._requests)], self._policy)
                self._requests = {}
        taken, self._fulls = self._fulls[: self._rollouts], self._fulls[self._rollouts :]
        return make_batch(self._pool, taken, self._place, self.timers)

    def _is_awaited(self) -> bool:
        """Whether a group plays that will ask: it did not yet, and not all of its slots are here."""
        layout = self._pool.layout
        here = collections.Counter((full.worker, full.group) for full in self._fulls + self._round)
        groups = ((worker, group) for worker in range(layout.num_workers) for group in range(layout.groups))
        return any(group not in self._requests and here[group] < layout.slots_per_group for group in groups)

    def close(self) -> None:
        """Nothing runs."""

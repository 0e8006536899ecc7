"""A network that learns from labels during training of the agent: parameters, optimizer, lessons (gradient steps).

It is on one device of each host. With several hosts, each gives its own copy the same lessons, so the copies stay equal
without communication. Updates do not donate the old parameters, so a snapshot may still use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.rewards.moments import HostMoments
from motif_jax.rewards.online.store import Store
from motif_jax.structs import UserError

LEAST, CHUNK = 64, 1024  # minimum and maximum number of captions per call, so that few shapes are compiled
SUMS = ("lessons", "loss", "gradient_norm", "sided", "right")  # `sided`: labels without ties; `right`: hits
Sums = dict[str, Any]
SEED = 83  # so that these networks are not those of the policy
Lesson = Callable[[Any, Mapping[str, Any], jax.Array], tuple[jax.Array, Sums]]


class State(NamedTuple):
    """The state that a lesson updates."""

    params: Any
    optimizer: Any


class Pupil:
    """A network with its optimizer."""

    def __init__(self, params: Any, scores: Callable[..., jax.Array], loss: Lesson, optimizer: Any, seed: int):
        """Compiles the functions.

        Args:
          scores: (parameters, messages [D, W]) -> [D].
          loss: (parameters, arrays of a batch, key) -> loss, and `sided` and `right` of SUMS.
        """
        self._state = State(params, optimizer.init(params))
        self.lessons = 0
        self._sums = dict.fromkeys(SUMS, np.float32(0))
        self._scores = jax.jit(scores)

        def teach(state: State, sums: Sums, batch: Mapping[str, Any], lesson: jax.Array) -> tuple[State, Sums]:
            key = jax.random.fold_in(jax.random.key(seed), lesson)
            (value, found), gradients = jax.value_and_grad(loss, has_aux=True)(state.params, batch, key)
            updates, of_optimizer = optimizer.update(gradients, state.optimizer, state.params)
            found = found | {"lessons": 1.0, "loss": value, "gradient_norm": optax.tree.norm(gradients)}
            params = optax.apply_updates(state.params, updates)
            return State(params, of_optimizer), {name: sums[name] + found[name] for name in SUMS}

        self._teach = jax.jit(teach)

    @property
    def params(self) -> Any:
        """The current parameters; lessons replace them and do not change them in place."""
        return self._state.params

    def teach(self, batch: Mapping[str, np.ndarray]) -> None:
        self._state, self._sums = self._teach(self._state, self._sums, batch, np.int32(self.lessons))
        self.lessons += 1

    def scores(self, params: Any, messages: np.ndarray) -> np.ndarray:
        """The network's output for distinct captions, with the given parameters. [D, 256] uint8 -> [D]"""
        if not len(messages):
            return np.zeros(0, np.float32)
        parts = [messages[start : start + CHUNK] for start in range(0, len(messages), CHUNK)]
        return np.concatenate([np.asarray(self._scores(params, pad(part)))[: len(part)] for part in parts])

    def start_from(self, params: Any) -> None:
        """Begins with given parameters, which count as one lesson."""
        self._state = self._state._replace(params=params)
        self.lessons = max(self.lessons, 1)

    def arrays(self) -> dict[str, Any]:
        return {**self._state._asdict(), "lessons": np.array([self.lessons], np.int64)}

    def restore(self, arrays: Any) -> None:
        """Restores the state that `arrays` returned."""
        given = {name: arrays.get(name, {}) for name in State._fields}
        self._state = rebuild(self._state, leaves_by_path(given), Path("sources/online"), "--workdir")
        self.lessons = int(np.asarray(arrays["lessons"])[0])

    def figures(self) -> dict[str, float]:
        """Means over the lessons since the last call; raises UserError if a loss was not finite."""
        sums = {name: float(value) for name, value in jax.device_get(self._sums).items()}
        self._sums = dict.fromkeys(SUMS, np.float32(0))
        found = {"lessons": float(self.lessons)}
        if sums["lessons"]:
            if not np.isfinite(sums["loss"]):
                raise UserError(
                    f"the loss of the online reward is not finite after {self.lessons:,} lessons: begin another "
                    "--workdir, with a smaller --config.policy.online.learning_rate"
                )
            found |= {name: sums[name] / sums["lessons"] for name in ("loss", "gradient_norm")}
            if sums["sided"]:
                found["accuracy"] = sums["right"] / sums["sided"]
        return found


def pad(messages: np.ndarray, rows: int = 0) -> np.ndarray:
    """Pads messages with zeros to one of few shapes. [K, 256] -> [K', W] uint8

    K' is `rows`, by default a power of two. W is a power of two: the columns behind it have only zeros.
    """
    used = np.flatnonzero(np.bitwise_or.reduce(messages, 0))
    width = min(power(used[-1] + 1 if len(used) else 1), messages.shape[1])
    found = np.zeros((rows or power(len(messages)), width), np.uint8)
    found[: len(messages)] = messages[:, :width]
    return found


def power(number: int) -> int:
    """The next power of two, at least LEAST."""
    return max(LEAST, 1 << int(number - 1).bit_length())


class Teaching(NamedTuple):
    """Values of the config for the training of a network."""

    message: str  # encoder
    learning_rate: float
    batch_size: int
    lessons_early: int
    lessons_late: int
    switch_at: int
    seed: int


class TaughtKind:
    """Base class of the kinds with a network: when lessons are given, and from which labels.

    Below `switch_at` labels, `lessons_early` lessons follow whenever labels come; later, `lessons_late` lessons follow
    each update of the policy.
    """

    def __init__(self, teaching: Teaching, pupil: Pupil):
        self._teaching, self._pupil = teaching, pupil

    def learn(self, store: Store, news: int, scores: HostMoments) -> None:
        teaching, answered = self._teaching, self.known(store)
        early = len(answered) < teaching.switch_at
        lessons = (teaching.lessons_early if news else 0) if early else teaching.lessons_late
        for _ in range(lessons if len(answered) else 0):
            rng = np.random.default_rng((teaching.seed, SEED, self._pupil.lessons))
            chosen = answered
            if len(answered) > teaching.batch_size:
                chosen = rng.choice(answered, teaching.batch_size, replace=False)
            self._pupil.teach(self.batch(store, chosen))

    def known(self, store: Store) -> np.ndarray:
        """The questions that lessons may use. [Q]"""
        return store.answered

    def batch(self, store: Store, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays of a lesson about these questions [Q]; Q is at most the batch size."""
        raise NotImplementedError

    def _fill(self, values: np.ndarray) -> np.ndarray:
        """Pads with rows of zeros to the batch size."""
        found = np.zeros((self._teaching.batch_size, *values.shape[1:]), values.dtype)
        found[: len(values)] = values
        return found

    def forget(self) -> None:
        """See `OnlineKind`: the network keeps its parameters and learns the new labels."""

    def arrays(self) -> dict[str, Any]:
        return self._pupil.arrays()

    def restore(self, arrays: Any) -> None:
        self._pupil.restore(arrays)

    def figures(self) -> dict[str, float]:
        return self._pupil.figures()

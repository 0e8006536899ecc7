"""Kinds of online rewards whose labels are taught to a network: ONI-Classification and ONI-Ranking.

    classification   worth = 1 where P(helpful) > threshold, else 0       cross-entropy on the judge's labels
    ranking          z = (score - mean) / sqrt(variance); worth = z where z > floor, else 0       Bradley-Terry on pairs

Mean and variance are those of the scores of all steps so far (`normalise`; without it, worth = score, as released).
While there are few labels, some lessons follow whenever labels come; later, a lesson follows each update of the policy.
Before the first lesson, everything is worth 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from motif_jax.networks.reward import MessageClassifier
from motif_jax.rewards.model import make_reward_model
from motif_jax.rewards.moments import HostMoments
from motif_jax.rewards.online.pupil import Pupil, pad
from motif_jax.rewards.online.store import Store
from motif_jax.rewards.preference import pair_loss

CLIP = 10.0  # of the norm of ranking's gradients
SEED = 83  # so that these networks are not those of the policy


class Teaching(NamedTuple):
    """How a network is taught."""

    message: str  # encoder
    learning_rate: float
    batch_size: int
    lessons_early: int
    lessons_late: int
    switch_at: int
    seed: int


class TaughtKind:
    """What both kinds share: when lessons are given, and from which labels."""

    def __init__(self, teaching: Teaching, pupil: Pupil):
        """`pupil`: the network."""
        self._teaching, self._pupil = teaching, pupil

    def learn(self, store: Store, news: int, scores: HostMoments) -> None:
        """See `Kind`."""
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
        """The questions that lessons may be about. [Q]"""
        return store.answered

    def batch(self, store: Store, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays of a lesson about these questions. [Q], Q at most the batch size"""
        raise NotImplementedError

    def _fill(self, values: np.ndarray) -> np.ndarray:
        """Rows of zeros added up to the batch size."""
        found = np.zeros((self._teaching.batch_size, *values.shape[1:]), values.dtype)
        found[: len(values)] = values
        return found

    def forget(self) -> None:
        """See `Kind`: it knows what it was taught until it is taught otherwise."""

    def arrays(self) -> dict[str, Any]:
        """See `Kind`."""
        return self._pupil.arrays()

    def restore(self, arrays: Any) -> None:
        """See `Kind`."""
        self._pupil.restore(arrays)

    def figures(self) -> dict[str, float]:
        """See `Kind`."""
        return self._pupil.figures()


class Classification(TaughtKind):
    """A network says whether a caption is helpful, also of captions that the judge has not seen."""

    def __init__(self, teaching: Teaching, threshold: float):
        """`threshold`: probabilities above it are worth 1."""
        graph, params = nnx.split(MessageClassifier(teaching.message, rngs=nnx.Rngs(teaching.seed + SEED)), nnx.Param)
        self._threshold = threshold

        def scores(params: Any, messages: jax.Array) -> jax.Array:
            return jax.nn.softmax(nnx.merge(graph, params)(messages))[:, 1]

        def loss(params: Any, batch: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
            logits = nnx.merge(graph, params)(batch["messages"], key)
            log_p, weight = jax.nn.log_softmax(logits), batch["weight"]
            losses = -jnp.take_along_axis(log_p, batch["labels"][:, None], 1)[:, 0]
            right = (logits.argmax(-1) == batch["labels"]) * weight
            return (losses * weight).sum() / weight.sum(), {"sided": weight.sum(), "right": right.sum()}

        super().__init__(teaching, Pupil(params, scores, loss, optax.adam(teaching.learning_rate), teaching.seed))

    def known(self, store: Store) -> np.ndarray:
        """See `TaughtKind`: those with a label, or with an earlier reward's opinion."""
        return np.flatnonzero(store.labels >= 0)

    def batch(self, store: Store, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """See `TaughtKind`."""
        labels = (store.labels[chosen] > 0.5).astype(np.int32)
        messages = store.captions.messages[store.questions["first"][chosen]]
        weight = np.ones(len(chosen), np.float32)
        shown = pad(messages, self._teaching.batch_size)
        return {"messages": shown, "labels": self._fill(labels), "weight": self._fill(weight)}

    def view(self, store: Store) -> Any:
        """See `Kind`: the parameters; None before the first lesson."""
        return self._pupil.params if self._pupil.lessons else None

    def score(self, view: Any, messages: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """See `Kind`: the probability that a caption is helpful."""
        return np.zeros(len(messages), np.float32) if view is None else self._pupil.scores(view, messages)

    def worth(self, view: Any, scores: np.ndarray) -> np.ndarray:
        """See `Kind`."""
        return (scores > self._threshold).astype(np.float32)

    def doubt(self, store: Store, questions: np.ndarray) -> np.ndarray:
        """See `Kind`."""
        rows = store.questions["first"][questions]
        return 0.5 - np.abs(self.score(self.view(store), store.captions.messages[rows], rows) - 0.5)


class Ranked(NamedTuple):
    """What ranking's rewards are computed from."""

    params: Any
    seen: HostMoments  # scores of all steps


class Ranking(TaughtKind):
    """A network gives each caption a score, so that the better of two has the higher one."""

    def __init__(self, teaching: Teaching, floor: float, normalise: bool):
        """`floor`: normalised scores up to it are worth 0; `normalise` False: the score itself is the worth."""
        options = {"message": teaching.message, "blstats": False, "crop": False, "glyphs": False}
        apply, params = make_reward_model(options, teaching.seed + SEED)
        self._floor, self._normalise, self._seen = floor, normalise, HostMoments()

        def scores(params: Any, messages: jax.Array) -> jax.Array:
            return apply(params, {"message": messages})

        def loss(params: Any, batch: Mapping[str, Any], _: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
            rewards = scores(params, batch["messages"])[batch["shows"]]  # [B, 2]
            target, weight = batch["target"], batch["weight"]
            losses = pair_loss(rewards[..., None], target)
            sided = weight * (target != 0.5)
            right = sided * ((rewards[:, 1] > rewards[:, 0]) == (target > 0.5))
            return (losses * weight).sum() / weight.sum(), {"sided": sided.sum(), "right": right.sum()}

        optimizer = optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(teaching.learning_rate))
        super().__init__(teaching, Pupil(params, scores, loss, optimizer, teaching.seed))

    def batch(self, store: Store, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """See `TaughtKind`: each caption once, and which of them the pairs show."""
        pairs = np.stack([store.questions["first"][chosen], store.questions["second"][chosen]], 1)
        rows, shows = np.unique(pairs, return_inverse=True)
        return {
            "messages": pad(store.captions.messages[rows]),
            "shows": self._fill(shows.reshape(pairs.shape).astype(np.int32)),
            "target": self._fill(store.questions["label"][chosen]),
            "weight": self._fill(np.ones(len(chosen), np.float32)),
        }

    def start_from(self, params: Any, seen: HostMoments) -> None:
        """Begins with the parameters of another network of this form, and the moments of its scores."""
        self._pupil.start_from(params)
        self._seen = seen

    def learn(self, store: Store, news: int, scores: HostMoments) -> None:
        """See `Kind`."""
        self._seen = self._seen.merge(scores)
        super().learn(store, news, scores)

    def view(self, store: Store) -> Ranked | None:
        """See `Kind`; None before the first lesson."""
        return Ranked(self._pupil.params, self._seen) if self._pupil.lessons else None

    def score(self, view: Ranked | None, messages: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """See `Kind`."""
        return np.zeros(len(messages), np.float32) if view is None else self._pupil.scores(view.params, messages)

    def worth(self, view: Ranked | None, scores: np.ndarray) -> np.ndarray:
        """See `Kind`."""
        if view is None or not self._normalise:
            return scores
        z = view.seen.normalise(scores)
        return np.where(z > self._floor, z, 0.0).astype(np.float32)

    def doubt(self, store: Store, questions: np.ndarray) -> np.ndarray:
        """See `Kind`."""
        view = self.view(store)
        first, second = (
            self.score(view, store.captions.messages[rows], rows)
            for rows in (store.questions["first"][questions], store.questions["second"][questions])
        )
        return 0.5 - np.abs(1 / (1 + np.exp(first - second)) - 0.5)

    def arrays(self) -> dict[str, Any]:
        """See `Kind`."""
        return super().arrays() | {"seen": np.array(self._seen, np.float64)}

    def restore(self, arrays: Any) -> None:
        """See `Kind`."""
        self._seen = HostMoments(*np.asarray(arrays["seen"]).tolist())
        super().restore({name: array for name, array in arrays.items() if name != "seen"})

    def figures(self) -> dict[str, float]:
        """See `Kind`."""
        return super().figures() | {"score_mean": self._seen.mean, "score_std": self._seen.variance**0.5}

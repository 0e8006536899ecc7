"""The kinds of online rewards that turn a judge's labels into the worth of captions.

    retrieval        worth = 1 where the judge called the caption helpful, else 0 (ONI-Retrieval)
    classification   worth = 1 where P(helpful) > threshold, else 0       cross-entropy on the judge's labels
    ranking          p = sigma(score - s0); worth = 2p - 1 where p >= 0.6, else 0                 Bradley-Terry on pairs

s0 is the score of the neutral moment, which has no message; each caption is compared with it. Without `anchor`, pairs
of captions are compared, z = (score - mean) / sqrt(variance), and worth = z where z > floor, else 0. Mean and variance
are running moments of the scores of all steps. Without `normalise`, worth = score, as released.
Before the first lesson of classification and ranking, all captions are worth 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from motif_jax.networks.reward import MessageClassifier
from motif_jax.rewards.model import make_reward_model
from motif_jax.rewards.moments import HostMoments
from motif_jax.rewards.online.pupil import SEED, Pupil, TaughtKind, Teaching, pad
from motif_jax.rewards.online.store import NEUTRAL, Store
from motif_jax.rewards.preference import pair_loss
from motif_jax.rewards.source import Arrays


class OnlineKind(Protocol):
    """One way to reward captions."""

    def learn(self, store: Store, news: int, scores: HostMoments) -> None:
        """Learns from the store.

        `news`: number of new labels since the last call. `scores`: moments of the scores of all steps since then.
        """

    def view(self, store: Store) -> Any:
        """An immutable snapshot for `score` and `worth`."""

    def score(self, view: Any, messages: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Scores of distinct captions, from messages [D, 256] uint8 and rows [D] (-1: not in the store). -> [D]"""

    def worth(self, view: Any, scores: np.ndarray) -> np.ndarray:
        """The worth of captions with these scores, before the division by counts. [D] float32"""

    def doubt(self, store: Store, questions: np.ndarray) -> np.ndarray:
        """The uncertainty of the answer to each question, between 0 and 1/2. [Q]"""

    def forget(self) -> None:
        """Called when the goal changes and the labels are dropped."""

    def arrays(self) -> Arrays:
        """The learnt state, for checkpoints."""

    def restore(self, arrays: Any) -> None:
        """Restores the state that `arrays` returned."""

    def figures(self) -> dict[str, float]:
        """Figures since the last call."""


class Retrieval:
    """A caption is worth 1 if the judge has called it helpful, and 0 otherwise."""

    def __init__(self, threshold: float):
        """`threshold`: labels above it count as helpful; some judges give probabilities."""
        self._threshold = threshold
        self._view: np.ndarray | None = None

    def learn(self, store: Store, news: int, scores: HostMoments) -> None:
        """See `OnlineKind`: labels are looked up, so there is nothing to learn."""
        if news:
            self._view = None

    def view(self, store: Store) -> np.ndarray:
        """The worth of each caption in the store; the last entry, 0, is for row -1. [U + 1]"""
        if self._view is None or len(self._view) != len(store.captions) + 1:
            self._view = np.append(store.labels > self._threshold, False).astype(np.float32)
        return self._view

    def score(self, view: np.ndarray, messages: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return view[rows]

    def worth(self, view: np.ndarray, scores: np.ndarray) -> np.ndarray:
        return scores

    def doubt(self, store: Store, questions: np.ndarray) -> np.ndarray:
        """See `OnlineKind`: the answer for a caption without a label is fully uncertain."""
        return np.full(len(questions), 0.5)

    def forget(self) -> None:
        self._view = None

    def arrays(self) -> Arrays:
        return {}

    def restore(self, arrays: Any) -> None:
        self._view = None

    def figures(self) -> dict[str, float]:
        return {}


CLIP = 10.0  # maximum norm of ranking's gradients


class Classification(TaughtKind):
    """A network predicts whether a caption is helpful, also for captions that the judge has not seen."""

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
        """See `TaughtKind`: captions with a label, or with an earlier reward's opinion."""
        return np.flatnonzero(store.labels >= 0)

    def batch(self, store: Store, chosen: np.ndarray) -> dict[str, np.ndarray]:
        labels = (store.labels[chosen] > 0.5).astype(np.int32)
        messages = store.captions.messages[store.questions["first"][chosen]]
        weight = np.ones(len(chosen), np.float32)
        shown = pad(messages, self._teaching.batch_size)
        return {"messages": shown, "labels": self._fill(labels), "weight": self._fill(weight)}

    def view(self, store: Store) -> Any:
        """See `OnlineKind`: the parameters; None before the first lesson."""
        return self._pupil.params if self._pupil.lessons else None

    def score(self, view: Any, messages: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """See `OnlineKind`: the probability that a caption is helpful."""
        return np.zeros(len(messages), np.float32) if view is None else self._pupil.scores(view, messages)

    def worth(self, view: Any, scores: np.ndarray) -> np.ndarray:
        return (scores > self._threshold).astype(np.float32)

    def doubt(self, store: Store, questions: np.ndarray) -> np.ndarray:
        rows = store.questions["first"][questions]
        return 0.5 - np.abs(self.score(self.view(store), store.captions.messages[rows], rows) - 0.5)


class Ranked(NamedTuple):
    """The snapshot for ranking's rewards."""

    params: Any
    seen: HostMoments  # moments of the scores of all steps
    zero: float = 0.0  # score of the neutral moment, for rewards with an anchor


class Ranking(TaughtKind):
    """A network gives each caption a score; of two captions the better one has the higher score."""

    def __init__(self, teaching: Teaching, floor: float, normalise: bool):
        """`floor`: normalised scores up to it are worth 0. Without `normalise`, the worth is the score."""
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
        """See `TaughtKind`: each caption once, and the indices of each pair's captions."""
        pairs = np.stack([store.questions["first"][chosen], store.questions["second"][chosen]], 1)
        rows, shows = np.unique(pairs, return_inverse=True)
        return {
            "messages": pad(store.captions.messages[rows]),
            "shows": self._fill(shows.reshape(pairs.shape).astype(np.int32)),
            "target": self._fill(store.questions["label"][chosen]),
            "weight": self._fill(np.ones(len(chosen), np.float32)),
        }

    def start_from(self, params: Any, seen: HostMoments) -> None:
        """Begins with the parameters of another network of the same architecture, and the moments of its scores."""
        self._pupil.start_from(params)
        self._seen = seen

    def learn(self, store: Store, news: int, scores: HostMoments) -> None:
        self._seen = self._seen.merge(scores)
        super().learn(store, news, scores)

    def view(self, store: Store) -> Ranked | None:
        """See `OnlineKind`; None before the first lesson."""
        return Ranked(self._pupil.params, self._seen) if self._pupil.lessons else None

    def score(self, view: Ranked | None, messages: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.zeros(len(messages), np.float32) if view is None else self._pupil.scores(view.params, messages)

    def worth(self, view: Ranked | None, scores: np.ndarray) -> np.ndarray:
        if view is None or not self._normalise:
            return scores
        z = view.seen.normalise(scores)
        return np.where(z > self._floor, z, 0.0).astype(np.float32)

    def doubt(self, store: Store, questions: np.ndarray) -> np.ndarray:
        view = self.view(store)
        sides = (store.questions[name][questions] for name in ("first", "second"))
        first, second = (self.score(view, store.captions.messages[rows], rows) for rows in sides)
        return 0.5 - np.abs(1 / (1 + np.exp(first - second)) - 0.5)

    def arrays(self) -> dict[str, Any]:
        return super().arrays() | {"seen": np.array(self._seen, np.float64)}

    def restore(self, arrays: Any) -> None:
        self._seen = HostMoments(*np.asarray(arrays["seen"]).tolist())
        super().restore({name: array for name, array in arrays.items() if name != "seen"})

    def figures(self) -> dict[str, float]:
        return super().figures() | {"score_mean": self._seen.mean, "score_std": self._seen.variance**0.5}


SURE = 0.6  # P(better than the neutral moment) from which a caption is paid


class Anchored(Ranking):
    """Ranking that pays a caption for being better than the neutral moment, which has no message."""

    def __init__(self, teaching: Teaching):
        super().__init__(teaching, 0.0, True)
        self._of: Any = None  # the parameters that scored the neutral moment
        self._zero = 0.0

    def view(self, store: Store) -> Ranked | None:
        """See `OnlineKind`: the neutral moment is scored once per snapshot. None before the first lesson."""
        found = super().view(store)
        if found is None:
            return None
        if found.params is not self._of:
            self._zero, self._of = float(self._pupil.scores(found.params, NEUTRAL)[0]), found.params
        return found._replace(zero=self._zero)

    def worth(self, view: Ranked | None, scores: np.ndarray) -> np.ndarray:
        if view is None:
            return scores
        worth = np.tanh((scores.astype(np.float64) - view.zero) / 2)  # 2p - 1
        return np.where(worth >= 2 * SURE - 1, worth, 0.0).astype(np.float32)

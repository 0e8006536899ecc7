"""The kinds of online rewards that turn a judge's labels into the worth of captions.

    retrieval        worth = 1 where the judge called the caption helpful, else 0 (ONI-Retrieval)
    classification   worth = 1 where P(helpful) > threshold, else 0       cross-entropy on the judge's labels
    ranking          p = sigma(score - s0); worth = 2p - 1 where p >= 0.6, else 0                 Bradley-Terry on pairs

s0 is the score of the neutral moment, which has no message; each caption is compared with it. Without `anchor`, pairs
of captions are compared, z = (score - mean) / sqrt(variance), and worth = z where z > floor, else 0. Mean and variance
are running statistics of the scores of all steps. Without `normalise`, worth = score, as released.
Before the first update of classification and ranking, all captions are worth 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.networks.reward import MessageClassifier
from motif_jax.rewards.online.store import NEUTRAL, Store
from motif_jax.rewards.preference import make_reward_model, pair_loss
from motif_jax.rewards.section import is_anchored
from motif_jax.rewards.source import Arrays, Facts
from motif_jax.rewards.statistics import RunningStats
from motif_jax.structs import UserError


class OnlineKind:
    """The interface of the kinds, and the kind that only looks labels up."""

    def __init__(self, facts: Facts):
        """`facts`: see `source.make_facts`. Labels above `threshold` count as helpful; some are probabilities."""
        self._threshold = facts["threshold"]

    def learn(self, store: Store, new_labels: int, scores: RunningStats) -> None:
        """Learns from the store.

        `new_labels`: their number since the last call. `scores`: statistics of the scores of all steps since then.
        """

    def view(self, store: Store) -> Any:
        """An immutable snapshot for `score` and `worth`; here the worth of each caption, and 0 for row -1. [U + 1]"""
        return np.append(store.labels > self._threshold, False).astype(np.float32)

    def score(self, view: Any, messages: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Scores of distinct captions, from messages [D, 256] uint8 and rows [D] (-1: not in the store). -> [D]"""
        return view[rows]

    def worth(self, view: Any, scores: np.ndarray) -> np.ndarray:
        """The worth of captions with these scores, before the division by counts. [D] float32"""
        return scores

    def doubt(self, store: Store, questions: np.ndarray) -> np.ndarray:
        """The uncertainty of the answer to each question, between 0 and 1/2. [Q]"""
        return np.full(len(questions), 0.5)

    def arrays(self) -> Arrays:
        """The learnt state, for checkpoints."""
        return {}

    def restore(self, arrays: Any) -> None:
        """Restores that state."""

    def figures(self) -> dict[str, float]:
        """Metrics since the last call; raises UserError if a loss was not finite."""
        return {}


# ---- kinds with a network

LEAST, CHUNK = 64, 1024  # minimum and maximum number of captions per call, so that few shapes are compiled
SUMS = ("lessons", "loss", "gradient_norm", "sided", "right")  # `sided`: labels without ties; `right`: hits
Sums = dict[str, Any]
SEED = 83  # so that these networks differ from the policy's
Loss = Callable[[Any, Mapping[str, Any], jax.Array], tuple[jax.Array, Sums]]


OF_CONFIG = {"lessons_early": "updates_early", "lessons_late": "updates_late"}  # in checkpoints: in the config


class TrainingSettings(NamedTuple):
    """Values of the config for the training of a network."""

    message: str  # encoder
    learning_rate: float
    batch_size: int
    lessons_early: int
    lessons_late: int
    switch_at: int
    seed: int


class View(NamedTuple):
    """A network's snapshot; there is none before the first update."""

    params: Any
    stats: RunningStats  # of the scores of all steps
    zero: float  # score of the neutral moment, for rewards with an anchor


class NetworkKind(OnlineKind):
    """Base class of the kinds with a network, which learns from labels while the agent trains.

    Below `switch_at` labels, `lessons_early` updates follow whenever labels arrive; later, `lessons_late` updates
    follow each update of the policy. Flags, checkpoints and metrics call an update a lesson.

    The network is on one device of each host. With several hosts, all give their copies the same updates, so the copies
    stay equal without communication. Updates do not donate the old parameters, so a snapshot may still use them.
    """

    _stats, _zero = RunningStats(), 0.0  # of the `View`

    def __init__(self, facts: Facts, params: Any, scores: Callable[..., jax.Array], loss: Loss, optimizer: Any):
        """`scores`: (parameters, messages [D, W]) -> [D]. `loss`: returns the loss, and `sided` and `right` of SUMS."""
        super().__init__(facts)
        self._settings = settings = TrainingSettings(**facts["teaching"])
        self._state = {"params": params, "optimizer": optimizer.init(params)}
        self.updates = 0
        self._sums = dict.fromkeys(SUMS, np.float32(0))
        self._scores = jax.jit(scores)

        def update(state: Any, sums: Sums, batch: Mapping[str, Any], step: jax.Array) -> tuple[Any, Sums]:
            key = jax.random.fold_in(jax.random.key(settings.seed), step)
            (value, metrics), gradients = jax.value_and_grad(loss, has_aux=True)(state["params"], batch, key)
            updates, optimizer_state = optimizer.update(gradients, state["optimizer"], state["params"])
            metrics = metrics | {"lessons": 1.0, "loss": value, "gradient_norm": optax.tree.norm(gradients)}
            params = optax.apply_updates(state["params"], updates)
            return {"params": params, "optimizer": optimizer_state}, {name: sums[name] + metrics[name] for name in SUMS}

        self._update = jax.jit(update)

    def learn(self, store: Store, new_labels: int, scores: RunningStats) -> None:
        settings, labelled = self._settings, self.labelled(store)
        updates = settings.lessons_late
        if len(labelled) < settings.switch_at:
            updates = settings.lessons_early if new_labels else 0
        for _ in range(updates if len(labelled) else 0):
            rng = np.random.default_rng((settings.seed, SEED, self.updates))
            chosen = labelled
            if len(labelled) > settings.batch_size:
                chosen = rng.choice(labelled, settings.batch_size, replace=False)
            self.update(self.batch(store, chosen))

    def labelled(self, store: Store) -> np.ndarray:
        """The questions from which the network may learn. [Q]"""
        return store.answered

    def batch(self, store: Store, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays of an update about these questions [Q]; Q is at most the batch size."""
        raise NotImplementedError

    def _fill(self, values: np.ndarray) -> np.ndarray:
        """Pads with zeros to the batch size."""
        padded = np.zeros((self._settings.batch_size, *values.shape[1:]), values.dtype)
        padded[: len(values)] = values
        return padded

    def update(self, batch: Mapping[str, np.ndarray]) -> None:
        self._state, self._sums = self._update(self._state, self._sums, batch, np.int32(self.updates))
        self.updates += 1

    def view(self, store: Store) -> View | None:
        return View(self._state["params"], self._stats, self._zero) if self.updates else None

    def score(self, view: View | None, messages: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.zeros(len(messages), np.float32) if view is None else self.scores(view.params, messages)

    def scores(self, params: Any, messages: np.ndarray) -> np.ndarray:
        """The network's output for distinct captions, with the given parameters. [D, 256] uint8 -> [D]"""
        if not len(messages):
            return np.zeros(0, np.float32)
        parts = [messages[start : start + CHUNK] for start in range(0, len(messages), CHUNK)]
        return np.concatenate([np.asarray(self._scores(params, pad(part)))[: len(part)] for part in parts])

    def arrays(self) -> dict[str, Any]:
        return self._state | {"lessons": np.array([self.updates], np.int64)}

    def restore(self, arrays: Any) -> None:
        leaves = leaves_by_path({name: arrays.get(name, {}) for name in self._state})
        self._state = rebuild(self._state, leaves, Path("sources/online"), "--workdir")
        self.updates = int(np.asarray(arrays["lessons"])[0])

    def figures(self) -> dict[str, float]:
        """See `OnlineKind`: means over the updates."""
        sums = {name: float(value) for name, value in jax.device_get(self._sums).items()}
        self._sums = dict.fromkeys(SUMS, np.float32(0))
        metrics = {"lessons": float(self.updates)}
        if sums["lessons"]:
            if not np.isfinite(sums["loss"]):
                loss = f"the loss of the online reward is not finite after {self.updates:,} updates"
                raise UserError(f"{loss}: begin another --workdir, with a smaller --config.policy.online.learning_rate")
            metrics |= {name: sums[name] / sums["lessons"] for name in ("loss", "gradient_norm")}
            if sums["sided"]:
                metrics["accuracy"] = sums["right"] / sums["sided"]
        return metrics


def pad(messages: np.ndarray, rows: int = 0) -> np.ndarray:
    """Pads messages with zeros to one of few shapes. [K, 256] -> [K', W] uint8

    K' is `rows`, by default a power of two. W is a power of two: the columns behind it have only zeros.
    """
    used = np.flatnonzero(np.bitwise_or.reduce(messages, 0))
    width = min(power(used[-1] + 1 if len(used) else 1), messages.shape[1])
    padded = np.zeros((rows or power(len(messages)), width), np.uint8)
    padded[: len(messages)] = messages[:, :width]
    return padded


def power(number: int) -> int:
    """The next power of two, at least LEAST."""
    return max(LEAST, 1 << int(number - 1).bit_length())


class Classification(NetworkKind):
    """A network predicts whether a caption is helpful, also for captions that the judge has not seen."""

    def __init__(self, facts: Facts):
        teaching = facts["teaching"]
        network = MessageClassifier(teaching["message"], rngs=nnx.Rngs(teaching["seed"] + SEED))
        graph, params = nnx.split(network, nnx.Param)

        def scores(params: Any, messages: jax.Array) -> jax.Array:
            return jax.nn.softmax(nnx.merge(graph, params)(messages))[:, 1]

        def loss(params: Any, batch: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
            logits = nnx.merge(graph, params)(batch["messages"], key)
            log_p, weight = jax.nn.log_softmax(logits), batch["weight"]
            losses = -jnp.take_along_axis(log_p, batch["labels"][:, None], 1)[:, 0]
            right = (logits.argmax(-1) == batch["labels"]) * weight
            return (losses * weight).sum() / weight.sum(), {"sided": weight.sum(), "right": right.sum()}

        super().__init__(facts, params, scores, loss, optax.adam(teaching["learning_rate"]))

    def labelled(self, store: Store) -> np.ndarray:
        """See `NetworkKind`: captions with a label, or with an earlier reward's opinion."""
        return np.flatnonzero(store.labels >= 0)

    def batch(self, store: Store, chosen: np.ndarray) -> dict[str, np.ndarray]:
        messages = store.captions.messages[store.questions["first"][chosen]]
        return {
            "messages": pad(messages, self._settings.batch_size),
            "labels": self._fill((store.labels[chosen] > 0.5).astype(np.int32)),
            "weight": self._fill(np.ones(len(chosen), np.float32)),
        }

    def worth(self, view: View | None, scores: np.ndarray) -> np.ndarray:
        return (scores > self._threshold).astype(np.float32)

    def doubt(self, store: Store, questions: np.ndarray) -> np.ndarray:
        rows = store.questions["first"][questions]
        return 0.5 - np.abs(self.score(self.view(store), store.captions.messages[rows], rows) - 0.5)


CLIP = 10.0  # maximum norm of ranking's gradients
SURE = 0.6  # P(better than the neutral moment) from which a caption is paid


class Ranking(NetworkKind):
    """A network gives each caption a score; of two captions the better one has the higher score."""

    def __init__(self, facts: Facts):
        """`facts`: normalised scores up to `floor` are worth 0. Without `normalise`, the worth is the score."""
        teaching = facts["teaching"]
        apply, params = make_reward_model({"message": teaching["message"]}, teaching["seed"] + SEED)
        self._floor, self._normalise, self._anchored = facts["floor"], facts["normalise"], is_anchored(facts)
        self._scored_by: Any = None  # the parameters that scored the neutral moment

        def scores(params: Any, messages: jax.Array) -> jax.Array:
            return apply(params, {"message": messages})

        def loss(params: Any, batch: Mapping[str, Any], _: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
            rewards = scores(params, batch["messages"])[batch["shows"]]  # [B, 2]
            target, weight = batch["target"], batch["weight"]
            losses = pair_loss(rewards[..., None], target)
            sided = weight * (target != 0.5)
            right = sided * ((rewards[:, 1] > rewards[:, 0]) == (target > 0.5))
            return (losses * weight).sum() / weight.sum(), {"sided": sided.sum(), "right": right.sum()}

        optimizer = optax.chain(optax.clip_by_global_norm(CLIP), optax.adam(teaching["learning_rate"]))
        super().__init__(facts, params, scores, loss, optimizer)

    def batch(self, store: Store, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """See `NetworkKind`: each caption once, and the indices of each pair's captions."""
        pairs = np.stack([store.questions["first"][chosen], store.questions["second"][chosen]], 1)
        rows, shows = np.unique(pairs, return_inverse=True)
        return {
            "messages": pad(store.captions.messages[rows]),
            "shows": self._fill(shows.reshape(pairs.shape).astype(np.int32)),
            "target": self._fill(store.questions["label"][chosen]),
            "weight": self._fill(np.ones(len(chosen), np.float32)),
        }

    def start_from(self, params: Any, stats: RunningStats) -> None:
        """Begins with another network's parameters, which count as one update, and its scores' statistics."""
        self._state, self._stats = self._state | {"params": params}, stats
        self.updates = max(self.updates, 1)

    def learn(self, store: Store, new_labels: int, scores: RunningStats) -> None:
        self._stats = self._stats.merge(scores)
        super().learn(store, new_labels, scores)

    def view(self, store: Store) -> View | None:
        """See `OnlineKind`: with an anchor, the neutral moment is scored once per snapshot."""
        params = self._state["params"]
        if self._anchored and self.updates and params is not self._scored_by:
            self._zero, self._scored_by = float(self.scores(params, NEUTRAL)[0]), params
        return super().view(store)

    def worth(self, view: View | None, scores: np.ndarray) -> np.ndarray:
        if view is None or not self._normalise:
            return scores
        if self._anchored:
            worth = np.tanh((scores.astype(np.float64) - view.zero) / 2)  # 2p - 1
            return np.where(worth >= 2 * SURE - 1, worth, 0.0).astype(np.float32)
        z = view.stats.normalise(scores)
        return np.where(z > self._floor, z, 0.0).astype(np.float32)

    def doubt(self, store: Store, questions: np.ndarray) -> np.ndarray:
        view = self.view(store)
        sides = (store.questions[name][questions] for name in ("first", "second"))
        first, second = (self.score(view, store.captions.messages[rows], rows) for rows in sides)
        return 0.5 - np.abs(1 / (1 + np.exp(first - second)) - 0.5)

    def arrays(self) -> dict[str, Any]:
        return super().arrays() | {"seen": np.array(self._stats, np.float64)}

    def restore(self, arrays: Any) -> None:
        self._stats = RunningStats(*np.asarray(arrays["seen"]).tolist())
        super().restore(arrays)

    def figures(self) -> dict[str, float]:
        return super().figures() | {"score_mean": self._stats.mean, "score_std": self._stats.variance**0.5}

"""The loss of grpo and gigpo on games that the policy has just played by writing (arXiv 2402.03300, 2505.10978).

A row has one episode. Each token has its probability now, its probability when it was written, and an advantage A
relative to a group of episodes (learner/groups.py):

    ratio = p / p_written     loss = - mean min(ratio A, clip(ratio) A) + reference_coefficient * mean ratio KL

KL is the divergence from the policy at the start, by the estimate exp(d) - d - 1 with d = log p_start - log p (k3).
With the ratio, its gradient is that of the divergence (arXiv 2512.02556).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from motif_jax.devices.mesh import total
from motif_jax.offline import losses
from motif_jax.offline.batch import Sums, TranscriptBatch, Weights, in_chunks, masked_sum, next_tokens
from motif_jax.offline.offline_settings import GroupLearning
from motif_jax.offline.update import Objective
from motif_jax.offline.values import ModelFunctions, Params

LARGEST = 20.0  # limit of the absolute logarithm of a ratio, to avoid overflow
BATCH = "batch"  # name of the count that divides the sums, which is 1: weights are those of a mean


def restricted(language: ModelFunctions, allowed: jax.Array, temperature: float) -> ModelFunctions:
    """The language model with the logits of sampling: only allowed tokens, at a temperature."""

    def logits(params: Params, hidden: jax.Array) -> jax.Array:
        return jnp.where(allowed, language.logits(params, hidden) / temperature, -jnp.inf)

    return language._replace(logits=logits)


def group_objective(language: ModelFunctions, group: GroupLearning, chunk: int) -> Objective:
    """The objective of grpo and gigpo, for a `restricted` model; `chunk`: tokens whose logits are kept at a time."""
    return Objective(
        lambda weights, batch: group_terms(language, group, chunk, weights, batch),
        lambda batch: {BATCH: 1 / total(jnp.ones(()))},
        lambda name: BATCH,
        {"group": 1.0} | ({"reference": group.reference_coefficient} if group.reference_coefficient else {}),
    )


def group_terms(
    language: ModelFunctions, group: GroupLearning, chunk: int, weights: Weights, batch: TranscriptBatch
) -> Sums:
    """Sums the loss and metrics over a batch. [] each"""
    rows, play = batch.rows, batch.play
    action, counted = next_tokens(rows), play.weight > 0

    def read(params: Params) -> tuple[jax.Array, jax.Array]:
        def log_probs(hidden: jax.Array, action: jax.Array) -> Any:
            logits = language.logits(params, hidden)
            odds = jax.lax.stop_gradient(jax.nn.log_softmax(logits))
            entropy = -jnp.where(odds > -jnp.inf, jnp.exp(odds) * odds, 0.0).sum(-1)
            return -losses.cross_entropy(logits, action), entropy

        hidden = language.hidden(params, rows.tokens, rows.segments, None)
        log_prob, entropy = in_chunks(log_probs, chunk)(hidden, action)
        return log_prob, entropy

    log_now, entropy = read(weights.policy)
    apart = jnp.where(counted, log_now - play.log_written, 0.0)
    if group.ratio == "episode":
        length = jnp.maximum(counted.sum(1, keepdims=True), 1)
        apart = jnp.broadcast_to(apart.sum(1, keepdims=True) / length, apart.shape)
    ratio = jnp.exp(jnp.clip(apart, -LARGEST, LARGEST))
    clipped = jnp.clip(ratio, 1 - group.clip_low, 1 + (group.clip_high or group.clip_low))
    surrogate = jnp.minimum(ratio * play.advantage, clipped * play.advantage)

    def mean(values: jax.Array) -> jax.Array:
        return masked_sum(jnp.where(counted, values, 0.0) * play.weight, counted)

    sums = {
        "group": -mean(surrogate),
        "ratio_deviation": mean(jnp.abs(ratio - 1)),
        "clipped": mean(ratio != clipped),
        "entropy": mean(entropy),
    }
    if group.reference_coefficient:
        log_start, _ = read(weights.given["reference"])
        ahead = jnp.where(counted, jax.lax.stop_gradient(log_start) - log_now, 0.0)
        sums["reference"] = mean(ratio * (jnp.exp(ahead) - ahead - 1))
    return sums

"""Losses of values of whole replies on a given model's features (CHAI, arXiv 2204.08426)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from motif_jax.offline import losses, mdp
from motif_jax.offline.batch import Batch, Sums, Weights, masked_sum
from motif_jax.offline.settings import Settings
from motif_jax.offline.values import Language, apply_head, least


def reply_terms(language: Language, settings: Settings, weights: Weights, batch: Batch) -> Sums:
    """Sums the losses of CHAI's Q, a function of the mean of a given model's hidden states."""
    rows, replies = batch.rows, batch.replies
    steps = mdp.utterance_steps(rows, followed=True)
    policy = jax.lax.stop_gradient(weights.policy)
    hidden = language.hidden(policy, rows.tokens, rows.segments, None).astype(jnp.float32)
    first = mdp.first_of_segment(rows.segments)
    places = jnp.arange(rows.tokens.shape[1])
    before = jnp.pad(jnp.cumsum(hidden, 1), ((0, 0), (1, 0), (0, 0)))
    since = jnp.take_along_axis(before, first[..., None], 1)
    feature = (before[:, 1:] - since) / (places - first + 1)[..., None]  # [B, T, width]

    # ---- the sampled replies of each utterance, and of the next
    said = jnp.pad(rows.closes, ((0, 0), (1, 0)))[:, :-1]
    number = jnp.clip(jnp.cumsum(said, 1) - 1, 0, replies.log_probs.shape[1] - 1)  # of the utterance that ends there
    target = least([apply_head(head, replies.features)[..., 0] for head in weights.target["q"]])  # [B, K, n]
    best = jnp.take_along_axis(target.max(-1), number, 1)  # [B, T]
    following = jnp.take_along_axis(best, steps.next_step, 1)
    y = losses.bootstrap(
        steps.reward / settings.reward_scale, jnp.float32(steps.terminal), following, settings.discount
    )
    sums: Sums = {"q": jnp.zeros(()), "conservative": jnp.zeros(()), "q_mean": jnp.zeros(())}
    density = -language.width * math.log(2.0)
    for head in weights.learnt["q"]:
        q = apply_head(head, feature)[..., 0]
        at_replies, at_random = (
            jnp.take_along_axis(apply_head(head, array)[..., 0], number[..., None], 1)
            for array in (replies.features, replies.random)
        )
        log_probs = jnp.take_along_axis(replies.log_probs, number[..., None], 1)
        sums["q"] += masked_sum(losses.squared_loss(q, y), steps.mask)
        sums["conservative"] += masked_sum(
            losses.replies_loss(q, at_replies, log_probs, at_random, density), steps.mask
        )
        sums["q_mean"] += masked_sum(q, steps.mask) / len(weights.learnt["q"])
    return sums

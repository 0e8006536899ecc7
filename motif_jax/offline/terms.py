"""The objective of an algorithm on a batch: sums over decisions, and their counts.

Sums and counts instead of means, so that a batch split over devices or parts has the same loss. A term's mean is its
sum over all parts, divided by its count over all parts.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from motif_jax.offline import losses, mdp
from motif_jax.offline.batch import Batch, Sums, Weights, in_chunks, masked_sum, next_tokens
from motif_jax.offline.recipes import Recipe
from motif_jax.offline.settings import Settings
from motif_jax.offline.value_terms import other_losses, reply_terms, steps_of, value_terms
from motif_jax.offline.values import Language, condition
from motif_jax.transcripts.render import Rows

STEPS: str = "steps"
LEARNT: str = "learnt"
TOKENS: str = "tokens"  # counts: decisions with values, tokens cloned, all tokens but the first of each episode


def count(recipe: Recipe, batch: Batch) -> Sums:
    """Returns the divisors of the sums of `sum_terms`."""
    rows = batch.rows
    segments = jnp.asarray(rows.segments)
    predicted = (segments[:, 1:] > 0) & (segments[:, 1:] == segments[:, :-1])  # all but the first of each episode
    found = {TOKENS: predicted.sum(), LEARNT: rows.is_action.sum()}
    if recipe.values:
        found[STEPS] = steps_of(recipe, rows).mask.sum()
    return {name: jnp.float32(number) for name, number in found.items()}


def weights_of(recipe: Recipe, settings: Settings) -> dict[str, tuple[float, str]]:
    """Returns each term's weight in the loss and the name of its count."""
    found: dict[str, tuple[float, str]] = {}
    if recipe.policy:
        found["policy"] = (settings.policy_weight, TOKENS if settings.mean_over_all_tokens else LEARNT)
    if recipe.values:
        found["q"] = (settings.q_weight, STEPS)
        if recipe.values != "reply":
            found["v"] = (settings.v_weight, STEPS)
        others = {"conservative": settings.conservative_weight, "margin": settings.margin_weight}
        found |= {name: (others[name], STEPS) for name in other_losses(recipe, settings)}
    return found


def divisor_of(name: str, recipe: Recipe, settings: Settings) -> str:
    """Returns the name of the count that divides a sum."""
    if name == "accuracy":
        return LEARNT
    return weights_of(recipe, settings).get(name, (0.0, STEPS))[1]


def sum_terms(language: Language, recipe: Recipe, settings: Settings, weights: Weights, batch: Batch) -> Sums:
    """Sums the terms of the loss and additional metrics over a batch, by name. [] each"""
    sums: Sums = {}
    advantage = None
    if recipe.values == "reply":
        sums |= reply_terms(language, settings, weights, batch)
    elif recipe.values:
        found = value_terms(language, recipe, settings, weights, batch.rows)
        sums, advantage = found.sums, found.advantage
    if recipe.policy:
        sums |= _policy_terms(language, recipe, settings, weights, batch.rows, advantage)
    return sums


def _policy_terms(
    language: Language, recipe: Recipe, settings: Settings, weights: Weights, rows: Rows, advantage: jax.Array | None
) -> Sums:
    added = None
    if recipe.conditioned:
        first = mdp.first_of_segment(rows.segments) == jnp.arange(rows.tokens.shape[1])
        returns = mdp.episode_returns(rows) / settings.reward_scale
        added = condition(weights.learnt["condition"], returns, first & (rows.segments > 0))
    policy, mask = weights.policy, rows.is_action

    def read(hidden: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = language.logits(policy, hidden)
        return losses.cross_entropy(logits, action), logits.argmax(-1) == action

    hidden = language.hidden(policy, rows.tokens, rows.segments, added)
    loss, right = in_chunks(read, settings.chunk)(hidden, next_tokens(rows))
    if recipe.policy == "advantage":
        assert advantage is not None
        known = steps_of(recipe, rows).mask
        if recipe.values == "utterance":  # all tokens of an utterance share its weight
            end = mdp.utterance_ends(rows)
            advantage, known = (jnp.take_along_axis(array, end, 1) for array in (advantage, known))
        if settings.advantage_sign:
            loss *= losses.sign_weight(advantage, settings.advantage_beta)
        else:
            loss *= losses.advantage_weight(advantage, settings.advantage_beta, settings.advantage_weight)
        mask = mask & known
    return {"policy": masked_sum(loss, mask), "accuracy": masked_sum(right, rows.is_action)}

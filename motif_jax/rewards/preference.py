"""Learning from preferences: the Bradley-Terry loss with soft labels (Motif, section 2.2), and its training step.

P(second is better) = softmax(r(first), r(second))[1], where r is the mean reward over the steps of a moment

loss = - (1 - p) log P(first is better) - p log P(second is better), p = 0, 1, 1/2 for a tie, or the annotator's own
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from motif_jax.devices.mesh import total
from motif_jax.rewards.batches import PairBatches

Apply = Callable[[Any, Mapping[str, jax.Array]], jax.Array]  # parameters, inputs of the model -> [K]


class Sums(NamedTuple):
    """Sums over the batches of an epoch, kept on the device."""

    pairs: jax.Array
    loss: jax.Array
    sided: jax.Array  # pairs with a preference
    right: jax.Array  # of these, those where the reward prefers the same side
    broken: jax.Array  # 1 + the first step after which loss or parameters were not finite; 0: none


class TrainState(NamedTuple):
    """Everything that a training step updates."""

    params: Any
    optimizer: Any
    sums: Sums


def zero_sums() -> Sums:
    """The sums at the start of an epoch."""
    return Sums(*(jnp.zeros(()) for _ in Sums._fields))


def pair_loss(rewards: jax.Array, target: jax.Array) -> jax.Array:
    """Cross-entropy loss of each pair. [B]

    Args:
      rewards: reward of each step of both moments. [B, 2, L]
      target: P(second is better). [B]
    """
    chex.assert_rank([rewards, target], [3, 1])
    log_p = jax.nn.log_softmax(rewards.mean(-1), -1)
    return -(1 - target) * log_p[:, 0] - target * log_p[:, 1]


def make_reward_update(apply: Apply, optimizer: optax.GradientTransformation) -> Callable[..., TrainState]:
    """Makes the training step, for `mesh.map_update`.

    Returns:
      `update(state, table, step, batches)`: trains on batch `step`. `table` is the text of every caption, [U, W] uint8;
      `batches` are those of an epoch, with n = 1 here.
    """

    def update(state: TrainState, table: jax.Array, step: jax.Array, batches: PairBatches) -> TrainState:
        batch: PairBatches = jax.tree.map(lambda array: array[step, 0], batches)
        inputs = batch.extra | {"message": table[batch.captions]}
        pairs = total(batch.weight.sum())

        def loss_of(params: Any) -> tuple[jax.Array, jax.Array]:
            rewards = apply(params, inputs)[batch.shows]  # [b, 2, L]
            losses = pair_loss(rewards, batch.target) * batch.weight
            return losses.sum() / pairs, rewards.mean(-1)

        (loss, rewards), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
        right = batch.sided * ((rewards[:, 1] > rewards[:, 0]) == (batch.target > 0.5))
        loss, gradients, sided, right = total((loss, gradients, batch.sided.sum(), right.sum()))
        old = state.sums
        updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in (loss, *jax.tree.leaves(params))]).all()
        broken = jnp.where((old.broken == 0) & ~finite, step + 1.0, old.broken)
        sums = Sums(old.pairs + pairs, old.loss + loss * pairs, old.sided + sided, old.right + right, broken)
        return TrainState(params, optimizer_state, sums)

    return update

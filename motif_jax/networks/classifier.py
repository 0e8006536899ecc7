"""A network that says of a message whether it is helpful (ONI-Classification)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.networks.layers import Linear
from motif_jax.networks.reward import MESSAGE_ENCODERS

DROPOUT = 0.1  # share of the last hidden units that a lesson leaves out


class MessageClassifier(nnx.Module):
    """The encoder of the reward model, two layers of 512, two numbers; with `lt_cnn` 471,554 parameters."""

    def __init__(self, message: str = "lt_cnn", *, rngs: nnx.Rngs):
        """`message`: one of MESSAGE_ENCODERS."""
        self.message = MESSAGE_ENCODERS[message](rngs=rngs)
        self.first, self.second = Linear(self.message.FEATURES, 512, rngs=rngs), Linear(512, 512, rngs=rngs)
        self.head = Linear(512, 2, rngs=rngs)

    def __call__(self, message: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Logits of "not helpful" and "helpful"; with a key, as in a lesson, with dropout. [B, W] -> [B, 2]"""
        hidden = jax.nn.relu(self.first(self.message(message)))
        hidden = jax.nn.relu(self.second(hidden))
        if key is not None:
            kept = jax.random.bernoulli(key, 1 - DROPOUT, hidden.shape)
            hidden = jnp.where(kept, hidden / (1 - DROPOUT), 0.0)
        return self.head(hidden)

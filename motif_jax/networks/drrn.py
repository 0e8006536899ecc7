"""Deep reinforcement relevance network (DRRN, He et al. 2016, arXiv 1511.04636): Q of a text and of an action's name.

Prompts and names share one embedding of words. One gated recurrent unit reads the prompt, another the name; a hidden
layer maps their final states to one number, Q(prompt, name).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from motif_jax.networks.core import Core


class Prepared(NamedTuple):
    """Values that depend only on the parameters, for V tokens and A actions."""

    projected: jax.Array  # input products of the prompt's unit for each token. [V, 3 * width]
    actions: jax.Array  # final state of each name. [A, width]


class RelevanceNetwork(nnx.Module):
    """Maps prompts to Q of all actions."""

    def __init__(self, num_tokens: int, width: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        """Initialises the parameters.

        Args:
          num_tokens: V, size of the vocabulary.
          width: of the embedding, the states, and the hidden layer.
          dtype: of products; parameters and results are float32.
          rngs: of the initialisation.
        """
        self.embedding = nnx.Param(jax.random.normal(rngs.params(), (num_tokens, width)))
        self.prompt_reader = Core(width, width, dtype=dtype, rngs=rngs)
        self.name_reader = Core(width, width, dtype=dtype, rngs=rngs)
        self.hidden = nnx.Linear(2 * width, width, dtype=dtype, rngs=rngs)
        self.last = nnx.Linear(width, 1, dtype=dtype, rngs=rngs)

    def prepare(self, names: jax.Array) -> Prepared:
        """Reads the names of the actions, [A, L] integers, padded with negative numbers."""
        embedding = self.embedding[...].astype(self.prompt_reader.dtype)
        of_names = self.name_reader.project(embedding)
        return Prepared(self.prompt_reader.project(embedding), _read(self.name_reader, of_names, names))

    def __call__(self, tokens: jax.Array, prepared: Prepared) -> jax.Array:
        """Computes Q of all actions.

        Args:
          tokens: of prompts, padded with negative numbers. [N, L] integers
          prepared: result of `prepare` for the same parameters.

        Returns:
          [N, A] float32
        """
        states = _read(self.prompt_reader, prepared.projected, tokens)  # [N, width]
        shape = (len(states), *prepared.actions.shape)
        both = jnp.broadcast_to(states[:, None], shape), jnp.broadcast_to(prepared.actions, shape)
        hidden = jax.nn.relu(self.hidden(jnp.concatenate(both, -1)))
        return self.last(hidden)[..., 0].astype(jnp.float32)


def _read(reader: Core, projected: jax.Array, tokens: jax.Array) -> jax.Array:
    """Returns the state after the last token; zero for an empty text. [V, 3 * width], [N, L] -> [N, width]"""
    count, length = tokens.shape
    inputs = projected[jnp.maximum(tokens, 0).T]  # [L, N, 3 * width]
    start = jnp.zeros((count, projected.shape[1] // 3))
    memories = reader.unroll(inputs, jnp.zeros((length, count), bool), start)
    read = (tokens >= 0).sum(1)  # [N]
    return jnp.where(read[:, None] > 0, memories[read - 1, jnp.arange(count)], 0)

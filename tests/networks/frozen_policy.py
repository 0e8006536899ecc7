"""A policy network with parameters that are not trained, and without recurrent state; built as `PolicyNetwork` is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

HIDDEN = 600


class Frozen(nnx.Variable):
    """A parameter that is not trained."""


class FrozenPolicy(nnx.Module):
    """Random features of the bottom line, which stay as they are, and two trained heads."""

    def __init__(self, preset: str, num_actions: int, *, dtype, specs, behaviours=0, rngs: nnx.Rngs):
        self.reads, self.core_size = ("blstats",), 0
        self.first = Frozen(jax.random.normal(rngs.params(), (27, HIDDEN)) / 5)
        self.second = Frozen(jax.random.normal(rngs.params(), (HIDDEN, HIDDEN)) / HIDDEN**0.5)
        self.heads = nnx.Param(jax.random.normal(rngs.params(), (HIDDEN, num_actions + 1)) / HIDDEN)

    def prepare(self):
        return self.first[...] @ self.second[...]

    def step(self, observations, first, core, prepared=None):
        logits, values = self._heads(observations, prepared)
        return logits, values, core

    def unroll(self, observations, first, core):
        return self._heads(observations)

    def _heads(self, observations, prepared=None):
        prepared = self.prepare() if prepared is None else prepared
        features = jnp.tanh(observations["blstats"].astype(jnp.float32) @ prepared)
        found = features @ self.heads[...]
        return found[..., :-1], found[..., -1]

"""The memory of the policies: a gated recurrent unit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from motif_jax.networks.layers import fan_in_uniform


class Core(nnx.Module):
    """PyTorch's gated recurrent unit: two biases, and the reset gate acts after the recurrent product.

    r, z = sigmoid(W_r x + b_r + U_r h + c_r), sigmoid(W_z x + b_z + U_z h + c_z)
    n = tanh(W_n x + b_n + r * (U_n h + c_n))
    h' = (1 - z) * n + z * h
    """

    def __init__(self, inputs: int, size: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        """Initialises weights and biases uniformly within 1 / sqrt(size); gates in the order r, z, n."""
        self.input_kernel = fan_in_uniform(rngs, (inputs, 3 * size), size)
        self.input_bias = fan_in_uniform(rngs, (3 * size,), size)
        self.kernel = fan_in_uniform(rngs, (size, 3 * size), size)
        self.bias = fan_in_uniform(rngs, (3 * size,), size)
        self.dtype = dtype

    def project(self, features: jax.Array) -> jax.Array:
        """Computes the products of the inputs, without the memory. [..., inputs] -> [..., 3 * size]"""
        kernel, bias = self.input_kernel[...].astype(self.dtype), self.input_bias[...].astype(self.dtype)
        return features @ kernel + bias

    def step(self, projected: jax.Array, first: jax.Array, core: jax.Array) -> jax.Array:
        """Computes one step; `first` resets the memory. [B, 3 * size], [B] and [B, size] float32 -> [B, size]"""
        core = jnp.where(first[:, None], 0, core)
        kernel, bias = self.kernel[...].astype(self.dtype), self.bias[...].astype(self.dtype)
        reset, update, new = jnp.split(projected.astype(jnp.float32), 3, -1)
        recalled = (core.astype(self.dtype) @ kernel + bias).astype(jnp.float32)
        reset_core, update_core, new_core = jnp.split(recalled, 3, -1)
        new = jnp.tanh(new + jax.nn.sigmoid(reset + reset_core) * new_core)
        return new + jax.nn.sigmoid(update + update_core) * (core - new)

    def unroll(self, projected: jax.Array, first: jax.Array, core: jax.Array) -> jax.Array:
        """Computes T steps. [T, B, 3 * size], [T, B] and [B, size] -> memory after each step, [T, B, size] float32"""

        def advance(core: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            core = self.step(*inputs, core)
            return core, core

        return jax.lax.scan(advance, core, (projected, first))[1]

"""The memory of the policies: a gated recurrent unit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from motif_jax.networks.images import fan_in_uniform

Weights = tuple[jax.Array, jax.Array]  # kernel [size, 3 * size] and bias [3 * size]


class Core(nnx.Module):
    """PyTorch's gated recurrent unit: two biases, and the reset gate acts after the recurrent product.

    r, z = sigmoid(W_r x + b_r + U_r h + c_r), sigmoid(W_z x + b_z + U_z h + c_z)
    n = tanh(W_n x + b_n + r * (U_n h + c_n))
    h' = (1 - z) * n + z * h
    """

    def __init__(self, inputs: int, size: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        """All weights and biases uniform within 1 / sqrt(size); gates in the order r, z, n."""
        self.input_kernel = fan_in_uniform(rngs, (inputs, 3 * size), size)
        self.input_bias = fan_in_uniform(rngs, (3 * size,), size)
        self.kernel = fan_in_uniform(rngs, (size, 3 * size), size)
        self.bias = fan_in_uniform(rngs, (3 * size,), size)
        self.dtype = dtype

    def project(self, features: jax.Array) -> jax.Array:
        """The inputs' share, which needs no memory. [..., inputs] -> [..., 3 * size]"""
        kernel, bias = self.input_kernel[...].astype(self.dtype), self.input_bias[...].astype(self.dtype)
        return features @ kernel + bias

    def step(self, projected: jax.Array, first: jax.Array, core: jax.Array) -> jax.Array:
        """One step, from nothing where an episode begins. [B, 3 * size], [B] and [B, size] float32 -> [B, size]"""
        core = forget(first, core)
        weights = self.kernel[...].astype(self.dtype), self.bias[...].astype(self.dtype)
        return _update(projected, _recall(weights, core), core)

    def unroll(self, projected: jax.Array, first: jax.Array, core: jax.Array) -> jax.Array:
        """Steps in a row. [T, B, 3 * size], [T, B] and [B, size] -> memory after each, [T, B, size] float32"""
        weights = self.kernel[...].astype(self.dtype), self.bias[...].astype(self.dtype)
        return _unroll(weights, projected, first, core)


def forget(first: jax.Array, core: jax.Array) -> jax.Array:
    """Nothing is remembered where an episode begins. [B] bool and [B, size] -> [B, size]"""
    return jnp.where(first[:, None], 0, core)


def _recall(weights: Weights, core: jax.Array) -> jax.Array:
    """The memory's share of the gates. [B, size] -> [B, 3 * size]"""
    kernel, bias = weights
    return core.astype(kernel.dtype) @ kernel + bias


def _update(projected: jax.Array, recalled: jax.Array, core: jax.Array) -> jax.Array:
    """New memory from both shares of the gates and the old one. [B, size] float32"""
    reset, update, new = jnp.split(projected.astype(jnp.float32), 3, -1)
    reset_core, update_core, new_core = jnp.split(recalled.astype(jnp.float32), 3, -1)
    new = jnp.tanh(new + jax.nn.sigmoid(reset + reset_core) * new_core)
    update = jax.nn.sigmoid(update + update_core)
    return new + update * (core - new)


@jax.custom_vjp
def _unroll(weights: Weights, projected: jax.Array, first: jax.Array, core: jax.Array) -> jax.Array:
    return _scan(weights, projected, jnp.zeros_like(projected), first, core)


def _scan(weights: Weights, projected: jax.Array, added: jax.Array, first: jax.Array, core: jax.Array) -> jax.Array:
    def advance(core: jax.Array, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        projected, added, first = inputs
        core = forget(first, core)
        core = _update(projected, _recall(weights, core) + added, core)
        return core, core

    return jax.lax.scan(advance, core, (projected, added, first))[1]


def _forward(weights: Weights, projected: jax.Array, first: jax.Array, core: jax.Array) -> tuple[jax.Array, Any]:
    # Left to itself, JAX adds up the kernel's gradient inside the loop, a matrix of its size at every step. So what is
    # differentiated is zeros that are added to the memory's share, and the kernel's gradient is one product afterwards.
    def run(projected: jax.Array, added: jax.Array, core: jax.Array) -> jax.Array:
        return _scan(weights, projected, added, first, core)

    cores, pull = jax.vjp(run, projected, jnp.zeros_like(projected), core)
    before = jax.vmap(forget)(first, jnp.concatenate([core[None], cores[:-1]]))
    return cores, (pull, before, weights)


def _backward(saved: Any, gradient: jax.Array) -> tuple[Weights, jax.Array, None, jax.Array]:
    pull, before, (kernel, _) = saved
    projected, recalled, core = pull(gradient)
    of_kernel = jnp.einsum("tbi,tbo->io", before.astype(kernel.dtype), recalled)
    return (of_kernel, recalled.sum((0, 1))), projected, None, core


_unroll.defvjp(_forward, _backward)

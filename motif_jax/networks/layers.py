"""Layers with the initialisation of the published networks: convolutions that skip the padding, a recurrent unit.

A message is padded with zeros to 256 bytes. In the padding, a layer computes the same vector at every place; a `Line`
holds this vector once, so that the work depends on the length of the text. The result is the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike


def fan_in_uniform(rngs: nnx.Rngs, shape: tuple[int, ...], inputs: int) -> nnx.Param:
    """Initialises weights or biases as PyTorch does: uniformly within 1 / sqrt(inputs)."""
    bound = 1 / math.sqrt(inputs)
    return nnx.Param(jax.random.uniform(rngs.params(), shape, minval=-bound, maxval=bound))


class OrthogonalLinear(nnx.Linear):
    """A linear layer with orthogonal weights of gain 1 and zero biases at the start."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        super().__init__(inputs, outputs, kernel_init=nnx.initializers.orthogonal(), rngs=rngs)


class Line(NamedTuple):
    """A batch of sequences of `length` vectors; from place W on, all vectors are equal."""

    x: jax.Array  # [B, W, C]: the beginning
    tail: jax.Array  # [C]: the vector at every place from W on
    length: int

    def reach(self, width: int) -> jax.Array:
        """Returns the first `width` places. [B, width, C]"""
        missing = width - self.x.shape[1]
        if missing <= 0:
            return self.x[:, :width]
        rest = jnp.broadcast_to(self.tail, (self.x.shape[0], missing, self.tail.shape[0]))
        return jnp.concatenate([self.x, rest], 1)


class Conv(nnx.Module):
    """A convolution along a line without padding, initialised as in PyTorch."""

    def __init__(self, inputs: int, outputs: int, width: int, *, rngs: nnx.Rngs):
        self.kernel = fan_in_uniform(rngs, (width, inputs, outputs), inputs * width)
        self.bias = fan_in_uniform(rngs, (outputs,), inputs * width)

    def __call__(self, line: Line) -> Line:
        """[B, W, inputs] -> [B, W', outputs], W' at most W."""
        kernel, bias = self.kernel[...], self.bias[...]
        width = kernel.shape[0]
        length = line.length - width + 1
        x = line.reach(min(line.x.shape[1], length) + width - 1)
        dimensions = ("NWC", "WIO", "NWC")
        y = jax.lax.conv_general_dilated(x, kernel, (1,), "VALID", dimension_numbers=dimensions)
        return Line(y + bias, line.tail @ kernel.sum(0) + bias, length)


def relu(line: Line) -> Line:
    """ReLU at every place."""
    return Line(jax.nn.relu(line.x), jax.nn.relu(line.tail), line.length)


def pool(line: Line) -> Line:
    """Takes the maximum of every three places; one or two remaining places are dropped."""
    length = line.length // 3
    width = min(-(-line.x.shape[1] // 3), length)
    x = line.reach(3 * width)
    return Line(x.reshape(x.shape[0], width, 3, -1).max(2), line.tail, length)


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

"""Layers with the initialisation of the published networks, and convolutions that skip the padding.

A message is padded with zeros to 256 bytes. In the padding, a layer computes the same vector at every place; a `Line`
holds this vector once, so that the work depends on the length of the text. The result is the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx


def fan_in_uniform(rngs: nnx.Rngs, shape: tuple[int, ...], inputs: int) -> nnx.Param:
    """Initialises weights or biases as PyTorch does: uniformly within 1 / sqrt(inputs)."""
    bound = 1 / math.sqrt(inputs)
    return nnx.Param(jax.random.uniform(rngs.params(), shape, minval=-bound, maxval=bound))


class Linear(nnx.Linear):
    """A linear layer with orthogonal weights of gain 1 and zero biases at the start."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        """inputs -> outputs."""
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
        """Initialises the kernel, [width, inputs, outputs], and the bias."""
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

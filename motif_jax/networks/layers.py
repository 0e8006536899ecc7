"""Layers with the initialisation of the published networks, and convolutions that skip what is the same everywhere.

A message is text and then zeros up to 256. Over the zeros every layer computes the same vector again and again; a
`Line` holds what differs and that vector once, so that the work goes with the length of the text and the result is
the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx


def fan_in_uniform(rngs: nnx.Rngs, shape: tuple[int, ...], inputs: int) -> nnx.Param:
    """PyTorch's initialisation of weights and biases: uniform within 1 / sqrt(inputs)."""
    bound = 1 / math.sqrt(inputs)
    return nnx.Param(jax.random.uniform(rngs.params(), shape, minval=-bound, maxval=bound))


class Linear(nnx.Linear):
    """Orthogonal weights of gain 1, no bias at the start."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        """inputs -> outputs."""
        super().__init__(inputs, outputs, kernel_init=nnx.initializers.orthogonal(), rngs=rngs)


class Line(NamedTuple):
    """A batch of sequences of `length` vectors, which are all the same vector from place W on."""

    x: jax.Array  # [B, W, C]: the beginning
    tail: jax.Array  # [C]: what stands at every place from W on
    length: int

    def reach(self, width: int) -> jax.Array:
        """The first `width` places. [B, width, C]"""
        missing = width - self.x.shape[1]
        if missing <= 0:
            return self.x[:, :width]
        rest = jnp.broadcast_to(self.tail, (self.x.shape[0], missing, self.tail.shape[0]))
        return jnp.concatenate([self.x, rest], 1)


class Conv(nnx.Module):
    """Convolution along a line without padding, at the initialisation that PyTorch gives it."""

    def __init__(self, inputs: int, outputs: int, width: int, *, rngs: nnx.Rngs):
        """Kernel [width, inputs, outputs]; weights and bias uniform within 1 / sqrt(inputs * width)."""
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
    """Maximum over every three places in a row; one or two places left over at the end are dropped."""
    length = line.length // 3
    width = min(-(-line.x.shape[1] // 3), length)
    x = line.reach(3 * width)
    return Line(x.reshape(x.shape[0], width, 3, -1).max(2), line.tail, length)

"""The picture around the hero to features: three convolutions and a layer, as published."""

from __future__ import annotations

import math

import jax
from flax import nnx
from jax.typing import DTypeLike

from motif_jax.networks.tiles import render

WHITE = 255


def fan_in_uniform(rngs: nnx.Rngs, shape: tuple[int, ...], inputs: int) -> nnx.Param:
    """PyTorch's initialisation of weights and biases: uniform within 1 / sqrt(inputs)."""
    bound = 1 / math.sqrt(inputs)
    return nnx.Param(jax.random.uniform(rngs.params(), shape, minval=-bound, maxval=bound))


class ImageLayer(nnx.Module):
    """Weights of a convolution without padding, at the initialisation that PyTorch gives it."""

    def __init__(self, inputs: int, outputs: int, side: int, stride: int, *, rngs: nnx.Rngs):
        """Kernel [side, side, inputs, outputs]."""
        self.kernel = fan_in_uniform(rngs, (side, side, inputs, outputs), side * side * inputs)
        self.bias = fan_in_uniform(rngs, (outputs,), side * side * inputs)
        self.stride = stride

    def __call__(self, x: jax.Array) -> jax.Array:
        """[N, S, S, inputs] -> [N, S', S', outputs], S' = (S - side) // stride + 1"""
        y = jax.lax.conv_general_dilated(
            x,
            self.kernel[...].astype(x.dtype),
            (self.stride, self.stride),
            "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return y + self.bias[...].astype(x.dtype)


class ImageEncoder(nnx.Module):
    """72 x 72 x 3 -> 17 x 17 x 32 -> 7 x 7 x 64 -> 3 x 3 x 128 -> 512."""

    FEATURES = 512
    CONVOLUTIONS = ((3, 32, 8, 4), (32, 64, 4, 2), (64, 128, 3, 2))  # inputs, outputs, side, stride
    FLAT = 3 * 3 * 128

    def __init__(self, *, dtype: DTypeLike, rngs: nnx.Rngs):
        """Computes in `dtype`."""
        self.convolutions = nnx.List([ImageLayer(*sizes, rngs=rngs) for sizes in self.CONVOLUTIONS])
        self.kernel = fan_in_uniform(rngs, (self.FLAT, self.FEATURES), self.FLAT)
        self.bias = fan_in_uniform(rngs, (self.FEATURES,), self.FLAT)
        self.dtype = dtype

    def __call__(self, crop: jax.Array) -> jax.Array:
        """Characters and colours [N, 2, 12, 12] uint8 -> [N, 512]"""
        with jax.named_scope("render"):
            x = render(crop).astype(self.dtype) / WHITE
        for convolution in self.convolutions:
            x = jax.nn.elu(convolution(x))
        x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)  # channel by channel
        return jax.nn.elu(x @ self.kernel[...].astype(self.dtype) + self.bias[...].astype(self.dtype))

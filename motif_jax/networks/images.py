"""Encodes the picture around the hero: three convolutions and a linear layer, as published.

An accelerator draws the picture and applies plain convolutions. Two changes make CPUs faster with the same result: the
first convolution is looked up (tiles.py) without drawing the picture; and the convolutions process a few frames at a
time, so that intermediate results stay in the cache. The backward pass looks up the first layer again instead of
storing it.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from motif_jax.networks.layers import fan_in_uniform
from motif_jax.networks.tiles import WHITE, look_up, render, tile_rows, tile_table

FRAMES = 32  # per pass through the convolutions on a CPU: 16 to 64 take the same time, more take longer

Weights = list[tuple[jax.Array, jax.Array]]  # kernels [side, side, inputs, outputs] and biases [outputs]


def elu(x: jax.Array) -> jax.Array:
    """Returns x, or exp(x) - 1 below zero; expm1 would take four times as long on CPUs."""
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0)) - 1)


class ImageEncoder(nnx.Module):
    """Encodes pictures: 72 x 72 x 3 -> 17 x 17 x 32 -> 7 x 7 x 64 -> 3 x 3 x 128 -> 512."""

    FEATURES = 512
    SIZES = ((3, 32, 8), (32, 64, 4), (64, 128, 3))  # inputs, outputs, side; strides as in STRIDES
    FLAT = 3 * 3 * 128

    def __init__(self, *, for_cpu: bool, dtype: DTypeLike, rngs: nnx.Rngs):
        """Initialises the layers, which compute in `dtype`; `for_cpu` chooses the fast computation for CPUs."""
        self.kernels: nnx.List[nnx.Param] = nnx.List()
        self.biases: nnx.List[nnx.Param] = nnx.List()
        for inputs, outputs, side in self.SIZES:
            fan_in = side * side * inputs
            self.kernels.append(fan_in_uniform(rngs, (side, side, inputs, outputs), fan_in))
            self.biases.append(fan_in_uniform(rngs, (outputs,), fan_in))
        self.kernel = fan_in_uniform(rngs, (self.FLAT, self.FEATURES), self.FLAT)
        self.bias = fan_in_uniform(rngs, (self.FEATURES,), self.FLAT)
        self.for_cpu, self.dtype = for_cpu, dtype

    def table(self) -> jax.Array | None:
        """Returns the table of the first convolution for CPUs, else None; it depends only on the parameters."""
        return tile_table(self.kernels[0][...].astype(self.dtype)) if self.for_cpu else None

    def __call__(self, crop: jax.Array, table: jax.Array | None = None) -> jax.Array:
        """Encodes characters and colours. [N, 2, 12, 12] uint8 -> [N, 512]

        `table`: result of `table`, if already computed; only for calls that are not differentiated.
        """
        pairs = zip(self.kernels, self.biases, strict=True)
        weights = [(kernel[...].astype(self.dtype), bias[...].astype(self.dtype)) for kernel, bias in pairs]
        if table is not None:
            x = _forward(weights, crop, table)[0]
        else:
            x = convolve_looked_up(weights, crop) if self.for_cpu else convolve(weights, crop)
        x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)  # channel by channel
        return elu(x @ self.kernel[...].astype(self.dtype) + self.bias[...].astype(self.dtype))


STRIDES = (4, 2, 2)
NAMES = ("NHWC", "HWIO", "NHWC")


def convolve(weights: Weights, crop: jax.Array) -> jax.Array:
    """Applies three convolutions with ELU to the picture. [N, 2, 12, 12] uint8 -> [N, 3, 3, 128]"""
    with jax.named_scope("render"):
        x = render(crop).astype(weights[0][0].dtype) / WHITE
    for (kernel, bias), stride in zip(weights, STRIDES, strict=True):
        strides = stride, stride
        x = elu(jax.lax.conv_general_dilated(x, kernel, strides, "VALID", dimension_numbers=NAMES) + bias)
    return x


@jax.custom_vjp
def convolve_looked_up(weights: Weights, crop: jax.Array) -> jax.Array:
    """Computes `convolve` with table look-ups; faster on CPUs."""
    return _forward(weights, crop)[0]


def _forward(weights: Weights, crop: jax.Array, table: jax.Array | None = None) -> tuple[jax.Array, Any]:
    first, second, third = _in_blocks(weights)
    with jax.named_scope("render"):
        table = tile_table(weights[0][0]) if table is None else table

    def chunk(crop: jax.Array) -> tuple[jax.Array, jax.Array]:
        y1 = _first(table, first[1], tile_rows(crop))
        y2 = elu(_product(y1, *second, 1))
        return y2, elu(_product(y2, *third, STRIDES[2]))

    _, (y2, y3) = jax.lax.scan(lambda _, crop: (None, chunk(crop)), None, in_pieces(crop))
    out = y3.reshape(-1, *y3.shape[2:])[: len(crop)]
    return out, (weights, crop, table, y2, y3)


def _backward(saved: Any, gradient: jax.Array) -> tuple[Weights, None]:
    weights, crop, table, y2, y3 = saved
    first, second, third = _in_blocks(weights)

    def chunk(sums: Any, inputs: tuple[jax.Array, ...]) -> tuple[Any, None]:
        crop, y2, y3, g3 = inputs
        rows = tile_rows(crop)
        y1 = _first(table, first[1], rows)
        _, pull = jax.vjp(functools.partial(_product, stride=STRIDES[2]), y2, *third)
        g2, *of_third = pull(g3 * _slope(y3))
        _, pull = jax.vjp(functools.partial(_product, stride=1), y1, *second)
        g1, *of_second = pull(g2 * _slope(y2))
        g1 = (g1 * _slope(y1)).astype(jnp.float32).reshape(*rows.shape[1:], -1)
        # One addition: XLA would copy the whole table for a second one.
        of_table = sums[0].at[rows].add(jnp.broadcast_to(g1, (len(rows), *g1.shape)))
        gradients = g1.reshape(-1, g1.shape[-1]).sum(0), *of_second, *of_third
        return (of_table, *(a + b for a, b in zip(sums[1:], gradients, strict=True))), None

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), (table, first[1], *second, *third))
    sums, _ = jax.lax.scan(chunk, zeros, (in_pieces(crop), y2, y3, in_pieces(gradient)))
    of_table, of_bias, *rest = (x.astype(gradient.dtype) for x in sums)
    (of_kernel,) = jax.linear_transpose(tile_table, weights[0][0])(of_table.astype(jnp.float32))
    in_blocks = [(of_kernel, of_bias), (rest[0], rest[1]), (rest[2], rest[3])]
    return jax.linear_transpose(_in_blocks, weights)(in_blocks)[0], None


convolve_looked_up.defvjp(_forward, _backward)


def _first(table: jax.Array, bias: jax.Array, rows: jax.Array) -> jax.Array:
    y = elu(look_up(table, rows).astype(bias.dtype) + bias)  # [N, 256, 32]
    return y.reshape(len(y), 8, 8, -1)


def _in_blocks(weights: Weights) -> Weights:
    """Rewrites the second convolution, 4 x 4 with stride 2, for blocks of 2 x 2 places: [2, 2, 128, 64], stride 1."""
    first, (kernel, bias), third = weights
    side, _, inputs, outputs = kernel.shape
    kernel = kernel.reshape(side // 2, 2, side // 2, 2, inputs, outputs).swapaxes(1, 2)
    return [first, (kernel.reshape(side // 2, side // 2, 4 * inputs, outputs), bias), third]


def _product(x: jax.Array, kernel: jax.Array, bias: jax.Array, stride: int) -> jax.Array:
    """Convolves by a matrix product, for which XLA uses all CPU cores. -> [N, H', W', outputs]"""
    side, _, inputs, outputs = kernel.shape
    rows, columns = x.shape[1] - side + 1, x.shape[2] - side + 1
    x = jax.lax.optimization_barrier(x)  # otherwise XLA recomputes x for each of its slices
    seen = [x[:, i : i + rows : stride, j : j + columns : stride] for i in range(side) for j in range(side)]
    return jnp.concatenate(seen, -1) @ kernel.reshape(side * side * inputs, outputs) + bias


class Convolution(nnx.Conv):
    """A convolution with zeros around the edges, by a matrix product on CPUs."""

    def __init__(self, inputs: int, outputs: int, side: int, stride: int = 1, *, for_cpu: bool, **values: Any):
        """Initialises the kernel, side x side; `values`: as for `nnx.Conv`."""
        super().__init__(inputs, outputs, (side, side), stride, padding="SAME", **values)
        self.side, self.stride, self.for_cpu = side, stride, for_cpu

    def __call__(self, inputs: jax.Array) -> jax.Array:  # type: ignore[override]
        """[N, H, W, inputs] -> [N, H / stride, W / stride, outputs], rounded up"""
        if not self.for_cpu:
            return super().__call__(inputs)
        assert self.bias is not None
        rows, columns = inputs.shape[1:3]
        missing = [max((-(-size // self.stride) - 1) * self.stride + self.side - size, 0) for size in (rows, columns)]
        around = [(0, 0), *((less // 2, less - less // 2) for less in missing), (0, 0)]
        x, kernel, bias = (value.astype(self.dtype) for value in (inputs, self.kernel[...], self.bias[...]))
        return _product(jnp.pad(x, around), kernel, bias, self.stride)


def _slope(y: jax.Array) -> jax.Array:
    """Returns the derivative of ELU given its value y."""
    return jnp.where(y > 0, 1, y + 1)


def in_pieces(x: jax.Array, at_least: int = 1) -> jax.Array:
    """Splits a batch into pieces, the last padded with zeros. [N, ...] -> [K, M, ...], M at most FRAMES"""
    count = max(at_least, -(-len(x) // FRAMES))
    size = -(-len(x) // count)
    padding = [(0, count * size - len(x))] + [(0, 0)] * (x.ndim - 1)
    return jnp.pad(x, padding).reshape(count, size, *x.shape[1:])

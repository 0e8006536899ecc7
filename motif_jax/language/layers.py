"""Layers of language models: linear maps, norms, positions, attention, MLPs. Kernels are [inputs, outputs]."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from motif_jax.language.config import LanguageConfig, Rotary


class Types(NamedTuple):
    """Types of a model's arrays."""

    compute: jnp.dtype = jnp.dtype(jnp.float32)  # hidden states, and the factors of products
    params: jnp.dtype = jnp.dtype(jnp.float32)

    @classmethod
    def trained(cls, dtype: str, low_rank: int) -> Self:
        """Trained parameters are float32; frozen ones, to which low-rank ones are added, have the type `dtype`."""
        return cls(jnp.dtype(dtype), jnp.dtype(dtype if low_rank else jnp.float32))


FLOAT32 = Types()


class Sight(NamedTuple):
    """Attention mask and positions of tokens. B may be 1 if all rows are equal."""

    mask: jax.Array  # [B, T, S] bool: T queries, S keys
    positions: jax.Array  # [B, T]
    key_positions: jax.Array  # [B, S]


KeysValues = tuple[jax.Array, jax.Array]  # [B, K, S, H] each
MASKED = -1e30  # logit of a masked key; its weight is 0 beside any other
ACTIVATION = {
    "relu": jax.nn.relu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "silu": jax.nn.silu,
}


class Linear(nnx.Module):
    """[..., inputs] -> [..., outputs]"""

    def __init__(self, inputs: int, outputs: int, bias: bool, types: Types, *, rngs: nnx.Rngs, gain: float = 1.0):
        """Initial weights are normal with standard deviation gain / sqrt(inputs)."""
        normal = nnx.initializers.normal(gain / math.sqrt(inputs))
        self.dtype = types.compute
        self.kernel = nnx.Param(normal(rngs.params(), (inputs, outputs), types.params))
        self.bias = nnx.Param(jnp.zeros(outputs, types.params)) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        y = x.astype(self.dtype) @ self.kernel[...].astype(self.dtype)
        return y if self.bias is None else y + self.bias[...].astype(self.dtype)


class Norm(nnx.Module):
    """Layer norm, or root-mean-square norm (without mean and bias), in float32."""

    def __init__(self, size: int, kind: str, epsilon: float, types: Types):
        self.epsilon, self.dtype = epsilon, types.compute
        self.scale = nnx.Param(jnp.ones(size, types.params))
        self.bias = nnx.Param(jnp.zeros(size, types.params)) if kind == "layer" else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., size] -> the same"""
        x = x.astype(jnp.float32)
        if self.bias is not None:
            x = x - x.mean(-1, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + self.epsilon)
        x = x * self.scale[...].astype(jnp.float32)
        if self.bias is not None:
            x = x + self.bias[...].astype(jnp.float32)
        return x.astype(self.dtype)


class MLP(nnx.Module):
    """down(act(up(x))), or gated: down(act(gate(x)) * up(x))"""

    def __init__(self, config: LanguageConfig, types: Types, *, rngs: nnx.Rngs):
        width, size, bias = config.width, config.mlp_size, config.mlp_bias
        self.activation = config.activation
        self.gate = Linear(width, size, bias, types, rngs=rngs) if config.gated else None
        self.up = Linear(width, size, bias, types, rngs=rngs)
        self.down = Linear(size, width, bias, types, rngs=rngs, gain=1 / math.sqrt(2 * config.layers))

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., width] -> the same"""
        act = ACTIVATION[self.activation]
        rows = x.reshape(-1, x.shape[-1])  # with a single token axis, XLA's gradients take half the time on a CPU
        inner = act(self.up(rows)) if self.gate is None else act(self.gate(rows)) * self.up(rows)
        return self.down(inner).reshape(x.shape)


class Attention(nnx.Module):
    """Softmax attention; groups of the `heads` query heads share `kv_heads` heads of keys and values."""

    def __init__(self, config: LanguageConfig, types: Types, *, rngs: nnx.Rngs):
        width, size, bias = config.width, config.head_size, config.attention_bias
        self.head_size = size
        # T5 does not divide by sqrt(head_size); its initial queries are smaller instead.
        relative = config.positions == "relative"
        self.scale = 1.0 if relative else size**-0.5
        gain = size**-0.5 if relative else 1.0
        self.q = Linear(width, config.heads * size, bias, types, rngs=rngs, gain=gain)
        self.k = Linear(width, config.kv_heads * size, bias, types, rngs=rngs)
        self.v = Linear(width, config.kv_heads * size, bias, types, rngs=rngs)
        self.o = Linear(
            config.heads * size, width, config.output_bias, types, rngs=rngs, gain=1 / math.sqrt(2 * config.layers)
        )
        self.q_norm = Norm(size, "rms", config.epsilon, types) if config.query_norm else None
        self.k_norm = Norm(size, "rms", config.epsilon, types) if config.query_norm else None

    def keys_values(self, x: jax.Array, turn: jax.Array | None = None) -> KeysValues:
        """Keys and values of tokens. [B, S, width] -> 2 x [B, K, S, H]"""
        keys, values = self._heads(self.k(x)), self._heads(self.v(x))
        return rotate(keys if self.k_norm is None else self.k_norm(keys), turn), values

    def __call__(
        self, x: jax.Array, pair: KeysValues, mask: jax.Array, bias: jax.Array | None, turn: jax.Array | None = None
    ) -> jax.Array:
        """Attends from T tokens to S tokens, whose keys and values are `pair`. [B, T, width] -> the same

        `mask`: whether a token attends to another. [B or 1, 1, T, S] bool. `bias`: added to the attention logits.
        [B or 1, N, T, S], or None. `turn`: rotary angles of x, see `rotary_turn`.
        """
        queries = self._heads(self.q(x))
        queries = rotate(queries if self.q_norm is None else self.q_norm(queries), turn)
        keys, values = (part.astype(queries.dtype) for part in pair)
        seen = attend(queries * self.scale, keys, values, mask, bias)
        return self.o(seen.swapaxes(1, 2).reshape(*x.shape[:-1], -1))

    def _heads(self, x: jax.Array) -> jax.Array:
        """[B, T, N * H] -> [B, N, T, H]"""
        return x.reshape(*x.shape[:-1], -1, self.head_size).swapaxes(1, 2)


def attend(
    queries: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array, bias: jax.Array | None
) -> jax.Array:
    """Softmax attention. The division by the sum of the weights comes last, on the smallest array.

    Queries are [B, N, T, H], as the result; keys and values are [B, K, S, H], each for a group of N / K heads.
    """
    rows, heads, length, size = queries.shape
    grouped = queries.reshape(rows, keys.shape[1], -1, size)  # queries that share keys
    logits = jnp.einsum("bkqh,bksh->bkqs", grouped, keys, preferred_element_type=jnp.float32)
    logits = logits.reshape(rows, heads, length, -1)
    logits = jnp.where(mask, logits if bias is None else logits + bias, MASKED)
    weights = jnp.exp(logits - jax.lax.stop_gradient(logits.max(-1, keepdims=True)))
    grouped = weights.astype(values.dtype).reshape(rows, keys.shape[1], -1, weights.shape[-1])
    seen = jnp.einsum("bkqs,bksh->bkqh", grouped, values, preferred_element_type=jnp.float32)
    return (seen.reshape(queries.shape) / weights.sum(-1, keepdims=True)).astype(values.dtype)


def rotary_turn(positions: jax.Array, size: int, rotary: Rotary) -> jax.Array:
    """Rotation angles of the pairs of numbers in a head. [B, T] -> [B, T, size / 2] float32"""
    frequencies = rotary.theta ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    if rotary.kind == "linear":
        frequencies /= rotary.factor
    if rotary.kind == "llama3":
        turns = rotary.old_length * frequencies / (2 * math.pi)  # in the longest context before the extension
        keep = jnp.clip((turns - rotary.low) / (rotary.high - rotary.low), 0, 1)
        frequencies *= keep + (1 - keep) / rotary.factor
    return positions[..., None].astype(jnp.float32) * frequencies


def rotate(x: jax.Array, turn: jax.Array | None) -> jax.Array:
    """Rotates the pairs (i, i + H/2) of each head. [B, N, T, H]"""
    if turn is None:
        return x
    cos, sin = jnp.cos(turn)[:, None], jnp.sin(turn)[:, None]
    one, other = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([one * cos - other * sin, other * cos + one * sin], -1).astype(x.dtype)


def relative_buckets(distance: jax.Array, both_ways: bool, buckets: int, max_distance: int) -> jax.Array:
    """T5's buckets of relative positions: exact when near, logarithmic when far (Raffel et al. 2020, section 2.1).

    Args:
      distance: position of the key minus position of the query. int
      both_ways: whether half of the buckets are for later tokens; otherwise these count as distance 0.
      buckets, max_distance: see `LanguageConfig`.
    """
    if both_ways:
        buckets //= 2
        first, distance = jnp.where(distance > 0, buckets, 0), jnp.abs(distance)
    else:
        first, distance = jnp.zeros_like(distance), jnp.maximum(-distance, 0)
    exact = buckets // 2
    # NumPy makes the table: compilers' logarithms differ in the last bit, which would move the border of a bucket.
    near = np.arange(max_distance + 1)
    share = np.log(np.maximum(near, 1).astype(np.float32) / np.float32(exact)) / np.float32(
        math.log(max_distance / exact)
    )
    far = np.minimum(exact + (share * np.float32(buckets - exact)).astype(np.int32), buckets - 1)
    return first + jnp.asarray(np.where(near < exact, near, far))[jnp.minimum(distance, max_distance)]

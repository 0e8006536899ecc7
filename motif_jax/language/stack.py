"""Stacked blocks of attention and MLP: the body of every model here.

The parameters of all blocks are stacked along a leading axis, and a scan runs over it. So the program's size and its
compile time do not grow with the number of blocks. The scan carries the cache, which each block updates in place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.language.config import LanguageConfig
from motif_jax.language.layers import MLP, Attention, KeysValues, Norm, Sight, Types, relative_buckets, rotary_turn

UNROLLED = 4  # stacks of up to four blocks are unrolled: a slightly longer, faster program


class Cache(NamedTuple):
    """Keys and values of all blocks, S slots each, and the place where one block writes."""

    pairs: KeysValues  # [blocks, B, K, S, H] each
    block: jax.Array  # number of the block. []
    at: jax.Array | int  # first slot to write

    def put(self, pair: KeysValues) -> tuple[KeysValues, KeysValues]:
        """Writes the block's new keys and values; returns the cache of all blocks, and of this block."""
        pairs = tuple(
            jax.lax.dynamic_update_slice(old, new[None].astype(old.dtype), (self.block, 0, 0, self.at, 0))
            for old, new in zip(self.pairs, pair, strict=True)
        )
        own = tuple(jax.lax.dynamic_index_in_dim(part, self.block, keepdims=False) for part in pairs)
        return (pairs[0], pairs[1]), (own[0], own[1])


class Memory(NamedTuple):
    """An encoder's output, to which a decoder attends."""

    mask: jax.Array  # [B, S] bool
    encoded: Any  # [B, S, width]; None if `pairs` is given
    pairs: KeysValues | None = None  # keys and values of each block, computed once: [blocks, B, K, S, H]


class Block(nnx.Module):
    """x + attention(norm(x)), the same with cross-attention if there is an encoder, and the same with the MLP."""

    def __init__(self, config: LanguageConfig, cross: bool, types: Types, *, rngs: nnx.Rngs):
        """`cross`: whether it also attends to an encoder's output."""

        def norm() -> Norm:
            return Norm(config.width, config.norm, config.epsilon, types)

        self.attention_norm, self.attention = norm(), Attention(config, types, rngs=rngs)
        self.cross_norm = norm() if cross else None
        self.cross = Attention(config, types, rngs=rngs) if cross else None
        self.mlp_norm, self.mlp = norm(), MLP(config, types, rngs=rngs)

    def __call__(
        self, x: jax.Array, sight: Sight, bias: jax.Array | None, turn: jax.Array | None,
        cache: Cache | None, memory: Memory | None,
    ) -> tuple[jax.Array, KeysValues | None]:  # fmt: skip
        """See `Stack.__call__`; `memory.pairs` belong to this block alone. Returns the cache of all blocks."""
        inner = self.attention_norm(x)
        pair, pairs = self.attention.keys_values(inner, turn), None
        if cache is not None:
            pairs, pair = cache.put(pair)
        x = x + self.attention(inner, pair, sight.mask[:, None], bias, turn)
        if self.cross is not None and self.cross_norm is not None:
            assert memory is not None
            pair = self.cross.keys_values(memory.encoded) if memory.pairs is None else memory.pairs
            x = x + self.cross(self.cross_norm(x), pair, memory.mask[:, None, None], None)
        return x + self.mlp(self.mlp_norm(x)), pairs


class Stack(nnx.Module):
    """Blocks and a norm at the end."""

    def __init__(
        self, config: LanguageConfig, num_blocks: int, types: Types, *,
        both_ways: bool = False, cross: bool = False, remat: bool = False, rngs: nnx.Rngs,
    ):  # fmt: skip
        """Makes the parameters.

        Args:
          config: the architecture.
          num_blocks: number of blocks.
          types: types of the arrays.
          both_ways: tokens also attend to later tokens, as in an encoder.
          cross: the blocks attend to an encoder's output.
          remat: recompute the inside of blocks for gradients instead of storing it: less memory, more time.
          rngs: for the initial parameters.
        """
        self.config, self.num_blocks, self.both_ways, self.remat = config, num_blocks, both_ways, remat

        @nnx.split_rngs(splits=num_blocks)
        @nnx.vmap
        def make(rngs: nnx.Rngs) -> Block:
            return Block(config, cross, types, rngs=rngs)

        self.blocks = make(rngs)
        self.norm = Norm(config.width, config.norm, config.epsilon, types)
        relative = config.positions == "relative"
        normal = nnx.initializers.normal(config.width**-0.5)
        shape = config.buckets, config.heads
        self.relative = nnx.Param(normal(rngs.params(), shape, types.params)) if relative else None

    def __call__(
        self, x: jax.Array, sight: Sight, memory: Memory | None = None, cache: KeysValues | None = None,
        at: jax.Array | int = 0,
    ) -> tuple[jax.Array, KeysValues | None]:  # fmt: skip
        """Hidden states of tokens.

        Args:
          x: embedded tokens. [B, T, width]
          cache: keys and values of S slots per block [blocks, B, K, S, H]. Those of `x` are written to it, then `x`
            attends to all of it. Without a cache, `x` attends to itself (S = T).
          at: first slot to write.

        Returns:
          The hidden states, after the norm [B, T, width], and the new cache.
        """
        bias, turn = self._bias(sight), None
        if self.config.positions == "rotary":
            turn = rotary_turn(sight.positions, self.config.head_size, self.config.rotary)
        graph, params = nnx.split(self.blocks)
        pairs = memory.pairs if memory is not None else None

        def run(carry: tuple[jax.Array, KeysValues | None], block: tuple) -> tuple[Any, None]:
            params, number, pair = block
            x, cache = carry
            own = None if memory is None else memory._replace(pairs=pair)
            to = None if cache is None else Cache(cache, number, at)
            return nnx.merge(graph, params)(x, sight, bias, turn, to, own), None

        body = jax.checkpoint(run, prevent_cse=False) if self.remat else run
        written_out = self.num_blocks <= UNROLLED and not self.remat
        blocks = params, jnp.arange(self.num_blocks), pairs
        (x, cache), _ = jax.lax.scan(body, (x, cache), blocks, unroll=self.num_blocks if written_out else 1)
        return self.norm(x), cache

    def remember(self, memory: Memory) -> Memory:
        """Computes each block's keys and values of an encoder's output, once for many tokens."""
        graph, params = nnx.split(self.blocks)

        def run(params: Any) -> KeysValues:
            cross = nnx.merge(graph, params).cross
            assert cross is not None
            return cross.keys_values(memory.encoded)

        pairs = jax.lax.map(run, params)
        return Memory(memory.mask, None, pairs)

    def empty_cache(self, num_rows: int, room: int, dtype: jnp.dtype) -> KeysValues:
        """An empty cache with `room` slots per row."""
        shape = self.num_blocks, num_rows, self.config.kv_heads, room, self.config.head_size
        return jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)

    def _bias(self, sight: Sight) -> jax.Array | None:
        """T5's bias by relative position, the same in all blocks. [B, N, T, S]"""
        if self.relative is None:
            return None
        config = self.config
        distance = sight.key_positions[:, None] - sight.positions[:, :, None]
        found = relative_buckets(distance, self.both_ways, config.buckets, config.max_distance)
        return self.relative[...].astype(jnp.float32)[found].transpose(0, 3, 1, 2)

"""Blocks of attention and MLP on top of each other: the body of every model here.

The parameters of all blocks are stacked, with a leading axis of blocks, and the blocks are a scan over that axis. So a
program is as long for 48 blocks as for five, and compiles as fast. A cache is carried from block to block, and each
writes its part of it in place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.language.config import LanguageConfig
from motif_jax.language.layers import MLP, Attention, KeysValues, Norm, Sight, Types, relative_buckets, rotary_turn

UNROLLED = 4  # stacks of up to so many blocks are written out: a program that is a little longer, and faster


class Cache(NamedTuple):
    """Keys and values of all blocks, S slots each, as one block writes to them."""

    pairs: KeysValues  # [blocks, B, K, S, H] each
    block: jax.Array  # its number. []
    at: jax.Array | int  # the first slot that is written

    def put(self, pair: KeysValues) -> tuple[KeysValues, KeysValues]:
        """Writes the block's new keys and values; returns those of all blocks, and all those of this one."""
        pairs = tuple(
            jax.lax.dynamic_update_slice(old, new[None].astype(old.dtype), (self.block, 0, 0, self.at, 0))
            for old, new in zip(self.pairs, pair, strict=True)
        )
        own = tuple(jax.lax.dynamic_index_in_dim(part, self.block, keepdims=False) for part in pairs)
        return (pairs[0], pairs[1]), (own[0], own[1])


class Memory(NamedTuple):
    """An encoder's output, at which a decoder looks."""

    mask: jax.Array  # [B, S] bool
    encoded: Any  # [B, S, width]; None where there are pairs
    pairs: KeysValues | None = None  # keys and values of each block, computed once: [blocks, B, K, S, H]


class Block(nnx.Module):
    """x + attention(norm(x)), then the same with attention to an encoder where there is one, then with the MLP."""

    def __init__(self, config: LanguageConfig, cross: bool, types: Types, *, rngs: nnx.Rngs):
        """`cross`: it looks at an encoder's output, too."""

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
        """See `Stack.__call__`; `memory.pairs` are of this block alone. Returns the cache of all blocks."""
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
          config: sizes and styles.
          num_blocks: how many.
          types: of numbers.
          both_ways: tokens also look at those after them: an encoder.
          cross: it looks at an encoder's output.
          remat: what is inside blocks is computed again for gradients instead of kept: less memory, more time.
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
          sight: what each of them may attend to.
          memory: an encoder's output.
          cache: keys and values of S slots in each block, at which `x` looks after its own were written there.
            [blocks, B, K, S, H]; without one, it looks at itself alone (S = T).
          at: the first slot that is written.

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
        """Computes what all blocks need of an encoder's output, once for many tokens."""
        graph, params = nnx.split(self.blocks)

        def run(params: Any) -> KeysValues:
            cross = nnx.merge(graph, params).cross
            assert cross is not None
            return cross.keys_values(memory.encoded)

        pairs = jax.lax.map(run, params)
        return Memory(memory.mask, None, pairs)

    def empty_cache(self, num_rows: int, room: int, dtype: jnp.dtype) -> KeysValues:
        """A cache for rows of `room` tokens at most."""
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

"""Stacked blocks of attention and MLP: the body of every model here.

The parameters of all blocks are stacked along a leading axis, and a scan runs over it. So the program's size and its
compile time do not grow with the number of blocks. The scan carries the cache, which each block updates in place; few
blocks are unrolled, and each has a cache of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.language.config import LanguageConfig
from motif_jax.language.layers import MLP, Attention, KeysValues, Norm, Sight, Types, relative_buckets, rotary_turn

UNROLLED = 4  # stacks of up to four blocks are unrolled: a slightly longer, faster program

# Keys and values of all blocks, [B, blocks, K, S, H] each; or of each block, [B, K, S, H], if blocks are unrolled: to
# take a block's part out of an array would copy it.
Cache = tuple[KeysValues, ...]


class Slot(NamedTuple):
    """The place in a cache where a block writes."""

    pairs: KeysValues  # of all blocks, or of this one
    block: jax.Array | int  # number of the block
    at: jax.Array | int  # the first slot to write

    def put(self, pair: KeysValues) -> tuple[KeysValues, KeysValues]:
        """Writes keys and values [B, K, T, H]; returns the new `pairs`, and those of this block."""
        shared = self.pairs[0].ndim == 5
        where = (0, self.block, 0, self.at, 0) if shared else (0, 0, self.at, 0)
        keys, values = (
            jax.lax.dynamic_update_slice(old, (new[:, None] if shared else new).astype(old.dtype), where)
            for old, new in zip(self.pairs, pair, strict=True)
        )
        if not shared:
            return (keys, values), (keys, values)
        own = [jax.lax.dynamic_index_in_dim(part, self.block, 1, keepdims=False) for part in (keys, values)]
        return (keys, values), (own[0], own[1])


class Memory(NamedTuple):
    """An encoder's output, to which a decoder attends."""

    mask: jax.Array  # [B, S] bool
    encoded: Any  # [B, S, width]; None if `pairs` is given
    pairs: KeysValues | None = None  # keys and values of each block, computed once: [B, blocks, K, S, H]


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
        slot: Slot | None, memory: Memory | None, shared: int = 0,
    ) -> tuple[jax.Array, KeysValues]:  # fmt: skip
        """See `Stack`; `memory.pairs` belong to this block alone. Returns `slot.pairs`, or the keys and values of x."""
        inner = self.attention_norm(x)
        pairs = pair = self.attention.keys_values(inner, turn)
        if slot is not None:
            pairs, pair = slot.put(pair)
        if shared:
            pair = with_shared(pair[0], shared), with_shared(pair[1], shared)
        x = x + self.attention(inner, pair, sight.mask[:, None], bias, turn)
        if self.cross is not None and self.cross_norm is not None:
            assert memory is not None
            pair = self.cross.keys_values(memory.encoded) if memory.pairs is None else memory.pairs
            x = x + self.cross(self.cross_norm(x), pair, memory.mask[:, None, None], None)
        return x + self.mlp(self.mlp_norm(x)), pairs


def with_shared(part: jax.Array, count: int) -> jax.Array:
    """Puts the first `count` slots of the first row before the slots of each row. [B, K, S, H]"""
    first = jnp.broadcast_to(part[:1, :, :count], (*part.shape[:2], count, part.shape[3]))
    return jnp.concatenate([first, part], 2)


class Stack(nnx.Module):
    """Blocks and a norm at the end."""

    def __init__(
        self, config: LanguageConfig, num_blocks: int, types: Types, *,
        both_ways: bool = False, cross: bool = False, remat: bool, rngs: nnx.Rngs,
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
        self.unrolled = num_blocks <= UNROLLED and not remat

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

    def __call__(self, x: jax.Array, sight: Sight, memory: Memory | None = None, shared: int = 0) -> jax.Array:
        """Hidden states, after the norm, of embedded tokens that attend to each other. [B, T, width] -> the same

        `shared`: the mask has that many more slots, at its beginning, which stand for the first ones of the first row.
        """
        return self._run(x, sight, memory, None, shared=shared)[0]

    def begin(self, x: jax.Array, sight: Sight, room: int) -> tuple[jax.Array, Cache]:
        """As `__call__`; also keeps keys and values, with `room` for those of more tokens."""
        hidden, cache = self._run(x, sight, None, None, keep=True)
        return hidden, jax.tree.map(lambda part: jnp.pad(part, [(0, 0)] * (part.ndim - 2) + [(0, room), (0, 0)]), cache)

    def read(
        self, x: jax.Array, sight: Sight, cache: Cache, at: jax.Array, memory: Memory | None = None
    ) -> tuple[jax.Array, Cache]:
        """Hidden states of tokens [B, T, width], which attend to the cache and are written to it from slot `at` on."""
        return self._run(x, sight, memory, cache, at)

    def _run(
        self, x: jax.Array, sight: Sight, memory: Memory | None, cache: Cache | None, at: jax.Array | int = 0,
        keep: bool = False, shared: int = 0,
    ) -> tuple[jax.Array, Cache]:  # fmt: skip
        """Returns hidden states, and the new cache; without a cache and with `keep`, one of the tokens of x."""
        bias, turn = self._bias(sight), None
        if self.config.positions == "rotary":
            turn = rotary_turn(sight.positions, self.config.head_size, self.config.rotary)
        graph, params = nnx.split(self.blocks)
        blocks = params, None if memory is None else jax.tree.map(lambda part: part.swapaxes(0, 1), memory.pairs)

        def run(x: jax.Array, block: tuple, slot: Slot | None) -> tuple[jax.Array, KeysValues]:
            own = None if memory is None else memory._replace(pairs=block[1])
            made: tuple[jax.Array, KeysValues] = nnx.merge(graph, block[0])(x, sight, bias, turn, slot, own, shared)
            return made

        if self.unrolled:
            found = []
            for number in range(self.num_blocks):
                slot = None if cache is None else Slot(cache[number], number, at)
                x, pairs = run(x, jax.tree.map(lambda leaf: leaf[number], blocks), slot)  # noqa: B023
                found.append(pairs)
            return self.norm(x), tuple(found)

        def step(carry: tuple[jax.Array, KeysValues | None], block: tuple) -> tuple[Any, KeysValues | None]:
            x, pairs = carry
            if pairs is not None:
                return run(x, block[0], Slot(pairs, block[1], at)), None
            x, made = run(x, block[0], None)
            return (x, None), made if keep else None

        body = jax.checkpoint(step, prevent_cse=False) if self.remat else step
        first = None if cache is None else cache[0]
        (x, new), made = jax.lax.scan(body, (x, first), (blocks, jnp.arange(self.num_blocks)))
        if keep:
            new = made[0].swapaxes(0, 1), made[1].swapaxes(0, 1)
        return self.norm(x), () if new is None else (new,)

    def remember(self, memory: Memory) -> Memory:
        """Computes each block's keys and values of an encoder's output, once for many tokens."""
        graph, params = nnx.split(self.blocks)

        def run(params: Any) -> KeysValues:
            cross = nnx.merge(graph, params).cross
            assert cross is not None
            return cross.keys_values(memory.encoded)

        keys, values = jax.lax.map(run, params)
        return Memory(memory.mask, None, (keys.swapaxes(0, 1), values.swapaxes(0, 1)))

    def empty_cache(self, num_rows: int, room: int, dtype: jnp.dtype) -> Cache:
        """An empty cache with `room` slots per row."""
        blocks = () if self.unrolled else (self.num_blocks,)
        empty = jnp.zeros((num_rows, *blocks, self.config.kv_heads, room, self.config.head_size), dtype)
        return ((empty, empty),) * (self.num_blocks if self.unrolled else 1)

    def _bias(self, sight: Sight) -> jax.Array | None:
        """T5's bias by relative position, the same in all blocks. [B, N, T, S]"""
        if self.relative is None:
            return None
        config = self.config
        distance = sight.key_positions[:, None] - sight.positions[:, :, None]
        found = relative_buckets(distance, self.both_ways, config.buckets, config.max_distance)
        return self.relative[...].astype(jnp.float32)[found].transpose(0, 3, 1, 2)

"""Language models: token ids in, hidden states and logits out.

Decoders and encoder-decoders have the same three methods, which scoring and generation use:

    read_tree(context, tree)     hidden states at the context's end and at every node of a tree of continuations
    begin(context, room)         reads a context into a cache that has room for more tokens
    read(reading, token)         reads one more token per row

A context consists of `tokens` and `segments`, both [B, L]. Tokens of one text have the same segment number, from 1 on;
0 is padding. A token's position is the number of earlier tokens that it attends to. So padding on either side, longer
rows, and several texts in a row (one segment each) do not change the result.

The parameters of all blocks are stacked along a leading axis, and a scan runs over it. So the program's size and its
compile time do not grow with the number of blocks. The scan carries the cache, which each block updates in place; few
blocks are unrolled, and each has a cache of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from motif_jax.language.config import LanguageConfig, Rotary
from motif_jax.language.packing import Places, lay

# ---- layers; kernels are [inputs, outputs]


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


# ---- blocks and models

UNROLLED = 4  # stacks of up to four blocks are unrolled: a slightly longer, faster program

# Keys and values of all blocks, [B, blocks, K, S, H] each; or of each block, [B, K, S, H], if blocks are unrolled: to
# take a block's part out of an array would copy it.
Cache = tuple[KeysValues, ...]


Slot = tuple[KeysValues, jax.Array | int, jax.Array | int]  # of all blocks, or of one; number of the block; first slot


def put(pair: KeysValues, pairs: KeysValues, block: jax.Array | int, at: jax.Array | int) -> tuple[KeysValues, ...]:
    """Writes a block's keys and values [B, K, T, H] to a `Slot`; returns the new `pairs`, and those of this block."""
    shared = pairs[0].ndim == 5
    where = (0, block, 0, at, 0) if shared else (0, 0, at, 0)
    keys, values = (
        jax.lax.dynamic_update_slice(old, (new[:, None] if shared else new).astype(old.dtype), where)
        for old, new in zip(pairs, pair, strict=True)
    )
    if not shared:
        return (keys, values), (keys, values)
    own = [jax.lax.dynamic_index_in_dim(part, block, 1, keepdims=False) for part in (keys, values)]
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
        """See `Stack`; `memory.pairs` belong to this block alone. Also returns the slot's pairs, or those of x."""
        inner = self.attention_norm(x)
        pairs = pair = self.attention.keys_values(inner, turn)
        if slot is not None:
            pairs, pair = put(pair, *slot)
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

        `both_ways`: tokens also attend to later tokens, as in an encoder. `cross`: the blocks attend to an encoder's
        output. `remat`: recompute the inside of blocks for gradients instead of storing it: less memory, more time.
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

    def __call__(
        self, x: jax.Array, sight: Sight, memory: Memory | None = None, cache: Cache | None = None,
        at: jax.Array | int = 0, keep: bool = False, shared: int = 0,
    ) -> tuple[jax.Array, Cache]:  # fmt: skip
        """Hidden states, after the norm, of embedded tokens that attend to each other, and the new cache.

        `cache`: the tokens also attend to it, and are written to it from slot `at` on. `keep`: without a cache, returns
        one of these tokens. `shared`: the mask has that many more slots, at its beginning, which stand for the first
        ones of the first row. [B, T, width] -> the same
        """
        config, bias, turn = self.config, None, None
        if self.relative is not None:  # T5's bias by relative position, the same in all blocks. [B, N, T, S]
            distance = sight.key_positions[:, None] - sight.positions[:, :, None]
            buckets = relative_buckets(distance, self.both_ways, config.buckets, config.max_distance)
            bias = self.relative[...].astype(jnp.float32)[buckets].transpose(0, 3, 1, 2)
        if config.positions == "rotary":
            turn = rotary_turn(sight.positions, config.head_size, config.rotary)
        graph, params = nnx.split(self.blocks)
        blocks = params, None if memory is None else jax.tree.map(lambda part: part.swapaxes(0, 1), memory.pairs)

        def run(x: jax.Array, block: tuple, slot: Slot | None) -> tuple[jax.Array, KeysValues]:
            own = None if memory is None else memory._replace(pairs=block[1])
            made: tuple[jax.Array, KeysValues] = nnx.merge(graph, block[0])(x, sight, bias, turn, slot, own, shared)
            return made

        if self.unrolled:
            caches = []
            for number in range(self.num_blocks):
                slot = None if cache is None else (cache[number], number, at)
                x, pairs = run(x, jax.tree.map(lambda leaf: leaf[number], blocks), slot)  # noqa: B023
                caches.append(pairs)
            return self.norm(x), tuple(caches)

        def step(carry: tuple[jax.Array, KeysValues | None], block: tuple) -> tuple[Any, KeysValues | None]:
            x, pairs = carry
            if pairs is not None:
                return run(x, block[0], (pairs, block[1], at)), None
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


class PrefixState(NamedTuple):
    """The state of a model after reading part of a text."""

    cache: Cache
    seen: jax.Array  # slots of the cache that hold a token. [B, S] bool
    at: jax.Array  # the next slot. []
    memory: Any = ()  # in an encoder-decoder: keys, values and mask of the encoder. [B, ...] each


def take_rows(tree: Any, index: jax.Array) -> Any:
    """Selects rows, possibly repeated, of all arrays but single numbers."""
    return jax.tree.map(lambda leaf: leaf[index] if leaf.ndim else leaf, tree)


def repeat_rows(tree: Any, times: int) -> Any:
    """Repeats each row of all arrays but single numbers, side by side."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, times, 0) if times > 1 and leaf.ndim else leaf, tree)


def causal_mask(segments: jax.Array) -> jax.Array:
    """Each token attends to itself and to the earlier tokens of its segment. [B, L] -> [B, L, L] bool"""
    length = segments.shape[1]
    return jnp.tril(jnp.ones((length, length), bool)) & same_segment(segments)


def same_segment(segments: jax.Array) -> jax.Array:
    """Whether two tokens belong to the same text. [B, L] -> [B, L, L] bool"""
    return (segments[:, :, None] == segments[:, None]) & (segments > 0)[:, None]


def sight_of(mask: jax.Array) -> Sight:
    """Adds positions to a causal mask. [B, T, T]"""
    positions = jnp.maximum(mask.sum(-1) - 1, 0)
    return Sight(mask, positions, positions)


class LanguageModel(nnx.Module):
    """Embedding and logits, which both kinds of models share."""

    positions: nnx.Param | None = None  # of a decoder, if they are learned

    def __init__(self, config: LanguageConfig, types: Types, *, rngs: nnx.Rngs):
        self.config, self.types = config, types
        # As published for relative and learned positions. For rotary ones this equals the published value at widths of
        # some thousands; small models need a larger one, or the blocks' outputs would drown the embeddings.
        deviation = {"relative": 1.0, "learned": 0.02, "rotary": config.width**-0.5}[config.positions]
        normal = nnx.initializers.normal(deviation)
        shape = config.vocabulary, config.width
        self.embedding = nnx.Param(normal(rngs.params(), shape, types.params))
        self.head = None if config.tied else Linear(config.width, config.vocabulary, False, types, rngs=rngs)

    def logits(self, hidden: jax.Array) -> jax.Array:
        """[..., width] -> [..., vocabulary] float32"""
        if self.config.scale_logits:
            hidden = hidden * self.config.width**-0.5
        kernel = self.embedding[...].T if self.head is None else self.head.kernel[...]
        dtype = self.types.compute
        return jnp.matmul(hidden.astype(dtype), kernel.astype(dtype), preferred_element_type=jnp.float32)

    def embed(self, tokens: jax.Array, positions: jax.Array) -> jax.Array:
        """[B, T] -> [B, T, width]"""
        x = self.embedding[...][tokens].astype(self.types.compute)
        return x if self.positions is None else x + self.positions[...][positions].astype(x.dtype)


class Decoder(LanguageModel):
    """A decoder-only model: GPT-2, Llama, Mistral, Qwen."""

    def __init__(self, config: LanguageConfig, types: Types = FLOAT32, remat: bool = False, *, rngs: nnx.Rngs):
        super().__init__(config, types, rngs=rngs)
        self.stack = Stack(config, config.layers, types, remat=remat, rngs=rngs)
        shape = config.max_positions, config.width
        normal = nnx.initializers.normal(0.02)
        learned = config.positions == "learned"
        self.positions = nnx.Param(normal(rngs.params(), shape, types.params)) if learned else None

    def __call__(self, tokens: jax.Array, segments: jax.Array, added: jax.Array | None = None) -> jax.Array:
        """Hidden states of all tokens; `added` [B, L, width] is added to the embedded ones. [B, L] -> [B, L, width]"""
        return self.stack(*self._see(tokens, causal_mask(segments), added))[0]

    def read_tree(
        self, tokens: jax.Array, segments: jax.Array, nodes: jax.Array, above: jax.Array, places: Places | None = None
    ) -> jax.Array:
        """Hidden states at the end of contexts [B, L], and at the nodes of a tree of continuations. [B, 1 + K, width]

        `nodes`: tokens of the tree. [B or 1, K]. `above`: ancestors of each node, itself included. [B or 1, K, K] bool.
        `places`: where contexts that are padded on the right share rows, all with the same tree; the result is the
        same. None: each context has a row.
        """
        if places is not None:
            packed, mask, slots = lay(tokens, (segments > 0).sum(1), nodes, above, places)
            sight = sight_of(mask)
            hidden, _ = self.stack(self.embed(packed, sight.positions), sight, shared=places.room)
            return hidden.reshape(-1, hidden.shape[-1])[slots]
        (num_rows, length), num_nodes = tokens.shape, nodes.shape[1]
        nodes = jnp.broadcast_to(nodes, (num_rows, num_nodes))
        above = jnp.broadcast_to(above, (num_rows, num_nodes, num_nodes))
        # Contexts do not attend to the tree; nodes attend to their context and their ancestors.
        context = jnp.pad(causal_mask(segments), ((0, 0), (0, 0), (0, num_nodes)))
        visible = jnp.broadcast_to((segments > 0)[:, None], (num_rows, num_nodes, length))
        mask = jnp.concatenate([context, jnp.concatenate([visible, above], 2)], 1)
        hidden, _ = self.stack(*self._see(jnp.concatenate([tokens, nodes], 1), mask))
        return jnp.concatenate([take_last(hidden[:, :length], segments), hidden[:, length:]], 1)

    def begin(
        self, tokens: jax.Array, segments: jax.Array, room: int, added: jax.Array | None = None
    ) -> tuple[PrefixState, jax.Array]:
        """Reads contexts [B, L] into a cache with room for more; also returns the last hidden states [B, width]."""
        x, sight = self._see(tokens, causal_mask(segments), added)
        hidden, cache = self.stack(x, sight, keep=True)
        cache = jax.tree.map(lambda part: jnp.pad(part, [(0, 0)] * (part.ndim - 2) + [(0, room), (0, 0)]), cache)
        seen = jnp.pad(segments > 0, ((0, 0), (0, room)))
        return PrefixState(cache, seen, jnp.int32(tokens.shape[1])), take_last(hidden, segments)[:, 0]

    def read(self, reading: PrefixState, token: jax.Array) -> tuple[PrefixState, jax.Array]:
        """Reads one token per row [B]; returns the new state and the hidden states [B, width]."""
        seen = reading.seen.at[:, reading.at].set(True)
        positions = seen.sum(1, keepdims=True) - 1
        sight = Sight(seen[:, None], positions, positions)
        x = self.embed(token[:, None], positions)
        hidden, cache = self.stack(x, sight, cache=reading.cache, at=reading.at)
        return PrefixState(cache, seen, reading.at + 1), hidden[:, 0]

    def read_branches(self, reading: PrefixState, tokens: jax.Array, above: jax.Array) -> jax.Array:
        """Hidden states of texts that all continue one text, packed as a tree of `tokens`. [1, K] -> [1, K, width]

        `reading`: of a single row, with room for K tokens. `above`: ancestors of each node, itself included; earlier
        nodes all. [1, K, K] bool
        """
        before = jnp.broadcast_to(reading.seen[:, None], (1, tokens.shape[1], reading.seen.shape[1]))
        sight = sight_of(jax.lax.dynamic_update_slice(before, above, (0, 0, reading.at)))
        return self.stack(self.embed(tokens, sight.positions), sight, None, reading.cache, reading.at)[0]

    def _see(self, tokens: jax.Array, mask: jax.Array, added: jax.Array | None = None) -> tuple[jax.Array, Sight]:
        """The inputs of the blocks: embedded tokens, and the tokens to which each attends."""
        sight = sight_of(mask)
        x = self.embed(tokens, sight.positions)
        return x if added is None else x + added.astype(x.dtype), sight


class EncoderDecoder(LanguageModel):
    """T5: an encoder reads the context; a decoder continues it, beginning with a start token."""

    def __init__(self, config: LanguageConfig, types: Types = FLOAT32, remat: bool = False, *, rngs: nnx.Rngs):
        super().__init__(config, types, rngs=rngs)
        self.encoder = Stack(config, config.encoder_layers, types, both_ways=True, remat=remat, rngs=rngs)
        self.decoder = Stack(config, config.layers, types, cross=True, remat=remat, rngs=rngs)

    def encode(self, tokens: jax.Array, segments: jax.Array) -> Memory:
        """Reads contexts. [B, L]"""
        # Only differences of positions matter. Sorting puts the tokens of each text side by side and padding last, so
        # one row of positions serves all rows. Cross-attention does not use positions, so it allows the new order.
        order = jnp.argsort(jnp.where(segments > 0, segments, jnp.iinfo(jnp.int32).max), axis=1, stable=True)
        tokens, segments = (jnp.take_along_axis(array, order, 1) for array in (tokens, segments))
        places = jnp.arange(tokens.shape[1])[None]
        sight = Sight(same_segment(segments), places, places)
        return Memory(segments > 0, self.encoder(self.embed(tokens, places), sight)[0])

    def __call__(
        self, tokens: jax.Array, segments: jax.Array, answers: jax.Array, answer_segments: jax.Array
    ) -> jax.Array:
        """Hidden states of the decoder, for contexts [B, L] and its own input [B, T], start token included."""
        return self._decode(self.encode(tokens, segments), answers, causal_mask(answer_segments))

    def read_tree(self, tokens: jax.Array, segments: jax.Array, nodes: jax.Array, above: jax.Array) -> jax.Array:
        """See `Decoder.read_tree`; the start token of the decoder stands for the context's end."""
        nodes = jnp.pad(nodes, ((0, 0), (1, 0)), constant_values=self.config.start)
        above = jnp.pad(above, ((0, 0), (1, 0), (0, 0)))  # the start token attends to no other node
        above = jnp.pad(above, ((0, 0), (0, 0), (1, 0)), constant_values=True)  # all nodes attend to it
        return self._decode(self.encode(tokens, segments), nodes, above)

    def begin(self, tokens: jax.Array, segments: jax.Array, room: int) -> tuple[PrefixState, jax.Array]:
        num_rows = len(tokens)
        mask, _, pairs = self.decoder.remember(self.encode(tokens, segments))
        blocks = () if self.decoder.unrolled else (self.config.layers,)
        shape = num_rows, *blocks, self.config.kv_heads, 1 + room, self.config.head_size
        empty = jnp.zeros(shape, self.types.compute)
        cache = ((empty, empty),) * (self.config.layers if self.decoder.unrolled else 1)
        reading = PrefixState(cache, jnp.zeros((num_rows, 1 + room), bool), jnp.int32(0), (pairs, mask))
        return self.read(reading, jnp.full(num_rows, self.config.start))

    def read(self, reading: PrefixState, token: jax.Array) -> tuple[PrefixState, jax.Array]:
        seen = reading.seen.at[:, reading.at].set(True)
        position = jnp.broadcast_to(reading.at, (1, 1))
        sight = Sight(seen[:, None], position, jnp.arange(seen.shape[1])[None])
        pairs, mask = reading.memory
        x, memory = self.embed(token[:, None], position), Memory(mask, None, pairs)
        hidden, cache = self.decoder(x, sight, memory, reading.cache, reading.at)
        return reading._replace(cache=cache, seen=seen, at=reading.at + 1), hidden[:, 0]

    def _decode(self, memory: Memory, tokens: jax.Array, mask: jax.Array) -> jax.Array:
        """Runs the decoder. A tree that all rows share is broadcast, because the rows differ in their contexts."""
        num_rows = len(memory.mask)
        sight = sight_of(mask)
        x = jnp.broadcast_to(self.embed(tokens, sight.positions), (num_rows, tokens.shape[1], self.config.width))
        return self.decoder(x, sight, memory)[0]


def take_last(hidden: jax.Array, segments: jax.Array) -> jax.Array:
    """Hidden states of the last token before padding. [B, L, width], [B, L] -> [B, 1, width]"""
    last = segments.shape[1] - 1 - jnp.argmax(segments[:, ::-1] > 0, 1)
    return jnp.take_along_axis(hidden, last[:, None, None], 1)


def make_language_model(
    config: LanguageConfig, types: Types = FLOAT32, remat: bool = False, seed: int | None = 0
) -> Decoder | EncoderDecoder:
    """A new model. If `seed` is None, parameters are shapes only."""
    make = functools.partial(EncoderDecoder if config.is_encoder_decoder else Decoder, config, types, remat)
    return nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))) if seed is None else make(rngs=nnx.Rngs(seed))


# ---- a decoder as functions of its parameters, for updates


class ModelFunctions(NamedTuple):
    """A language model, as functions of its parameters."""

    # (parameters, tokens [B, T], segments [B, T], addition to the embeddings: [B, T, width] or None) -> hidden
    # states [B, T, width]. Tokens attend to earlier tokens of their segment; segment 0 is padding.
    hidden: Callable[[Any, jax.Array, jax.Array, jax.Array | None], jax.Array]
    logits: Callable[[Any, jax.Array], jax.Array]  # (parameters, hidden [..., width]) -> [..., vocabulary] float32
    width: int
    vocabulary: int
    decoder: Callable[[Any], Decoder] | None = None  # to read token by token


def as_functions(graph: Any, config: LanguageConfig) -> ModelFunctions:
    """A decoder as functions of its parameters."""

    def decoder(params: Any) -> Any:
        return nnx.merge(graph, params)

    return ModelFunctions(
        lambda params, *inputs: decoder(params)(*inputs), lambda params, hidden: decoder(params).logits(hidden),
        config.width, config.vocabulary, decoder,
    )  # fmt: skip

"""DRRN policies: Q of a prompt and of an action's name (He et al. 2016, arXiv 1511.04636). Logits are Q.

Prompts and names share one embedding of words. One gated recurrent unit reads the prompt, another the name; a hidden
layer maps their final states to one number, Q(prompt, name). The value of a state is max Q.

A checkpoint stores, under `drrn` in the spec of its network: the content of tokenizer.json (`tokeniser`), the names of
the actions (`actions`), and the values of the section `policy.drrn`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from motif_jax.contrib.drrn.sections import DRRN, FLAG
from motif_jax.networks.kinds import PROMPT
from motif_jax.networks.layers import Core
from motif_jax.policies.language_policy import PADDING, encode_names, prompt_encoder
from motif_jax.tokens import tokeniser_from_text


class RelevanceNetwork(nnx.Module):
    """Maps prompts to Q of all actions."""

    def __init__(self, num_tokens: int, width: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.embedding = nnx.Param(jax.random.normal(rngs.params(), (num_tokens, width)))
        self.prompt_reader = Core(width, width, dtype=dtype, rngs=rngs)
        self.name_reader = Core(width, width, dtype=dtype, rngs=rngs)
        self.hidden = nnx.Linear(2 * width, width, dtype=dtype, rngs=rngs)
        self.last = nnx.Linear(width, 1, dtype=dtype, rngs=rngs)

    def prepare(self, names: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What depends on the parameters alone, for the names of actions, padded with negative numbers. [A, L]

        The input products of the prompt's unit for each token, [V, 3 * width], and each name's final state, [A, width].
        """
        embedding = self.embedding[...].astype(self.prompt_reader.dtype)
        of_names = self.name_reader.project(embedding)
        return self.prompt_reader.project(embedding), _read(self.name_reader, of_names, names)

    def __call__(self, tokens: jax.Array, prepared: tuple[jax.Array, jax.Array]) -> jax.Array:
        """Q of all actions, from prompts padded with negative numbers and the result of `prepare`. [N, L] -> [N, A]"""
        projected, actions = prepared
        states = _read(self.prompt_reader, projected, tokens)  # [N, width]
        shape = (len(states), *actions.shape)
        both = jnp.broadcast_to(states[:, None], shape), jnp.broadcast_to(actions, shape)
        hidden = jax.nn.relu(self.hidden(jnp.concatenate(both, -1)))
        return self.last(hidden)[..., 0].astype(jnp.float32)


def _read(reader: Core, projected: jax.Array, tokens: jax.Array) -> jax.Array:
    """Returns the state after the last token; zero for an empty text. [V, 3 * width], [N, L] -> [N, width]"""
    count, length = tokens.shape
    inputs = projected[jnp.maximum(tokens, 0).T]  # [L, N, 3 * width]
    start = jnp.zeros((count, projected.shape[1] // 3))
    memories = reader.unroll(inputs, jnp.zeros((length, count), bool), start)
    read = (tokens >= 0).sum(1)  # [N]
    return jnp.where(read[:, None] > 0, memories[read - 1, jnp.arange(count)], 0)


def drrn_policy_fields(spec: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
    """The fields of `model.Model` for a DRRN. If `seed` is None, parameters are shapes only."""
    own = spec[DRRN]
    tokeniser = tokeniser_from_text(own["tokeniser"])
    names = encode_names(tokeniser, own["actions"], "--config.env")
    actions = np.full((len(names), max(map(len, names))), PADDING, np.int32)
    for row, name in zip(actions, names, strict=True):
        row[: len(name)] = name
    prompts = prompt_encoder(tokeniser, own["max_tokens"], f"{FLAG}.max_tokens", full=True)
    smallest = np.int16 if tokeniser.size <= np.iinfo(np.int16).max else np.int32  # saves memory in the replay buffer

    def make() -> RelevanceNetwork:
        dtype, rngs = jnp.dtype(spec["dtype"]), nnx.Rngs(seed or 0)
        return RelevanceNetwork(tokeniser.size, own["width"], dtype=dtype, rngs=rngs)

    graph, params = nnx.split(nnx.eval_shape(make) if seed is None else make(), nnx.Param)

    def prepare(params: Any, frozen: Any) -> Any:
        return nnx.merge(graph, params).prepare(jnp.asarray(actions))

    def step(params: Any, frozen: Any, observations: Any, first: jax.Array, core: jax.Array, prepared: Any) -> Any:
        with jax.named_scope("drrn"):
            values = nnx.merge(graph, params)(observations["tokens"], prepared)
        return values, values.max(-1), core

    def unroll(params: Any, frozen: Any, observations: Any, first: jax.Array, core: jax.Array) -> Any:
        tokens = observations["tokens"]  # [T, B, L]
        flat = {"tokens": tokens.reshape(-1, tokens.shape[-1])}
        values, largest, _ = step(params, frozen, flat, first, core, prepare(params, frozen))
        return values.reshape(*tokens.shape[:2], -1), largest.reshape(tokens.shape[:2])

    def encode(observations: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {"tokens": prompts(observations).astype(smallest)}

    return {
        "params": params, "prepare": prepare, "step": step, "unroll": unroll, "reads": (PROMPT,), "core_size": 0,
        "num_actions": spec["num_actions"], "encode": encode,
    }  # fmt: skip

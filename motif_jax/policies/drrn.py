"""DRRN policies (networks/drrn.py) as functions of their parameters: logits are Q, the value is max Q.

A checkpoint stores, under `drrn` in the options of its model: the content of tokenizer.json (`tokeniser`), the names of
the actions (`actions`), and the values of `drrn_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from motif_jax.networks.drrn import RelevanceNetwork
from motif_jax.networks.kinds import DRRN, PROMPT
from motif_jax.policies.drrn_settings import FLAG
from motif_jax.policies.language_network import PADDING
from motif_jax.policies.prompts import Prompts, encode_names
from motif_jax.tokens import tokeniser_from_text


def drrn_policy_fields(options: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
    """The fields of `model.Model` for a DRRN.

    Args:
      options: network, num_actions, dtype, and `drrn`; see above.
      seed: for new parameters; None: parameters are shapes only.
    """
    own = options[DRRN]
    tokeniser = tokeniser_from_text(own["tokeniser"])
    names = encode_names(tokeniser, own["actions"], "--config.env")
    actions = np.full((len(names), max(map(len, names))), PADDING, np.int32)
    for row, name in zip(actions, names, strict=True):
        row[: len(name)] = name
    prompts = Prompts(tokeniser, own["max_tokens"], f"{FLAG}.max_tokens", whole=True)
    smallest = np.int16 if tokeniser.size <= np.iinfo(np.int16).max else np.int32  # saves memory in the replay buffer

    def make() -> RelevanceNetwork:
        dtype, rngs = jnp.dtype(options["dtype"]), nnx.Rngs(seed or 0)
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
        return {"tokens": prompts(observations)["tokens"].astype(smallest)}

    return {
        "params": params, "prepare": prepare, "step": step, "unroll": unroll, "reads": (PROMPT,), "core_size": 0,
        "num_actions": options["num_actions"], "encode": encode,
    }  # fmt: skip

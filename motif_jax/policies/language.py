"""Language models as policies, as functions of their parameters.

A checkpoint stores, under `language` in the options of its model: the architecture (`config`), the content of
tokenizer.json (`tokeniser`), the names of the actions (`actions`), and the values of `language_settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.language.adapt import add_low_rank
from motif_jax.language.config import from_record
from motif_jax.language.layers import Types
from motif_jax.language.model import Decoder, EncoderDecoder, make_language_model
from motif_jax.language.scoring import make_tree
from motif_jax.language.shards import sharding_rules
from motif_jax.networks.kinds import LANGUAGE, PROMPT
from motif_jax.policies.language_network import LanguagePolicy
from motif_jax.policies.language_settings import FLAG
from motif_jax.policies.prompts import Prompts, encode_names
from motif_jax.structs import UserError
from motif_jax.tokens import tokeniser_from_text

HEAD_PARTS = ("actor", "critic")  # parts of the network that are trained even if the language model is frozen


def language_policy_fields(
    options: Mapping[str, Any], seed: int | None, language: Decoder | EncoderDecoder | None = None
) -> dict[str, Any]:
    """The fields of `model.Model` for a language model.

    Args:
      options: network, num_actions, dtype, and `language`; see above.
      seed: for new parameters; None: parameters are shapes only.
      language: a pretrained model; None: a new one.
    """
    own = options[LANGUAGE]
    config, tokeniser = from_record(own["config"]), tokeniser_from_text(own["tokeniser"])
    names = encode_names(tokeniser, own["actions"])
    longest = own["max_tokens"] + max(map(len, names))
    if config.max_positions and longest > config.max_positions:
        raise UserError(
            f"prompts with the names of actions may have {longest:,} tokens, but this language model reads at most "
            f"{config.max_positions:,} ({FLAG}.max_tokens)"
        )
    tree = make_tree([names])
    prompts = Prompts(tokeniser, own["max_tokens"])
    types = types_of(options)

    def make() -> LanguagePolicy:
        new = make_language_model(config, types, own["remat"], seed=seed or 0) if language is None else language
        if own["lora_rank"]:
            new = _with_low_rank(new, own, (seed or 0) + 1)
        how = {name: own[name] for name in ("head", "formula", "hidden", "reference_heads") if name in own}
        return LanguagePolicy(new, options["num_actions"], rngs=nnx.Rngs((seed or 0) + 2), **how)

    network = nnx.eval_shape(make) if seed is None else make()
    graph, params, *rest = nnx.split(network, _is_trained(bool(own["lora_rank"])), ...)

    def read(params: Any, frozen: Any, tokens: jax.Array, chunk: int) -> tuple[jax.Array, jax.Array]:
        with jax.named_scope("language"):
            return nnx.merge(graph, params, frozen).in_chunks(tokens, tree, chunk)

    def step(params: Any, frozen: Any, observations: Any, first: jax.Array, core: jax.Array, _: Any) -> Any:
        return *read(params, frozen, observations["tokens"], 0), core

    def unroll(params: Any, frozen: Any, observations: Any, first: jax.Array, core: jax.Array) -> Any:
        tokens = observations["tokens"]  # [T, B, L]
        logits, values = read(params, frozen, tokens.reshape(-1, tokens.shape[-1]), own["chunk"])
        return logits.reshape(*tokens.shape[:2], -1), values.reshape(tokens.shape[:2])

    return {
        "params": params, "frozen": rest[0], "prepare": lambda params, frozen: (), "step": step, "unroll": unroll,
        "reads": (PROMPT,), "core_size": 0, "num_actions": options["num_actions"], "rules": sharding_rules(config),
        "encode": prompts,
    }  # fmt: skip


def _with_low_rank(model: Any, own: Mapping[str, Any], seed: int) -> Any:
    try:
        return add_low_rank(model, own["lora_names"].split(","), own["lora_rank"], own["lora_alpha"], seed)
    except UserError as error:
        raise UserError(f"{error} ({FLAG}.lora_names)") from None


def types_of(options: Mapping[str, Any]) -> Types:
    """Types of the arrays: frozen parameters have the type of the computation, trained ones float32."""
    compute = jnp.dtype(options["dtype"])
    return Types(compute, compute if options[LANGUAGE]["lora_rank"] else jnp.dtype(jnp.float32))


def _is_trained(low_rank: bool) -> Callable[[Any, Any], bool]:
    """An NNX filter: all parameters, or the low-rank additions and the heads."""

    def choose(path: Any, value: Any) -> bool:
        kind = getattr(value, "type", type(value))
        return issubclass(kind, nnx.LoRAParam if low_rank and path[0] not in HEAD_PARTS else nnx.Param)

    return choose

"""What language models need, computed from their sizes: operations for a prompt, and memory while they are trained."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.language.adapt import add_low_rank
from motif_jax.language.config import LanguageConfig
from motif_jax.language.hub_config import config_from_hub
from motif_jax.language.layers import Types
from motif_jax.language.model import make_language_model
from motif_jax.stages.benchmark.rows import Row

FLAN = {  # the values of config.json in which the sizes of Flan-T5 differ: small (80M) and large (780M)
    "80M": {"d_model": 512, "d_ff": 1024, "num_layers": 8, "num_heads": 6},
    "780M": {"d_model": 1024, "d_ff": 2816, "num_layers": 24, "num_heads": 16},
}
FLAN_COMMON: dict[str, Any] = {
    "model_type": "t5", "vocab_size": 32128, "d_kv": 64, "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
RANK, NAMES = 16, ("q", "v")
TRAINED_BYTES = 16  # of a number that is trained: itself, its gradient and Adam's two moments, in float32
FROZEN_BYTES = 2  # of one that is not: bfloat16


def flop_per_prompt(config: LanguageConfig, length: int, nodes: int) -> float:
    """Operations of a forward pass over a prompt and the nodes of a tree behind it: of matrix products only.

    Args:
      config: of a decoder.
      length: tokens of the prompt.
      nodes: of the tree of names.
    """
    tokens, inner = length + nodes, config.heads * config.head_size
    attention = config.width * (2 * inner + 2 * config.kv_heads * config.head_size)
    mlp = (3 if config.gated else 2) * config.width * config.mlp_size
    looking = 2 * tokens * inner  # of one token: products with keys, then sums of values
    whole = config.layers * tokens * (attention + mlp + looking) + (1 + nodes) * config.width * config.vocabulary
    return 2.0 * whole


def cache_bytes(config: LanguageConfig) -> int:
    """Of a token of a prompt: its keys and values in all layers, in float32."""
    return 2 * config.layers * config.kv_heads * config.head_size * 4


def memory_rows() -> list[Row]:
    """Memory of parameters, gradients and optimizer for two Flan-T5, all of it trained, and additions of low rank."""
    rows = []
    for name, sizes in FLAN.items():
        config = config_from_hub(FLAN_COMMON | sizes)
        whole, added = count_parameters(config)
        full = whole * TRAINED_BYTES / 2**30
        low = (whole * FROZEN_BYTES + added * TRAINED_BYTES) / 2**30
        about = {"parameters": whole, "computed": "without what is kept for gradients"}
        rows.append(Row(f"language.memory.{name}.full", round(full, 2), "GiB", about))
        rows.append(
            Row(f"language.memory.{name}.low_rank", round(low, 2), "GiB", about | {"trained": added, "rank": RANK})
        )
    return rows


def count_parameters(config: LanguageConfig) -> tuple[int, int]:
    """Numbers of a model, and of the additions of low rank to its queries and values; nothing is made."""
    types = Types(jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.bfloat16))

    def make() -> Any:
        model: Any = make_language_model(config, types)
        return add_low_rank(model, NAMES, RANK, float(RANK), seed=0)

    shapes = nnx.eval_shape(make)
    added = _count(nnx.state(shapes, nnx.LoRAParam))
    return _count(nnx.state(shapes, nnx.Param)) - added, added


def _count(state: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(state))

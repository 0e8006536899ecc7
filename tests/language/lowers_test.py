"""Scoring, generation and search lower for GPUs and TPUs, too; updates: policies/language_test.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from lowering_test import lower

from motif_jax.language.adapt import add_low_rank
from motif_jax.language.config import make_config
from motif_jax.language.generation import TokenSampling, generate, no_limits, search
from motif_jax.language.model import Types, make_language_model
from motif_jax.language.scoring import make_tree, score

B, L, V = 4, 8, 40
TOKENS, SEGMENTS = np.ones((B, L), np.int32), np.ones((B, L), np.int32)


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    """What asks for the default backend is told that it is no CPU."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


@pytest.mark.parametrize(("family", "dtype"), [("gpt2", "float32"), ("qwen3", "bfloat16"), ("t5", "bfloat16")])
def test_scoring_generation_and_search_lower(family, dtype):
    types = Types(jnp.dtype(dtype), jnp.dtype(dtype))
    model = make_language_model(make_config(family, V, 32, 2, 4), types, remat=True)
    graph, weights = nnx.split(add_low_rank(model, ["q", "v"], 4, 8, 0))
    scored = jax.jit(lambda weights, *inputs: score(nnx.merge(graph, weights), *inputs))
    lower(scored, weights, TOKENS, SEGMENTS, make_tree([[[3, 4], [3]]]))
    sampling = jax.tree.map(np.asarray, TokenSampling(1.0, 0, 1.0))
    limits = no_limits(V, B, (1,))

    def generated(weights, tokens, segments, keys, sampling, limits):
        return generate(
            nnx.merge(graph, weights), tokens, segments, jax.random.wrap_key_data(keys), sampling, limits, 4
        )

    keys = jax.random.key_data(jax.random.split(jax.random.key(0), B))
    lower(jax.jit(generated), weights, TOKENS, SEGMENTS, keys, sampling, limits)
    searched = jax.jit(lambda weights, *inputs: search(nnx.merge(graph, weights), *inputs[:2], 3, inputs[2], 4))
    lower(searched, weights, TOKENS, SEGMENTS, limits)

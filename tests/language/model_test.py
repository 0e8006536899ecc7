"""Several texts in a row, and memory against time; transformers_test.py compares the logits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from own_models import make_own

from motif_jax.language.model import make_language_model

TOKENS = np.random.default_rng(0).integers(3, 40, 9)
ANSWER = np.array([0, 5, 6, 7])


def compute_logits(model, tokens, segments):
    arguments = [tokens, segments]
    if model.config.is_encoder_decoder:
        arguments += [ANSWER, np.ones_like(ANSWER)]
    return model.logits(model(*(jnp.asarray(row)[None] for row in arguments)))[0]


def our_logits(model, tokens, segments):
    graph, params = nnx.split(model)
    return np.asarray(logits_program(graph)(params, tokens, np.asarray(segments)))


@functools.cache
def logits_program(graph):
    return jax.jit(lambda params, *rows: compute_logits(nnx.merge(graph, params), *rows))


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_several_texts_in_a_row_do_not_see_each_other(name):
    model = make_own(name)
    packed = our_logits(model, TOKENS, [2, 2, 2, 0, 5, 5, 5, 5, 0])
    for part in (slice(0, 3), slice(4, 8)):
        alone = our_logits(model, TOKENS[part], np.ones(len(TOKENS[part]), int))
        np.testing.assert_allclose(packed[part], alone, atol=1e-5)


@pytest.mark.parametrize("name", ["qwen3", "t5"])
def test_remat_changes_no_gradient(name):
    graph, params = nnx.split(make_own(name))
    again, _ = nnx.split(make_language_model(make_own(name).config, remat=True, seed=None))

    def gradient(graph):
        def loss(params):
            odds = jax.nn.log_softmax(compute_logits(nnx.merge(graph, params), TOKENS, np.ones(9, int)))
            return odds[:, 3].sum()

        return jax.jit(jax.grad(loss)), str(jax.make_jaxpr(jax.grad(loss))(params))

    (one, plain), (other, remat) = gradient(graph), gradient(again)
    assert "checkpoint" in remat or "remat" in remat
    assert "checkpoint" not in plain
    for a, b in zip(jax.tree.leaves(one(params)), jax.tree.leaves(other(params)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * max(1, np.abs(a).max()))

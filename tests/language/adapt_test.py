"""Additions of low rank: what is trained, and what is written."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from own_models import make_own

from motif_jax.devices.parameters import leaves_by_path
from motif_jax.language.adapt import add_low_rank, merge_low_rank
from motif_jax.language.hub import read_language_model, write_language_model

TOKENS = np.random.default_rng(0).integers(3, 40, (4, 9))


def total_loss(model, tokens):
    """Sum of negative log-probabilities."""
    ones = jnp.ones(tokens.shape, int)
    more = (tokens[:, :-1], ones[:, :-1]) if model.config.is_encoder_decoder else ()
    odds = jax.nn.log_softmax(model.logits(model(tokens, ones, *more)))
    return -jnp.take_along_axis(odds[:, : tokens.shape[1] - 1], tokens[:, 1:, None], -1).sum()


def loss_of(model):
    graph, params = nnx.split(model)
    return jax.jit(lambda params: total_loss(nnx.merge(graph, params), jnp.asarray(TOKENS)))(params)


@pytest.mark.parametrize("name", ["qwen3", "t5"])
def test_additions_of_low_rank_begin_at_nothing_and_are_all_that_is_trained(name, tmp_path):
    model = make_own(name)
    adapted = add_low_rank(model, ["q", "v", "mlp.down"], rank=4, alpha=8, seed=0)
    graph, trained, frozen = nnx.split(adapted, nnx.LoRAParam, ...)
    names = {path[-1] for path in leaves_by_path(trained)}
    assert names == {"low_a", "low_b"}
    assert not names & {path[-1] for path in leaves_by_path(frozen)}
    program = jax.jit(
        jax.value_and_grad(lambda trained: total_loss(nnx.merge(graph, trained, frozen), jnp.asarray(TOKENS)))
    )
    before, gradient = program(trained)
    np.testing.assert_allclose(before, loss_of(model), rtol=1e-5)
    for _ in range(5):
        trained = jax.tree.map(lambda leaf, step: leaf - 1e-3 * step, trained, gradient)
        after, gradient = program(trained)
    assert after < before
    merged = merge_low_rank(nnx.merge(graph, trained, frozen))
    np.testing.assert_allclose(loss_of(merged), after, rtol=1e-4)
    write_language_model(tmp_path / "merged", merged)
    assert read_language_model(tmp_path / "merged")[2] == model.config

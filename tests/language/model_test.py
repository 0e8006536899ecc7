"""Models beside a slow twin in NumPy; several texts in a row; parameters of fewer bits; memory against time."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import numpy_twin
import pytest
from flax import nnx
from own_models import make_own, write_own
from safetensors.numpy import load_file

from motif_jax.language.model import make_language_model

TOKENS = np.random.default_rng(0).integers(3, 40, 9)
ANSWER = np.array([0, 5, 6, 7])
TWINS = {"gpt2": "gpt2", "qwen3": "qwen3", "t5": "t5", "t5 v1.0": "t5"}


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


@pytest.mark.parametrize("name", TWINS)
def test_logits_are_those_of_a_slow_twin(name, tmp_path):
    write_own(name, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    more = (ANSWER,) if "t5" in name else ()
    wanted = getattr(numpy_twin, TWINS[name])(tensors, config, TOKENS, *more)
    ours = our_logits(make_own(name), TOKENS, np.ones(9, int))
    np.testing.assert_allclose(ours, wanted, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "t5", "t5 v1.0"])
def test_padding_anywhere_changes_nothing(name):
    """Before the tokens, after them and between them."""
    model, length = make_own(name), len(TOKENS) + 5
    alone = our_logits(model, TOKENS, np.ones(9, int))
    rng = np.random.default_rng(0)
    for places in ([*range(9)], [*range(5, 14)], *(sorted(rng.permutation(length)[:9]) for _ in range(3))):
        tokens, segments = rng.integers(3, 40, length), np.zeros(length, int)
        tokens[places], segments[places] = TOKENS, 1
        logits = our_logits(model, tokens, segments)
        logits = logits if model.config.is_encoder_decoder else logits[places]
        np.testing.assert_allclose(logits, alone, atol=2e-5 * np.abs(alone).max())


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

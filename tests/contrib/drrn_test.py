"""The network DRRN against a slow twin, and as a policy."""

import json

import jax
import numpy as np
import pytest
from flax import nnx
from small_language import ACTIONS, WORDS, as_prompts

from motif_jax.contrib.drrn.network import RelevanceNetwork
from motif_jax.policies.model import make_policy_model, with_actions
from motif_jax.policies.player import PolicyPlayer

WIDTH = 6


def options(actions=ACTIONS, **own):
    values = {"tokeniser": WORDS.text, "actions": list(actions), "width": WIDTH, "max_tokens": 40} | own
    return {"network": "drrn", "num_actions": len(actions), "dtype": "float32", "drrn": values}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slow_read(reader, embedding, tokens):
    """What a gated recurrent unit remembers after the last of some tokens."""
    memory = np.zeros(WIDTH)
    for token in tokens:
        given = embedding[token] @ np.asarray(reader.input_kernel[...]) + np.asarray(reader.input_bias[...])
        recalled = memory @ np.asarray(reader.kernel[...]) + np.asarray(reader.bias[...])
        reset = sigmoid(given[:WIDTH] + recalled[:WIDTH])
        update = sigmoid(given[WIDTH : 2 * WIDTH] + recalled[WIDTH : 2 * WIDTH])
        new = np.tanh(given[2 * WIDTH :] + reset * recalled[2 * WIDTH :])
        memory = (1 - update) * new + update * memory
    return memory


def slow_values(network, prompt, names):
    """Q of each name, one after the other."""
    embedding = np.asarray(network.embedding[...])
    state = slow_read(network.prompt_reader, embedding, prompt)
    values = []
    for name in names:
        both = np.concatenate([state, slow_read(network.name_reader, embedding, name)])
        hidden = np.maximum(both @ np.asarray(network.hidden.kernel[...]) + np.asarray(network.hidden.bias[...]), 0)
        values.append(float((hidden @ np.asarray(network.last.kernel[...]) + np.asarray(network.last.bias[...]))[0]))
    return values


@pytest.mark.quick
def test_values_are_those_of_a_slow_network_for_any_padding():
    network = RelevanceNetwork(9, WIDTH, dtype="float32", rngs=nnx.Rngs(3))
    for bias in (network.hidden.bias, network.last.bias):
        bias[...] = bias[...] + 0.3
    prompts, names = [[3, 1, 4, 1, 5], [2], [], [8, 0, 8]], [[7, 7], [6], [0, 1, 2]]

    def rows(texts, width):
        return np.array([[*text, *[-1] * (width - len(text))] for text in texts], np.int32)

    def values(prompt_width, name_width):
        both = rows(prompts, prompt_width), rows(names, name_width)
        return nnx.jit(lambda network, prompts, names: network(prompts, network.prepare(names)))(network, *both)

    wanted = [slow_values(network, prompt, names) for prompt in prompts]
    np.testing.assert_allclose(values(5, 3), wanted, atol=1e-5)
    np.testing.assert_allclose(values(9, 4), wanted, atol=1e-5)


def test_as_a_policy_its_logits_are_values_and_the_value_is_the_largest():
    model = make_policy_model(json.loads(json.dumps(options())), 3)
    seen = model.encode(as_prompts())
    assert (seen["tokens"].dtype, seen["tokens"].shape) == (np.int16, (3, 32))
    nothing = np.zeros((3, 0), np.float32)
    prepared = jax.jit(model.prepare)(model.params, ())
    logits, values, core = jax.jit(model.step)(model.params, (), seen, np.ones(3, bool), nothing, prepared)
    assert (logits.shape, core.shape) == ((3, 4), (3, 0))
    np.testing.assert_array_equal(values, logits.max(-1))
    # a batch for the learner has room for the longest prompt: 40 tokens, in multiples of 32
    batch = model.encode({"prompt": np.stack([as_prompts()["prompt"]] * 2)})
    assert batch["tokens"].shape == (2, 3, 64)
    unrolled, largest = jax.jit(model.unroll)(model.params, (), batch, np.ones((2, 3), bool), nothing)
    np.testing.assert_allclose(unrolled, np.stack([logits, logits]), atol=1e-5)
    np.testing.assert_array_equal(largest, unrolled.max(-1))
    player = PolicyPlayer(model, num_games=3, group_size=3, seed=0)
    _, outputs = player(as_prompts(), np.ones(3, bool), np.arange(3))
    np.testing.assert_allclose(outputs["logits"], logits, atol=1e-5)
    # the same parameters, and other names
    renamed = make_policy_model(with_actions(options(), ("rotate", *ACTIONS[1:3])), 3)
    other, _ = jax.jit(renamed.unroll)(model.params, (), batch, np.ones((2, 3), bool), nothing)
    np.testing.assert_allclose(other[..., 1:], unrolled[..., 1:3], atol=1e-5)
    assert abs(other[..., 0] - unrolled[..., 0]).max() > 1e-4

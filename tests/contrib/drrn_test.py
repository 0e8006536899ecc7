"""The network DRRN against a slow twin."""

import numpy as np
import pytest
from flax import nnx

from motif_jax.contrib.drrn.network import RelevanceNetwork

WIDTH = 6


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

"""Small models of our own, for tests that need neither PyTorch nor transformers."""

import functools
from pathlib import Path

import jax
import numpy as np
from flax import nnx

from motif_jax.language.config import make_config
from motif_jax.language.hub import write_language_model
from motif_jax.language.model import make_language_model
from motif_jax.tokens import WordTokeniser, write_tokeniser

TEXTS = ["Goal of the agent: go to the red ball. You see a grey key 2 steps left and 1 step forward, a wall",
         "turn left", "turn right", "go forward", "pick up", "drop", "toggle"]  # fmt: skip
TOKENISER = WordTokeniser.from_texts(TEXTS)
MORE = {
    "qwen3": {"num_key_value_heads": 2},
    "gpt2": {"n_positions": 200},
    "t5": {"num_decoder_layers": 3},
    "t5 v1.0": {"feed_forward_proj": "relu", "tie_word_embeddings": True},
}


@functools.cache
def make_own(name):
    return make_random(make_config(name.split()[0], 40, 32, 2, 4, **MORE.get(name, {})))


def make_random(config):
    """A model whose every parameter is random: norms and biases, too."""
    graph, params = nnx.split(make_language_model(config))
    leaves, form = jax.tree.flatten(params)
    rng = np.random.default_rng(0)
    leaves = [np.asarray(leaf) + rng.normal(size=leaf.shape).astype(np.float32) * 0.2 for leaf in leaves]
    return nnx.merge(graph, jax.tree.map(jax.numpy.asarray, jax.tree.unflatten(form, leaves)))


def write_own(name, directory: Path, **more):
    write_tokeniser(directory, TOKENISER)
    write_language_model(directory, make_own(name), **more)
    return directory


def same(one, other):
    return jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(np.asarray(a), np.asarray(b)), one, other))

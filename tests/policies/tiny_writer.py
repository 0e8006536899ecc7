"""A small language model of letters with random values, as `read_values` would give it."""

import jax
import numpy as np
from flax import nnx

from motif_jax.language.config import make_config
from motif_jax.language.model import make_language_model
from motif_jax.offline.recipes import recipe_of
from motif_jax.offline.values import new_head
from motif_jax.policies.writing import ValueModel
from motif_jax.tokens import LetterTokeniser
from motif_jax.transcripts.render import TEMPLATES, LiveRenderer

WIDTH, POSITIONS = 16, 30  # contexts are padded to 32: one width, one program
TOKENISER = LetterTokeniser.from_texts(["abcde", "<b><y><g>"])


def make_params(seed):
    config = make_config("gpt2", TOKENISER.size, WIDTH, 1, 2, n_positions=POSITIONS)
    graph, params = nnx.split(make_language_model(config, seed=seed))
    params = jax.tree.map(lambda array: 8 * array if array.ndim == 2 else array, params)  # more decided than at first
    return config, graph, jax.tree.map(np.asarray, params)


def make_heads(seed, outputs, count, width=WIDTH):
    heads = [new_head(key, width, outputs, -1.0) for key in jax.random.split(jax.random.key(seed), count)]
    return [head | {"out_kernel": 60 * head["out_kernel"]} for head in heads]


def make_value_model(recipe="ilql"):
    config, graph, policy = make_params(0)
    one = recipe_of(recipe)
    renderer = LiveRenderer(TOKENISER, TEMPLATES["marks"])
    allowed = np.zeros(config.vocabulary, bool)
    allowed[[*TOKENISER.encode("abcde"), renderer.stop]] = True
    target, online = {}, {}
    if one.has_values:
        outputs = config.vocabulary if one.per_token else 1
        target = {"trunk": make_params(1)[2], "q": make_heads(1, outputs, 2)}
        online = {"trunk": make_params(2)[2], "v": make_heads(2, 1, 1)[0]}
    if one.conditioned:
        online["condition"] = {name: np.ones(WIDTH, np.float32) for name in ("kernel", "bias")}
    return ValueModel(config, graph, policy, target, online, one, TOKENISER, renderer, allowed, reward_scale=2.0)

"""A decoder of one block, in plain JAX, and rows of random episodes: what the losses need, small enough for loops."""

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.language.model import ModelFunctions
from motif_jax.transcripts.render import CUT, TERMINAL, UNFINISHED, Rows

WIDTH, VOCABULARY, LONGEST = 8, 11, 64


def new_params(seed, width=WIDTH, vocabulary=VOCABULARY):
    keys = jax.random.split(jax.random.key(seed), 6)
    shapes = {"embedding": (vocabulary, width), "positions": (LONGEST, width), "query": (width, width),
              "key": (width, width), "value": (width, width), "mlp": (width, width)}  # fmt: skip
    return {name: 0.5 * jax.random.normal(key, shape) for key, (name, shape) in zip(keys, shapes.items(), strict=True)}


def hidden_states(params, tokens, segments, added):
    """Position and sight are within the segment."""
    same = (segments[:, :, None] == segments[:, None]) & (segments > 0)[:, None]
    mask = jnp.tril(jnp.ones(same.shape[1:], bool)) & same
    x = params["embedding"][tokens] + params["positions"][jnp.maximum(mask.sum(-1) - 1, 0)]
    x = x if added is None else x + added
    scores = (x @ params["query"]) @ jnp.swapaxes(x @ params["key"], 1, 2) * x.shape[-1] ** -0.5
    seen = jax.nn.softmax(jnp.where(mask, scores, -1e9)) @ (x @ params["value"])
    x = x + seen
    return x + jax.nn.relu(x @ params["mlp"])


LANGUAGE = ModelFunctions(
    hidden_states, lambda params, hidden: (hidden @ params["embedding"].T).astype(jnp.float32), WIDTH, VOCABULARY
)  # fmt: skip


def random_rows(seed, num_rows=4, length=24, packed=False):
    """Episodes of turns, as the renderer lays them out; some are cut, some do not end."""
    rng = np.random.default_rng(seed)
    rows = Rows(
        tokens=np.zeros((num_rows, length), np.int32),
        segments=np.zeros((num_rows, length), np.int32),
        is_action=np.zeros((num_rows, length), bool),
        closes=np.zeros((num_rows, length), bool),
        reward=np.zeros((num_rows, length), np.float32),
        end=np.zeros((num_rows, length), np.int8),
    )
    for row in range(num_rows):
        at = 0
        for segment in range(1, 4 if packed else 2):
            if at >= length - 1:
                break
            start, agent, closing = at, [False], [False]
            for _ in range(rng.integers(1, 5)):
                size, acts = int(rng.integers(1, 5)), bool(rng.random() < 0.6)
                agent += [acts] * size
                closing += [False] * (size - 1) + [acts]
            stop = min(start + len(agent), length)
            places = np.arange(start, stop)
            rows.tokens[row, places] = rng.integers(0, VOCABULARY, len(places))
            rows.segments[row, places] = segment
            for place in places[1:]:
                rows.is_action[row, place - 1] = agent[place - start]
                rows.closes[row, place - 1] = closing[place - start]
                if closing[place - start]:
                    rows.reward[row, place - 1] = rng.normal()
            cut = start + len(agent) > length
            if cut:
                end = UNFINISHED if agent[length - start] else CUT
                rows.reward[row, stop - 1] = rng.normal()
            else:
                end = TERMINAL if rng.random() < 0.6 else UNFINISHED
            rows.end[row, stop - 1] = end
            at = stop
    return rows

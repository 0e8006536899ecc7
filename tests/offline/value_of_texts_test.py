"""What whole texts are worth: the same as loops over single texts without padding find."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from slow_terms import head, hidden_of
from tiny_decoder import LANGUAGE, VOCABULARY, WIDTH, new_params
from tiny_writer import make_heads

from motif_jax.offline.recipes import recipe_of
from motif_jax.offline.values import ShiftArguments, value_of_texts
from motif_jax.transcripts.render import Rows

CONTEXTS = [[3, 1, 4, 1, 5], [9], [2, 6, 5]]
SAID = [[3, 5, 8], [9, 7, 9, 3], [2]]
LOW, HIGH = -1.5, 1.0  # bounds of the targets' Q per token or utterance


def hidden_states(params, tokens):
    row = np.array([tokens], np.int32)
    return hidden_of(params, Rows(row, np.ones_like(row), *[None] * 4))[0]


def slow_worth(recipe, target, online, context, candidate):
    tokens = [*context, *candidate]
    hidden = hidden_states(target["trunk"], tokens)
    least = lambda state: np.min([head(one, state) for one in target["q"]], 0)  # noqa: E731
    bounded = lambda state: np.clip(least(state), LOW, HIGH)  # noqa: E731
    if recipe.of_replies:
        return least(hidden.mean(0))[0]
    if recipe.per_utterance:
        return bounded(hidden[-1])[0]
    total, online_hidden = 0.0, hidden_states(online["trunk"], tokens)
    for place, token in enumerate(candidate, len(context) - 1):
        total += bounded(hidden[place])[token] - head(online["v"], online_hidden[place])[0]
    return total


def padded(rows):
    width = max(map(len, rows)) + 2
    tokens = np.array([row + [1] * (width - len(row)) for row in rows], np.int32)  # padding is of no meaning
    return tokens, (np.arange(width) < np.array([[len(row)] for row in rows])).astype(np.int32)


@pytest.mark.differs(
    "ilql",
    there="`rerank` sums Q - V over the prompt and padding too",
    here="over the tokens of the candidate and its end mark",
)
@pytest.mark.parametrize("name", ["ilql", "utterance_ilql", "chai"])
def test_values_of_texts_are_those_of_loops(name):
    recipe = recipe_of(name)
    outputs = VOCABULARY if recipe.per_token else 1
    target = {"trunk": new_params(1), "q": make_heads(2, outputs, 2, WIDTH)}
    online = {"trunk": new_params(3), "v": make_heads(4, 1, 1, WIDTH)[0]}

    def worth(target, online, *rows):
        return value_of_texts(LANGUAGE, recipe, ShiftArguments(0.0, 0.0, target, online, (LOW, HIGH)), *rows)

    program = jax.jit(worth)
    lengths = jnp.array([len(candidate) for candidate in SAID])
    worths = program(target, online, *padded(CONTEXTS), padded(SAID)[0], lengths)
    wanted = [slow_worth(recipe, target, online, *texts) for texts in zip(CONTEXTS, SAID, strict=True)]
    np.testing.assert_allclose(worths, wanted, rtol=1e-4, atol=1e-5)
    assert len({round(float(one), 3) for one in wanted}) == 3

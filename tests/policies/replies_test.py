import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_writer import POSITIONS, TOKENISER, make_value_model

from motif_jax.offline.mdp import first_of_segment, utterance_starts, utterance_steps
from motif_jax.policies.writing import make_replies
from motif_jax.structs import Episode, Turn
from motif_jax.transcripts.render import TEMPLATES, Renderer, make_batch, planner
from motif_jax.transcripts.store import turns_of


def rows_of(episodes, **more):
    renderer = Renderer(turns_of(episodes), TOKENISER, TEMPLATES["marks"])
    return make_batch(renderer, planner(renderer, np.arange(len(episodes)), seed=0, **more)(0), 0)


@pytest.mark.differs(
    "ilql",
    there="CHAI reads Q of new samples from a sum of hidden states (which lacks the last token of a cut "
    "sample), of data and cached samples from a mean",
    here="always from the mean over all tokens",
)
def test_features_are_means_over_the_episode_and_the_reply():
    """Twin: the recorded text as a forced reply has the feature that the running mean has at its end."""
    episodes, model = [], make_value_model()
    for number in range(6):
        turns = [Turn("abc"[: 1 + number % 3], -1.0), Turn("<b><g>"), Turn("de", -1.0), Turn("<y>"), Turn("a", 0.0)]
        episodes.append(Episode(tuple(turns[: 1 + 2 * (number % 3)]), terminal=True))
    rows = rows_of(episodes, packed=True, max_length=40, batch_rows=2)  # with several episodes each
    policy = nnx.merge(model.graph, model.policy)
    hidden = np.asarray(policy(jnp.asarray(rows.tokens), jnp.asarray(rows.segments)))
    steps, first = utterance_steps(rows), np.asarray(first_of_segment(rows.segments))
    (letter,) = TOKENISER.encode("a")
    only = jnp.zeros(model.config.vocabulary, bool).at[letter].set(True)
    keys = jax.random.split(jax.random.key(0), len(rows.tokens))
    forced = jax.jit(make_replies(model.graph, only, letter, 1, 1, 12))(model.policy, rows, keys)  # without a mark
    compared = 0
    for row, end in zip(*np.nonzero(np.asarray(steps.mask)), strict=True):
        start = int(steps.state[row, end])
        if rows.tokens[row, start + 1] == letter:
            number = int(rows.closes[row, :end].sum()) - 1
            wanted = hidden[row, first[row, start] : start + 2].mean(0)
            np.testing.assert_allclose(forced.features[row, number, 0], wanted, atol=1e-4)
            compared += 1
    assert compared > 3


def test_a_reply_ends_where_the_context_is_full():
    model = make_value_model()
    (letter,) = TOKENISER.encode("a")
    episodes = [Episode((Turn("abcde" * 4, -1.0), Turn("<b><y>"), Turn("abc", 0.0)), terminal=True)]
    rows = rows_of(episodes, packed=False, max_length=POSITIONS + 6, batch_rows=1)
    only = jnp.zeros(model.config.vocabulary, bool).at[letter].set(True)
    sample = make_replies(model.graph, only, model.renderer.stop, 1, 8, 2)
    replies = jax.jit(sample)(model.policy, rows, jax.random.split(jax.random.key(0), 1))
    before = np.flatnonzero(np.asarray(utterance_starts(rows))[0])[1] + 1
    assert POSITIONS - 8 < before < POSITIONS  # the second text has room for fewer than eight letters
    tokens = np.append(rows.tokens[0, :before], [letter] * (POSITIONS - before))[None]
    hidden = nnx.merge(model.graph, model.policy)(jnp.asarray(tokens), jnp.ones_like(tokens))
    np.testing.assert_allclose(replies.features[0, 1, 0], hidden[0].mean(0), atol=1e-4)
    assert replies.log_probs[0, 1, 0] == 0  # there was only one token to choose

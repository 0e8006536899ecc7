"""Choices that are packed behind one context have the probabilities that they have one by one."""

import functools

import jax
import numpy as np
import pytest
from flax import nnx
from small_models import FEW, make_small, some_tokens

from motif_jax.language.scoring import make_tree, score

CHOICES = [[5, 6, 7], [5, 6, 8, 9], [5], [10, 6], [11, 12, 13, 14]]
CONTEXTS = some_tokens()
LENGTHS = np.array([11, 6, 1])


@functools.cache
def make_program(name):
    graph = make_small(name).graph
    return jax.jit(lambda params, *arguments: score(nnx.merge(graph, params), *arguments))


def run(name, tokens, segments, tree):
    return jax.tree.map(np.asarray, make_program(name)(make_small(name).params, tokens, segments, tree))


def right_padded():
    valid = np.arange(CONTEXTS.shape[1]) < LENGTHS[:, None]
    return np.where(valid, CONTEXTS, 60), valid.astype(int)


def one_by_one(name, context, choice):
    """The sum of log-probabilities in transformers: one row, without any padding."""
    import torch

    small = make_small(name)
    whole = torch.tensor([[*context, *choice]])
    with torch.no_grad():
        if small.is_encoder_decoder:
            begun = torch.tensor([[0, *choice[:-1]]])
            logits = small.theirs(input_ids=torch.tensor([context]), decoder_input_ids=begun).logits
        else:
            logits = small.theirs(input_ids=whole[:, :-1]).logits[:, len(context) - 1 :]
    odds = torch.log_softmax(logits[0].double(), -1)
    return sum(odds[place, token].item() for place, token in enumerate(choice))


@pytest.mark.differs(
    "glam", there="scoring takes token 0 for a pad, also within a name", here="it counts like any other token"
)
@pytest.mark.parametrize("name", FEW)
def test_token_0_within_a_choice_counts_like_any_other(name):
    choices = [*CHOICES, [5, 0, 7], [0, 6]]
    scores = run(name, *right_padded(), make_tree([choices]))
    contexts = [CONTEXTS[row, :length].tolist() for row, length in enumerate(LENGTHS)]
    wanted = [[one_by_one(name, context, choice) for choice in choices] for context in contexts]
    np.testing.assert_allclose(scores.log_probs, wanted, rtol=2e-5)


@pytest.mark.differs(
    "glam",
    there="Lamorel pads prompts on the left without position ids, so scores of GPT-2 depend on the longest prompt",
    here="they do not depend on padding",
)
@pytest.mark.parametrize("name", FEW)
def test_padding_buckets_batches_and_other_choices_change_nothing(name):
    tokens, segments = right_padded()
    wanted = run(name, tokens, segments, make_tree([CHOICES]))

    def check(scores, choices=slice(None)):
        np.testing.assert_allclose(scores.log_probs[:3, : len(wanted.log_probs[0][choices])],
                                   wanted.log_probs[:, choices], rtol=2e-5)  # fmt: skip
        np.testing.assert_allclose(scores.hidden[:3], wanted.hidden, rtol=1e-3, atol=1e-5)

    left = np.zeros((3, 16), int), np.zeros((3, 16), int)  # on the left, in a longer row
    for row, length in enumerate(LENGTHS):
        left[0][row, 16 - length :], left[1][row, 16 - length :] = CONTEXTS[row, :length], 1
    check(run(name, *left, make_tree([CHOICES])))
    more = np.concatenate([tokens, some_tokens(5, 11, 3)]), np.concatenate([segments, np.ones((5, 11), int)])
    check(run(name, *more, make_tree([CHOICES], multiple=8)))  # in a larger batch, with room for more choices
    rows = [CHOICES[:2], [*CHOICES[:2], [20, 21, 22, 23, 24]], CHOICES[:2]]  # rows with choices of their own
    scores = run(name, tokens, segments, make_tree(rows))
    check(scores, slice(2))
    assert np.isneginf(scores.log_probs).tolist() == [[False, False, True], [False, False, False], [False, False, True]]

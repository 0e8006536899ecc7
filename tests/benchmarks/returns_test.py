"""Tests of the comparison of returns with AgileRL's ILQL, without AgileRL."""

import numpy as np
import pytest

from benchmarks.peers import returns
from motif_jax.policies.decoding import Decoding


@pytest.fixture(scope="module")
def comparison():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(returns, "EPISODES", 200)
        patched.setattr(returns, "GAMES", 16)
        yield returns.Comparison(updates=3)


def test_scores_from_elsewhere_write_the_same(comparison):
    writer = comparison.learn(seed=1)

    def scores(contexts):
        found = [writer.probabilities(tokens, Decoding(beta=4.0)) for tokens in contexts]
        policy = np.array([np.log(np.maximum(one.policy[-1], 1e-30)) for one in found])
        return policy, np.array([one.advantage[-1] for one in found])

    scored = returns.ScoredWriter(comparison.model(seed=1), scores)
    contexts = [comparison.renderer.rows(np.array([number]), 74).tokens[0][:14].tolist() for number in range(4)]
    decoding = Decoding("greedy", beta=4.0, max_tokens=returns.SAID, batch_size=4)
    ours, theirs = (
        [reply.text for reply in one.write(contexts, decoding, returns.jax.random.key(0), range(4))]
        for one in (writer, scored)
    )
    assert ours == theirs


def test_batches_differ_by_seed_and_returns_are_of_the_game(comparison):
    assert (comparison.batches(1) != comparison.batches(2)).any()
    assert (comparison.batches(1) == comparison.batches(1)).all()
    found = comparison.returns(comparison.learn(seed=2), seed=2)
    assert set(found) == {"beta0", "beta4", "beta16"}
    assert all(-6 <= value <= 0 for value in found.values())

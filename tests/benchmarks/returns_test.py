"""Tests of the comparison of returns with AgileRL's ILQL, without AgileRL."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import returns
from motif_jax.policies.decoding import Decoding

ANSWERS = """
import json, sys
for line in sys.stdin:
    sizes = [len(tokens) for tokens in json.loads(line)]
    print(json.dumps({"logits": [[size, 0] for size in sizes], "advantage": [[0, size] for size in sizes]}), flush=True)
"""


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


def test_a_process_is_asked_line_by_line(tmp_path: Path):
    command = [sys.executable, "-c", ANSWERS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for contexts in ([[1, 2, 3], [4]], [[5, 6]]):
            logits, advantage = returns.ask(process, contexts)
            sizes = [len(tokens) for tokens in contexts]
            assert logits[:, 0].tolist() == sizes == advantage[:, 1].tolist()
        process.kill()

"""Rewards by looking them up: always what the network gives, rarely by asking it; and what the agent is paid."""

import jax.numpy as jnp
import numpy as np
import pytest
from online_parts_test import messages

from motif_jax import captions
from motif_jax.rewards.learnt_source import Mix, RewardTable, extrinsic_reward, intrinsic_reward

pytestmark = pytest.mark.quick


class Network:
    """Worth of a message: the sum of its bytes, and a word of who was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, messages):
        assert messages.dtype == np.uint8
        self.asked += [bytes(message) for message in messages]
        return messages.sum(1, dtype=np.float32)


def test_values_are_those_of_the_network_and_nobody_is_asked_twice():
    network, rng = Network(), np.random.default_rng(0)
    known = messages("You die...", "", "It's a wall.", "It's a wall.")
    table = RewardTable(network, known)
    assert len(table) == 3
    pool = np.concatenate([known, rng.integers(256, size=(300, 256), dtype=np.uint8), messages("a", "a b", "ab ")])
    for _ in range(20):
        asked = pool[rng.integers(len(pool), size=(8, 5))]  # [T, B, 256]
        assert table(asked).tolist() == asked.sum(-1, dtype=np.float32).tolist()
    assert len(network.asked) == len(set(network.asked)) == len(table)
    assert table.misses == len(table) - 3
    assert table(np.zeros((0, 4, 256), np.uint8)).shape == (0, 4)


def test_a_full_table_forgets_what_came_later():
    table = RewardTable(Network(), messages("x"), capacity=4)
    for text in "abcdefgh":
        assert table(messages(text, "x")).tolist() == [ord(text), ord("x")]
        assert len(table) <= 4
    many = messages(*"klmnopq")
    assert table(many).tolist() == many.sum(1).tolist()  # more at once than it holds
    assert table(messages("x")).tolist() == [ord("x")]


def test_two_messages_with_one_hash_keep_their_own_values(monkeypatch):
    monkeypatch.setattr(captions, "hash_words", lambda words: np.zeros(len(words), np.uint64))
    table = RewardTable(Network(), messages("first"))
    for _ in range(3):
        assert table(messages("first", "other")).tolist() == [sum(b"first"), sum(b"other")]


SHARES = [2.0, 1.6, 1.0, 0.2, 0.1, 0.0, -1.0, -4.0, -0.202]  # of the best reward: 1, 0.8, 0.5, 0.1, ..., -0.101
# The aim and what comes near it pay in full again, smaller shares an eighth, those up to 0.1 nothing, and what is
# barely above that next to nothing.
OF_SHARES = [1, 0.7 / 0.9, 0.4 / 0.9 / 8, 0, 0, 0, -0.4 / 0.9 / 8, -1.9 / 0.9, -0.001 / 0.9 / 8]


@pytest.mark.parametrize("library", [np, jnp])
@pytest.mark.parametrize(("z", "counts", "mix", "paid"), [
    ([1.0] * 3, [1, 2, 3], Mix(threshold=0.5, count_exponent=3.0), [1, 1 / 8, 1 / 27]),  # 1 / n^3
    ([0.5, 0.75, 0.25, -1.0], [1] * 4, Mix(threshold=0.5), [0, 0.75, 0, 0]),  # strictly above
    ([0.5, 0.75, 0.25, -1.0], [1] * 4, Mix(threshold=-2.0), [0.5, 0.75, 0.25, -1.0]),  # negative ones, as published
    (SHARES, [2] * 9, Mix(threshold=0.5, count_exponent=3.0, best=2.0), OF_SHARES),
    ([2.0, 2.0, 0.5], [1, 2, 2], Mix(threshold=0.5, count_exponent=float("inf"), best=2.0), [1, 1, 0]),
])  # fmt: skip
def test_messages_are_paid_above_the_threshold_and_less_each_time(library, z, counts, mix, paid):
    found = intrinsic_reward(library.asarray(z, dtype="float32"), library.asarray(counts, dtype="int32"), mix)
    assert np.asarray(found) == pytest.approx(paid, abs=1e-6)


@pytest.mark.parametrize("library", [np, jnp])
def test_the_games_reward_is_scaled_then_clipped(library):
    reward = library.asarray([50.0, 200.0, -0.01], dtype="float32")
    # 0.1 * 50 = 5; 0.1 * 200 = 20 -> 10; 0.1 * -0.01 = -0.001
    assert np.asarray(extrinsic_reward(reward, Mix(scale=0.1, clip=10.0))) == pytest.approx([5, 10, -0.001])

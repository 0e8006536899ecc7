"""Rewards by looking them up: always what the network gives, rarely by asking it."""

import numpy as np
import pytest
from online_parts_test import messages

from motif_jax import captions
from motif_jax.rewards.learnt_source import RewardTable

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
    network = Network()
    table = RewardTable(network, messages("x"), capacity=4)
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

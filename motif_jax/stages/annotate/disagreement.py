"""The order disagreement: in rounds, the questions are asked about which small rewards disagree most.

The first round is random. After each round, NETWORKS small rewards learn from the answers so far, and the next round
has the questions with the largest standard deviation of P(second is better) among them. They begin with different
parameters and share nothing: heads of one network agree even where all are wrong. A round is a line of the shard before
it is asked, and depends on the answers of earlier rounds only, so a killed job asks the same questions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from motif_jax.preferences.questions import Questions
from motif_jax.preferences.shards import Shard

NETWORKS = 4
OPTIONS = {"message": "lt_cnn_small", "blstats": False, "crop": False, "glyphs": False}
LEARNING_RATE, BATCH_SIZE = 1e-3, 128
MOST_STEPS, MOST_EPOCHS = 600, 60  # of each network's training in a round


def question_rounds(questions: Questions, shard: Shard, budget: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Yields all questions chosen so far: those of an earlier run, then also those of each next round. [P] int64

    `budget`: number of questions to ask in all rounds of `size`; those that came with a label already count.
    """
    given = np.flatnonzero(~np.isnan(shard.given))
    order = np.array([*given, *(number for one in shard.rounds for number in one if number < len(questions))], np.int64)
    yield order
    while len(order) < budget:
        others = np.setdiff1d(np.arange(len(questions)), order)
        others = np.random.default_rng([seed, 90, len(order)]).permutation(others)
        labels = shard.labels()
        if len(answered := order[~np.isnan(labels[order])]):
            rows, turned = questions.rows(), questions.turned
            target = np.where(turned[rows], 1 - labels[: len(rows)], labels[: len(rows)])  # as the pairs show them
            table, ids = questions.dataset.captions()
            shown = np.asarray(ids)[rows]
            doubt = disagreement(small_rewards(table.messages, shown, target, answered, seed), shown)
            others = others[np.argsort(-doubt[others], kind="stable")]
        order = np.concatenate([order, others[: min(size, budget - len(order))]])
        yield order


def disagreement(rewards: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The standard deviation of P(second is better) among rewards, for each question. [Q]

    `rewards`: of each message [E, U]; `ids`: the message of every step of each question [Q, 2, L].
    """
    of_sides = rewards[:, ids].mean(-1)  # [E, Q, 2]
    return (1 / (1 + np.exp(of_sides[..., 0] - of_sides[..., 1]))).std(0)


def small_rewards(
    messages: np.ndarray, ids: np.ndarray, target: np.ndarray, answered: np.ndarray, seed: int
) -> np.ndarray:
    """Trains NETWORKS small rewards, and returns the reward of each message by each of them. [E, U]

    `messages`: [U, 256]; `ids`: as above [Q, 2, L]; `target`: P(second is better) of each question [Q]; `answered`: the
    questions to learn from [K].
    """
    from motif_jax.devices.mesh import make_mesh
    from motif_jax.rewards.preference import epoch_order, make_batches, make_model, value_captions

    model, rewards, items = make_model(OPTIONS, LEARNING_RATE, messages, make_mesh(1)), [], 0
    for network in range(NETWORKS):
        state = model.init(seed + network)
        for epoch in range(int(np.clip(MOST_STEPS * BATCH_SIZE // len(answered), 1, MOST_EPOCHS))):
            rows = epoch_order(answered, seed + network, epoch)
            batches = make_batches(rows, ids, target, BATCH_SIZE, 1, None, items)
            items, state = batches.captions.shape[-1], model.learn(state, batches)
        rewards.append(value_captions(model.value, state.params, model.table))
    return np.stack(rewards)

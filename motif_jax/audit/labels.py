"""Inversions: kinds of captions that the reward puts on the wrong side of others, by the judge's labels."""

from __future__ import annotations

import numpy as np

from motif_jax.audit.captions import Captions
from motif_jax.audit.findings import Check, Suspicion, binomial_tail, percent, quoted

NAME = "inversions"
FEWEST = 20  # questions about a kind of captions
TESTED = 8
WRONG = 0.5  # share of the labels of a kind of captions that is reported if passed: worse than chance


def check_inversions(captions: Captions, pairs: np.ndarray, target: np.ndarray) -> Check:
    """Kinds of captions of which the reward contradicts most labels.

    Pairs that show the same two captions are one question, and each question counts once.

    Args:
      captions: with their values.
      pairs: captions of the two moments of each pair. [N, 2] int
      target: P(second is better) by the judge; 1/2 is a tie, NaN is unknown. [N]
    """
    values = captions.values[pairs]
    decided = ~np.isnan(target) & (target != 0.5) & ~np.isnan(values).any(1)
    decided &= captions.group[pairs[:, 0]] != captions.group[pairs[:, 1]]
    if not decided.any():
        return Check(NAME, skipped="no label is a preference between captions whose reward is known")
    pairs, target, values = pairs[decided], target[decided], values[decided]
    difference = values[:, 1] - values[:, 0]
    wrong = np.where(difference == 0, 0.5, (difference > 0) != (target > 0.5))

    # One row per question: how many pairs ask it, and how many of their labels are contradicted.
    ends = np.sort(pairs, axis=1).astype(np.int64)
    _, first, inverse, asked = np.unique(
        ends[:, 0] * len(captions.texts) + ends[:, 1], return_index=True, return_inverse=True, return_counts=True
    )
    errors = np.bincount(inverse, weights=wrong)
    sides = captions.group[ends[first]]  # [Q, 2]

    def by_group(weights: np.ndarray) -> np.ndarray:
        """Sums over the questions about each group."""
        count = len(captions.names)
        return np.bincount(sides[:, 0], weights, count) + np.bincount(sides[:, 1], weights, count)

    labels, mistakes, questions = by_group(asked), by_group(errors), by_group(np.ones(len(asked)))
    share = by_group(errors / asked) / np.maximum(questions, 1)
    found = []
    for group in np.argsort(-np.where(questions >= FEWEST, share, -1), kind="stable")[:TESTED]:
        count = int(questions[group])
        if count < FEWEST or share[group] <= WRONG:
            break
        found.append(Suspicion(
            f"{quoted(captions.names[group])} is on the wrong side in {percent(float(share[group]))} of {count:,} "
            f"questions about it, which {labels[group]:,.0f} labels answer",
            "more pairs with it, --config.collect.num_pairs, or a longer training, --config.reward.num_epochs",
            float(mistakes[group] / len(target)), binomial_tail(share[group] * count, count, WRONG),
        ))  # fmt: skip
    return Check(
        NAME, f"{len(target):,} labels, {len(asked):,} questions", tuple(found), tested=int((questions >= FEWEST).sum())
    )

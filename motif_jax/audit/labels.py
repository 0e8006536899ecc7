"""Inversions: kinds of captions that the reward puts on the wrong side of others, by the judge's labels.

If there is a second reward, learnt with another seed, both must do so: an inversion of one seed alone may be chance.
"""

from __future__ import annotations

import numpy as np

from motif_jax.audit.captions import Captions
from motif_jax.audit.findings import Check, Suspicion, binomial_tail, percent, quoted

NAME = "inversions"
FEWEST = 20  # questions about a kind of captions
TESTED = 8
SECOND = "--config.audit.second_reward_dir"
WRONG = 0.5  # share of the labels of a kind of captions that is reported if passed: worse than chance


def check_inversions(captions: Captions, pairs: np.ndarray, target: np.ndarray) -> Check:
    """Kinds of captions of which the reward, and the second one if there is one, contradicts most labels.

    Pairs that show the same two captions are one question, and each question counts once.

    Args:
      pairs: captions of the two moments of each pair. [N, 2] int
      target: P(second is better) by the judge; 1/2 is a tie, NaN is unknown. [N]
    """
    values = np.stack([one[pairs] for one in (captions.values, captions.second) if one is not None])  # [R, N, 2]
    decided = ~np.isnan(target) & (target != 0.5) & ~np.isnan(values).any((0, 2))
    decided &= captions.group[pairs[:, 0]] != captions.group[pairs[:, 1]]
    if not decided.any():
        return Check(NAME, skipped="no label is a preference between captions whose reward is known")
    pairs, target, values = pairs[decided], target[decided], values[:, decided]
    difference = values[..., 1] - values[..., 0]
    wrong = np.where(difference == 0, 0.5, (difference > 0) != (target > 0.5))

    # One row per question: how many pairs ask it, and how many of their labels each reward contradicts.
    ends = np.sort(pairs, axis=1).astype(np.int64)
    _, first, inverse, asked = np.unique(
        ends[:, 0] * len(captions.texts) + ends[:, 1], return_index=True, return_inverse=True, return_counts=True
    )
    errors = [np.bincount(inverse, weights=one) for one in wrong]
    sides = captions.group[ends[first]]  # [Q, 2]

    def by_group(weights: np.ndarray) -> np.ndarray:
        """Sums over the questions about each group."""
        count = len(captions.names)
        return np.bincount(sides[:, 0], weights, count) + np.bincount(sides[:, 1], weights, count)

    labels, mistakes, questions = by_group(asked), by_group(errors[0]), by_group(np.ones(len(asked)))
    shares = np.stack([by_group(one / asked) for one in errors]) / np.maximum(questions, 1)  # [R, G]
    share, found = shares.min(0), []  # a kind is inverted as far as all rewards say so
    alone = captions.second is None
    seeds = "one reward" if alone else "two rewards"
    advice = "more pairs with it, --config.collect.num_pairs, or a longer training, --config.reward.num_epochs"
    if alone:
        advice = f"a second reward, learnt with another seed, {SECOND}, to see whether it is chance; {advice}"
    for group in np.argsort(-np.where(questions >= FEWEST, share, -1), kind="stable")[:TESTED]:
        count = int(questions[group])
        if count < FEWEST or share[group] <= WRONG:
            break
        wrongs = " and ".join(percent(float(one)) for one in shares[:, group])
        found.append(Suspicion(
            f"{quoted(captions.names[group])} is on the wrong side in {wrongs} of {count:,} questions about it, which "
            f"{labels[group]:,.0f} labels answer, by {seeds}",
            advice, float(mistakes[group] / len(target)), binomial_tail(share[group] * count, count, WRONG),
        ))  # fmt: skip
    about = f"{len(target):,} labels, {len(asked):,} questions, {seeds}"
    return Check(NAME, about, tuple(found), tested=int((questions >= FEWEST).sum()))

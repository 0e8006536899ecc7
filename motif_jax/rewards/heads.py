"""The heads of a reward: their bootstrap weights, their common zero, their mean and their disagreement. In NumPy.

Each of the E heads learns from its own random weights of the questions, so they disagree where there is little data. A
preference fixes a reward only up to a constant: before heads are compared, each is shifted to the same zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.captions import decode
from motif_jax.rewards.statistics import RewardStatistics

MOST_HEADS = 64
HIGHEST = 25  # captions whose disagreement is shown


def draw_weights(ids: np.ndarray, heads: int, seed: int) -> np.ndarray:
    """Bootstrap weights of the pairs for each head: how often it draws the pair's question. [N, 2, L] -> [E, N]

    Pairs with the same two moments are one question, so they have the same weight.
    """
    sides = np.unique(ids.reshape(-1, ids.shape[2]), axis=0, return_inverse=True)[1].reshape(-1, 2)
    _, questions = np.unique(np.sort(sides, 1), axis=0, return_inverse=True)
    drawn = np.random.default_rng([seed, 81]).poisson(1.0, (heads, questions.max(initial=0) + 1))
    return drawn[:, questions.reshape(-1)].astype(np.float32)


def combine(rewards: np.ndarray, options: Mapping[str, Any]) -> np.ndarray:
    """The reward of all heads: their mean - caution * their standard deviation. [K], or [E, K] -> [K]"""
    if rewards.ndim == 1:
        return rewards
    return rewards.mean(0) - np.float32(options.get("caution", 0.0)) * rewards.std(0)


def zeros_of(rewards: np.ndarray, counts: np.ndarray, neutral: np.ndarray) -> np.ndarray:
    """Each head's reward of the neutral moment, or its mean over the training data if there is no such moment. [E]

    Args:
      rewards: of each head and each distinct caption. [E, U]
      counts: how often training shows each caption. [U]
      neutral: the captions without a message, if they are to have the reward 0. [U] bool
    """
    return rewards[:, neutral].mean(1) if neutral.any() else np.average(rewards, axis=1, weights=counts)


def disagreement(
    rewards: np.ndarray, values: np.ndarray, counts: np.ndarray, messages: np.ndarray, statistics: RewardStatistics
) -> dict[str, Any]:
    """The standard deviation among heads, in units of the normalised reward.

    Args:
      rewards: raw reward of each head and each distinct caption. [E, U]
      values: the raw reward that is paid. [U]
      counts: how often training shows each caption. [U]
      messages: the captions. [U, 256]

    Returns:
      `number`, E; `mean`, over the moments of the training pairs; `highest`, the captions with the highest rewards.
    """
    deviation = rewards.std(0) / max(statistics.variance, 1e-12) ** 0.5
    paid, seen = statistics.normalise(values), np.flatnonzero(counts > 0)
    highest = seen[np.argsort(-values[seen], kind="stable")][:HIGHEST]
    return {
        "number": len(rewards),
        "mean": float(np.average(deviation, weights=counts)),
        "highest": [
            {"caption": decode(messages[at]), "reward": float(paid[at]), "deviation": float(deviation[at])}
            for at in highest.tolist()
        ],
    }

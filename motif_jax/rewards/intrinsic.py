"""The agent's reward: the game's reward and the learnt one (Motif, section 3; defaults from the released code).

    z = (R - mean) / sqrt(variance)                       the learnt reward over the training data, normalised
    f = z / n^beta where z > threshold, else 0            n: appearances of the message in this episode
    r = extrinsic * clip(scale * r_game) + intrinsic * f

With `best` > 0, f is the share s = z / best of the reward of the best captions instead, for rewards that pay a moment
without a message 0. Shares of at most 0.1 in size pay nothing, and pay grows from 0 at that limit:

    g = (s - s clipped to [-0.1, 0.1]) / 0.9
    f = g where |s| >= 0.8, else g / n^beta

So an aim of the goal pays as much the second time, and the smallest steps towards it pay nothing. Small fines are left
out as well: they make agents unlearn a key, such as the one for going down, before they find the place to use it. Pay
must not jump at the limit, because the rewards of two seeds may lie on either side of it.

Plain arithmetic: works on NumPy and on JAX arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Mix(NamedTuple):
    """Coefficients of the game's reward and the learnt reward."""

    extrinsic: float = 1.0  # coefficients
    intrinsic: float = 0.1
    scale: float = 1.0  # factor of the game's reward, before it is clipped to [-clip, clip]
    clip: float = 10.0
    threshold: float = float("-inf")  # normalised rewards up to this count as 0
    count_exponent: float = 3.0  # beta
    best: float = 0.0  # normalised reward of the best captions; 0: rewards, rather than shares, are paid


LEAST = 0.1  # shares up to this size pay nothing
AIM = 0.8  # from this size on, repetitions pay in full


def intrinsic_reward(z: Any, counts: Any, mix: Mix) -> Any:
    """The learnt reward of each step, before its coefficient is applied. [...]

    Args:
      z: normalised reward of each step's message. [...]
      counts: appearances of the message in its episode, this one included, so at least 1. [...]
    """
    if mix.best:
        share = z / mix.best
        paid = (share - share.clip(-LEAST, LEAST)) / (1 - LEAST)
        aims = abs(share) >= AIM
        return paid * aims + paid * ~aims / counts**mix.count_exponent
    return (z > mix.threshold) * z / counts**mix.count_exponent


def extrinsic_reward(reward: Any, mix: Mix) -> Any:
    """The game's reward of each step, scaled and clipped, before its coefficient is applied. [...]"""
    return (reward * mix.scale).clip(-mix.clip, mix.clip)

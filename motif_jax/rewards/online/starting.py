"""A reward that was learnt before, as the opinion that stands until the judge has one (`online.init_from`).

    retrieval, classification    a caption without a label counts as helpful where its normalised reward is above the
                                 threshold that Motif would use (--config.policy.threshold_quantile)
    ranking                      the network begins with the parameters and the moments of the learnt reward

With the first change of the goal, this opinion is dropped.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from motif_jax.rewards.learnt import Reward, load_reward
from motif_jax.rewards.moments import HostMoments
from motif_jax.rewards.online.kinds import Kind
from motif_jax.rewards.online.networks import Ranking
from motif_jax.rewards.online.settings import SECTION
from motif_jax.rewards.online.store import Opinion
from motif_jax.structs import UserError

WEIGHT = 1000.0  # steps that the moments of the learnt reward count for


def starting_opinion(config: ConfigDict, kind: Kind) -> Opinion | None:
    """Gives ranking its parameters; for other kinds, returns a function from messages to 0 or 1."""
    section = config.policy.online
    if not section.init_from:
        return None
    try:
        reward = load_reward(Path(section.init_from).expanduser(), "last")
    except UserError as error:
        raise UserError(f"{error} ({SECTION}.init_from)") from None
    if not reward.reads_only_messages:
        raise UserError(f"the reward in {section.init_from!r} reads more than messages ({SECTION}.init_from)")
    if isinstance(kind, Ranking):
        if reward.options["message"] != section.message:
            raise UserError(
                f"the reward in {section.init_from!r} has the encoder {reward.options['message']!r}, not "
                f"{section.message!r} ({SECTION}.message, .init_from)"
            )
        kind.start_from(reward.params, HostMoments(WEIGHT, reward.statistics.mean, reward.statistics.variance))
        return None
    return _labels(reward, config.policy.threshold_quantile)


def _labels(reward: Reward, quantile: float) -> Opinion:
    threshold = reward.statistics.quantile(quantile) if quantile >= 0 else 0.0

    def opinion(messages: np.ndarray) -> np.ndarray:
        return (reward(messages).normalised > threshold).astype(np.float32)

    return opinion

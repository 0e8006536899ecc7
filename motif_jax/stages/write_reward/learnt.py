"""The learnt reward of the same workdir beside a program: which of two episodes each of them pays more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.rewards.source import Setting
from motif_jax.stages.write_reward.evidence import Pairs, Recorded
from motif_jax.stages.write_reward.section import WriteConfig

OFTEN = 0.4  # share of the pairs; a half is chance


def learnt_returns(config: WriteConfig, workdir: Path, recorded: Recorded, world: Any) -> np.ndarray | None:
    """The return of each episode by the learnt reward, as training would pay it. [num_episodes]

    It is that of the stage train_reward in the workdir, or of --config.policy.reward_dir. None if it does not exist,
    was learnt for another goal, or reads what programs do not read.
    """
    if not config.policy.reward_dir and not (workdir / "reward" / "checkpoints").is_dir():
        return None
    from motif_jax.rewards.learnt_source import LearntSource  # loads JAX

    source = LearntSource.make(Setting(config, workdir, world.specs))
    goal = source.about()["goal"]
    if goal not in (None, config.annotate.goal) or not {*source.observations} <= recorded.rollouts[0].keys():
        return None
    return recorded.returns([np.asarray(source.rewards(rollout)) for rollout in recorded.rollouts])


def beside_learnt(
    returns: np.ndarray, learnt: np.ndarray, pairs: Pairs, agreement: float
) -> tuple[dict[str, Any], str]:
    """Figures of the comparison, and a finding if the two often disagree and the judge sides with the learnt reward.

    Args:
      returns, learnt: of each episode, by the program and by the learnt reward. [num_episodes]
      pairs: that choose, with the judge's verdicts.
      agreement: of the program with the judge.
    """
    (a, b), (c, d) = returns[pairs.episodes].T, learnt[pairs.episodes].T
    clear = (a != b) & (c != d)
    disagree = float(((b - a) * (d - c) < 0)[clear].mean()) if clear.any() else float("nan")
    varied = np.ptp(returns) > 0 and np.ptp(learnt) > 0
    figures = {
        "learnt_agreement": pairs.agreement(learnt), "learnt_disagrees": disagree,
        "learnt_correlation": float(np.corrcoef(returns, learnt)[0, 1]) if varied else float("nan"),
    }  # fmt: skip
    if disagree > OFTEN and figures["learnt_agreement"] > agreement:
        return figures, (
            f"the learnt reward prefers the other episode in {disagree:.0%} of the pairs, and agrees with the judge "
            f"about {figures['learnt_agreement']:.0%} of them"
        )
    return figures, ""

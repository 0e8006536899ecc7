"""Checks whether the judge, shown whole episodes, sees the progress that the learnt return shows.

Each pair is the same game, played by random play and by the agent, asked in both orders. With x = 1 where the learnt
return is higher in the agent's episode (1/2 for equal ones) and y = P(the agent's is better) by the judge, the agent's
progress is reported as doubtful if the mean of (y - 1/2) - (x - 1/2) / 2 is below 0: the judge sees less than half of
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from motif_jax.audit.findings import Check, Suspicion, normal_tail, percent
from motif_jax.audit.judge import JudgeAnswers, JudgePlan

NAME = "whole episodes"
LINES = 60  # of an episode that a language model is shown
LONGEST = 120  # characters of a line
FEWEST = 10  # pairs
LEAST_VARIANCE = 0.01  # of the differences, as all of a few pairs may be alike


def episode_text(captions: Sequence[str], frequency: Mapping[str, int], lines: int | None) -> str:
    """An episode as text: its distinct captions in the order of their first appearance, each with its count.

    `frequency`: how often each caption is shown in all episodes. Of more captions than `lines`, the rarest are kept.
    """
    times = Counter(filter(None, captions))
    kept = {*times}
    if lines is not None and len(times) > lines:
        kept = {*sorted(times, key=frequency.__getitem__)[:lines]}
    return "\n".join(
        " ".join(caption.split())[:LONGEST] + (f" ({count} times)" if count > 1 else "")
        for caption, count in times.items()
        if caption in kept
    )


def check_episodes(plan: JudgePlan, answers: JudgeAnswers, early: np.ndarray, late: np.ndarray) -> Check:
    """Compares the judge's verdicts about pairs of episodes with the learnt returns.

    Args:
      early, late: learnt return of random play's and of the agent's episode of each pair. [P]
    """
    judged = answers.mean(plan.episodes)
    read = ~np.isnan(judged)
    count = int(read.sum())
    if count < FEWEST:
        return Check(NAME, skipped=f"{count} pairs of episodes have answers in both orders, and {FEWEST} are needed")
    y, x = judged[read], np.where(early == late, 0.5, late > early)[read]
    missing = (y - 0.5) - (x - 0.5) / 2
    error = (max(float(missing.var(ddof=1)), LEAST_VARIANCE) / count) ** 0.5
    sentence = (
        f"the learnt return rises from {early[read].mean():.3g} (random play) to {late[read].mean():.3g} and is higher "
        f"in {percent(float(x.mean()))} of {count} pairs of episodes; the judge prefers the agent's in "
        f"{percent(float(y.mean()))}"
    )
    advice = "a higher --config.policy.threshold_quantile, or a smaller --config.policy.intrinsic_coefficient"
    size, p = max(float(x.mean() - y.mean()), 0.0), normal_tail(-float(missing.mean()) / error)
    suspicions = (Suspicion(sentence, advice, size, p),) if x.mean() > 0.5 else ()
    return Check(NAME, f"{count} pairs in both orders", suspicions)

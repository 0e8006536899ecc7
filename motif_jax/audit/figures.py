"""Whether the agent is worse than random play in the world's own figures, whatever its judge says.

A figure is worse if its mean is lower, and the ranks of the agent's episodes among all are too low for chance (the test
of Mann and Whitney, one-sided, with the normal distribution and mean ranks of ties).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motif_jax.audit.findings import LEVEL, Check, Suspicion, normal_tail

WORSE = "worse than random play"
FEWEST = 20  # episodes of each player

Figures = Mapping[str, tuple[np.ndarray, np.ndarray]]  # by name: of the agent's episodes and of random play's. [E] each


def check_figures(figures: Figures) -> Check:
    """Figures, in all of which higher is better, that are lower for the agent than for random play."""
    count = min(len(values) for both in figures.values() for values in both)
    if count < FEWEST:
        return Check(
            WORSE, skipped=f"{count} episodes were evaluated, and {FEWEST} are needed (--config.evaluate.episodes)"
        )
    worse, better = ({name: chance_of(*both[::way]) for name, both in figures.items()} for way in (1, -1))
    lowest = min(worse, key=worse.__getitem__)
    sides = [[name for name, p in ps.items() if p * len(ps) <= LEVEL] for ps in (worse, better)]
    below, above = ([_compared(name, *figures[name]) for name in names] for names in (sides[0] or [lowest], sides[1]))
    sentence = f"the agent is below random play in {', '.join(below)}, and above it in {', '.join(above) or 'nothing'}"
    advice = (
        "a second opinion on what it is paid for, --config.audit.second_judge, another judge, --config.annotate.model, "
        "or a longer training, --config.policy.train_for_env_steps"
    )
    ours, theirs = figures[lowest]
    size = float(((theirs > ours[:, None]) + 0.5 * (theirs == ours[:, None])).mean())
    about = f"{', '.join(map(_title, figures))}; {len(ours):,} and {len(theirs):,} episodes"
    return Check(WORSE, about, (Suspicion(sentence, advice, size, worse[lowest]),), tested=len(figures))


def chance_of(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The one-sided p-value that our episodes are lower (Mann and Whitney); 1 if their mean is not lower."""
    if not ours.mean() < theirs.mean():
        return 1.0
    _, place, times = np.unique(np.concatenate([ours, theirs]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(times) - (times - 1) / 2)[place]
    size, rest, middle = len(ours), len(theirs), (len(ranks) + 1) / 2
    deviation = (size * rest / (len(ranks) - 1) * float(((ranks - middle) ** 2).mean())) ** 0.5
    return normal_tail((size * middle - float(ranks[:size].sum()) - 0.5) / deviation)


def _compared(name: str, ours: np.ndarray, theirs: np.ndarray) -> str:
    return f"{_title(name)} ({ours.mean():.3g} against {theirs.mean():.3g})"


def _title(name: str) -> str:
    return name.replace("_", " ")

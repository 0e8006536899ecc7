"""The values of audits in the config: the section `audit`. Does not load JAX."""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import PATH, Whole, value


@dataclass(frozen=True)
class AuditSection:
    """Is the reward right?"""

    steps: int = value(100_000, Whole(1, 10**9), "maximum steps to audit, of the agent's episodes and of random play's")
    flips: int = value(400, Whole(0, 100_000), "pairs of captions that the judge is asked about in both orders")
    triples: int = value(300, Whole(0, 100_000), "triples of captions, three questions each")
    repeats: int = value(200, Whole(0, 100_000), "questions to ask a second time, without the answer cache")
    wholes: int = value(
        40, Whole(0, 100_000), "pairs of whole episodes, of the agent and of random play, in both orders"
    )
    second_reward_dir: str = value(
        "", PATH, "workdir or checkpoints of a reward learnt with another seed; inversions count only if both have them"
    )
    second_judge: str = value(
        "",
        PATH,
        "a second opinion on captions: rules, or model:NAME, a model in this process that rates",
    )
    trajectories: str = value(
        "", PATH, "audit this file of another program's trajectories (docs/trajectories.md), not the workdir's agent"
    )
    every_steps: int = value(500_000, Whole(0, 10**15), "audit ONI's reward every N steps of training; 0 disables")

"""The values of GRPO and GiGPO in the config: the section `group_advantages`. Does not load JAX."""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import Number, Text, Whole, deciding

NAME = "group_advantages"


@dataclass(frozen=True)
class GroupAdvantages:
    """The algorithms grpo and gigpo: groups of episodes that begin alike."""

    group_size: int = deciding(8, Whole(2, 65_536), "episodes per group, which share a seed")
    divide_by: str = deciding("deviation", Text(("deviation", "nothing")), "divisor of the advantages in a group")
    mean_over: str = deciding(
        "steps",
        Text(("steps", "episodes", "limit")),
        "mean of the loss: of all steps; of episodes; of episodes, whose sums are divided by rollout_length",
    )
    ratio: str = deciding("step", Text(("step", "episode")), "probability ratios of steps, or their means in episodes")
    clip_high: float = deciding(0.0, Number(0, infinite=True), "clipping of ratios above 1; 0: policy.clip_ratio")
    reference_coefficient: float = deciding(0.0, Number(0, 1e6), "weight of divergence from the first policy; 0: none")
    step_weight: float = deciding(1.0, Number(0, 1e6), "gigpo: weight of advantages among visits of the same moment")

"""The values of options in the config: the section `options`. Does not load JAX."""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import Flag, Number, SourcesText, Text, deciding

OPTIONS = "options"  # the section, and the name of what acts
AUTO = "auto"  # of `length`
MIXTURES = "mixtures"  # of `controller_chooses`


@dataclass(frozen=True)
class OptionsSection:
    """Options over rewards, and their controller."""

    rewards: str = deciding(
        "",
        SourcesText(longest=2000),
        "sums of rewards, one per option: gold:1,stairs:20,down=stairs+learnt:0.1 (docs/options.md); empty: none",
    )
    controller: str = deciding("", SourcesText(longest=1000), "sum of rewards for which the controller chooses")
    controller_chooses: str = deciding("options", Text(("options", MIXTURES)), "single options, or mixtures")
    length: str = deciding(
        AUTO, Text(longest=20), "game steps per option: auto (the controller chooses, 1 to 128), a number"
    )
    discount: str = deciding("decisions", Text(("decisions", "steps")), "the controller discounts per decision or step")
    bootstrap_on_switch: bool = deciding(True, Flag(), "end an option's return where another follows it")
    exploration: float = deciding(1.0, Number(0, 1e6), "decisions' exploration weight, relative to actions'")
    anneal_exploration_to: float = deciding(
        1.0, Number(0, 1e6, above=True), "final share of it, at the limit of steps or seconds; exponential decay"
    )
    heads: str = deciding("active", Text(("active", "all")), "choices in the loss: those that act, or all")
    coefficients: str = deciding(
        "0,0.25,0.5,0.75,1", Text(longest=200), "coefficients among which the controller chooses"
    )
    sum_to_one: bool = deciding(True, Flag(), "divide a mixture's coefficients by their sum")

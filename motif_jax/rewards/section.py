"""The values of the section `policy` that reward sources read, and its inner sections. Loads no JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from motif_jax.annotation.section import AnnotateSection
from motif_jax.config.table import PATH, Flag, Number, Text, Whole, value
from motif_jax.rewards.online.online_section import OnlineValues

AUTO = "auto"  # of `control.length`
MIXTURES = "mixtures"  # of `controller_chooses`


@dataclass(frozen=True)
class Options:
    """Options over rewards."""

    options: str = value(
        "",
        Text(longest=2000),
        "sums of rewards, one per option: gold:1,stairs:20,down=stairs+learnt:0.1 (docs/options.md); empty: none",
        decides=True,
    )
    controller: str = value("", Text(longest=1000), "sum of rewards for which the controller chooses", decides=True)
    controller_chooses: str = value(
        "options", Text(("options", MIXTURES)), "options, one at a time; or mixtures of them", decides=True
    )


@dataclass(frozen=True)
class ControlSection:
    """The controller of options."""

    length: str = value(
        AUTO, Text(longest=20), "game steps per option: auto (the controller chooses 1 to 128) or a number",
        decides=True,
    )  # fmt: skip
    discount: str = value(
        "decisions",
        Text(("decisions", "steps")),
        "the controller discounts once per decision, or for every game step",
        decides=True,
    )
    bootstrap_on_switch: bool = value(True, Flag(), "end an option's return where another follows it", decides=True)
    exploration: float = value(
        1.0, Number(0, 1e6), "weight of decisions' exploration term, as a multiple of that of actions", decides=True
    )
    anneal_exploration_to: float = value(
        1.0, Number(0, 1e6, above=True), "final share of it, at train_for_env_steps; exponential decay", decides=True
    )
    heads: str = value(
        "in_effect", Text(("in_effect", "all")), "choices in the loss: those that took effect, or all", decides=True
    )
    coefficients: str = value(
        "0,0.25,0.5,0.75,1", Text(longest=200), "coefficients among which the controller chooses",
        decides=True,
    )  # fmt: skip
    sum_to_one: bool = value(True, Flag(), "divide a mixture's coefficients by their sum", decides=True)


@dataclass(frozen=True)
class CountValues:
    """The source count: the n-th appearance in an episode is worth 1 / n^exponent."""

    of: str = value("event_message", Text(longest=100), "observation: event_message, position, crop, ...", decides=True)
    exponent: float = value(0.5, Number(0, 100), "exponent", decides=True)


@dataclass(frozen=True)
class DistillationValues:
    """The source rnd: random network distillation, which rewards novel observations."""

    learning_rate: float = value(
        1e-4, Number(0, 1, above=True), "learning rate of the predictor, which takes one step per update", decides=True
    )
    hidden: int = value(128, Whole(1, 65536), "units of the hidden layers", decides=True)
    outputs: int = value(64, Whole(1, 65536), "outputs of the random network", decides=True)


@dataclass(frozen=True)
class Repeatable:
    """Repeatable runs."""

    synchronous: bool = value(False, Flag(), "bit-identical runs, with at most one worker")


@dataclass(frozen=True)
class RewardsSection(Options, Repeatable):
    """Rewards of the agent."""

    sources: str = value(
        "learnt",
        Text(longest=1000),
        "reward sources beside the game: learnt,explore:0.01,online:0.4,count:0.05,rnd:0.1,code:gold.reward,my:My:0.2",
        decides=True,
    )
    extrinsic_coefficient: float = value(0.1, Number(-1e6, 1e6), "coefficient of the game's reward", decides=True)
    intrinsic_coefficient: float = value(
        0.1, Number(-1e6, 1e6), "coefficient of the learnt reward; 0: no learnt reward is needed", decides=True
    )
    reward_dir: str = value("", PATH, "workdir or checkpoints of the learnt reward; empty: this workdir", decides=True)
    reward_checkpoint: str = value("last", Text(longest=20), "last, best, or the number of an epoch", decides=True)
    reward_scale: float = value(0.1, Number(-1e6, 1e6), "scale of the game's reward, before clipping", decides=True)
    reward_clip: float = value(10.0, Number(0, above=True, infinite=True), "clip of the scaled reward, ±", decides=True)
    threshold_quantile: float = value(
        0.5, Number(high=1, infinite=True), "learnt rewards up to this quantile are 0; -1: keep all", decides=True
    )
    count_exponent: float = value(
        3.0, Number(0, infinite=True), "a message's n-th appearance in an episode is paid 1 / n^exponent", decides=True
    )
    pay: str = value(
        "reward",
        Text(("reward", "share")),
        "reward: the learnt reward above the quantile; share: its share of the best captions' reward (docs/motif.md)",
        decides=True,
    )
    reference_alignment: bool = value(
        False,
        Flag(),
        "as published: reward a message one step late, and the last one of an episode never",
        decides=True,
        differs="the learnt reward is credited to the step that caused the message, also to an episode's last step",
    )
    count: CountValues = field(default_factory=CountValues)
    rnd: DistillationValues = field(default_factory=DistillationValues)
    online: OnlineValues = field(default_factory=OnlineValues)
    control: ControlSection = field(default_factory=ControlSection)


class NamedSources(Protocol):
    """A stage's config, of which reward sources are asked for by name."""

    @property
    def env(self) -> Mapping[str, Any]: ...
    @property
    def policy(self) -> RewardsSection: ...


class SourcesConfig(NamedSources, Protocol):
    """A stage's config, from which reward sources are made."""

    @property
    def seed(self) -> int: ...
    @property
    def annotate(self) -> AnnotateSection: ...

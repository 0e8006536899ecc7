"""The learner's settings, as values of the config. Nothing here loads JAX."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from motif_jax.config.table import Flag, Number, Text, Whole, deciding
from motif_jax.envs.own_code import failure, guarded, load_class
from motif_jax.names import ALGORITHMS, SCHEDULES
from motif_jax.structs import UserError

FLAG = "--config.policy.algorithm"
RATIO_RANGE = (0.05, 20.0)  # of APPO, as in sample-factory
FINITE_RANGE = (1e-9, 1e9)  # of the others, only to avoid overflow


@dataclass(frozen=True)
class LearnerSection:
    """How the policy learns: algorithm, optimizer and losses."""

    algorithm: str = deciding(
        "appo",
        Text(tuple(ALGORITHMS), own=True),
        "appo: V-trace, clipped surrogate; impala: V-trace policy gradient; grpo, gigpo: advantages within groups; or "
        "your own as module:Class",
    )
    num_epochs: int = deciding(1, Whole(1, 1_000_000), "passes over a batch")
    num_minibatches: int = deciding(1, Whole(1), "minibatches per pass")
    discount: float = deciding(0.99, Number(0, 1), "discount factor")
    learning_rate: float = deciding(1e-4, Number(0, above=True), "learning rate of Adam")
    anneal_learning_rate_to: float = deciding(
        1.0, Number(0, 1e6), "final share of it, at the limit of steps or seconds"
    )
    learning_rate_decay: str = deciding("linear", Text(tuple(SCHEDULES)), "the way to this share")
    learning_rate_warmup: int = deciding(0, Whole(0, 10**9), "optimizer steps to rise from 0, for pretrained networks")
    adam_eps: float = deciding(1e-6, Number(0, 1, above=True), "Adam's epsilon")
    max_gradient_norm: float = deciding(4.0, Number(0, above=True, infinite=True), "maximum global norm of gradients")
    clip_ratio: float = deciding(0.1, Number(0, infinite=True), "clipping of probability ratios, except in impala")
    clip_value: float = deciding(
        1.0,
        Number(0, infinite=True),
        "clipping of value changes per batch; 0: none",
        differs="in goal tasks the value loss is not clipped: goal rewards are 50, so clipping would stall learning",
    )
    value_coefficient: float = deciding(0.5, Number(0, 1e6), "weight of the value loss")
    exploration_coefficient: float = deciding(0.003, Number(0, 1e6), "coefficient of the entropy bonus")
    anneal_exploration_to: float = deciding(
        1.0, Number(0, 1e6), "final share of it, at the limit of steps or seconds; linear"
    )
    clip_rho: float = deciding(1.0, Number(0, above=True, infinite=True), "clipping of V-trace's rho")
    clip_c: float = deciding(1.0, Number(0, above=True, infinite=True), "clipping of V-trace's c")
    gae_lambda: float = deciding(0.95, Number(0, 1), "ppo: lambda of generalised advantage estimation")
    bootstrap: str = deciding(
        "explicit",
        Text(("explicit", "inferred", "never")),
        "value after a rollout; inferred loses every 32nd reward, never is GLAM's",
        differs="every 32nd reward, that of a rollout's last step, is kept",
    )
    normalise_advantages: bool = deciding(True, Flag(), "normalise advantages by their mean and deviation")
    normalise_over_all: bool = deciding(
        False,
        Flag(),
        "include samples beyond max_policy_lag in these statistics",
        differs="advantages are normalised over the samples that the learner uses, without those that are too old",
    )
    max_policy_lag: int = deciding(10_000, Whole(1), "ignore samples of policies older than this many updates")


@dataclass(frozen=True)
class Settings(LearnerSection):
    """The learner's settings: those of the config, and constants."""

    adam_b1: float = 0.9
    adam_b2: float = 0.999
    total_updates: int = 0  # 0: nothing is annealed


@dataclass(frozen=True)
class GroupSettings:
    """The groups of grpo and gigpo."""

    group_size: int = deciding(8, Whole(2, 65_536), "episodes per group, which share a seed")
    divide_by: str = deciding("deviation", Text(("deviation", "nothing")), "divisor of the advantages in a group")
    mean_over: str = deciding(
        "steps",
        Text(("steps", "episodes", "limit")),
        "mean of the loss: of all steps; of episodes; of episodes, whose sums are divided by rollout_length",
    )
    ratio: str = deciding("step", Text(("step", "episode")), "probability ratios of steps, or their means in episodes")
    clip_high: float = deciding(0.0, Number(0, infinite=True), "clipping of ratios above 1; 0: as below, clip_ratio")
    reference_coefficient: float = deciding(0.0, Number(0, 1e6), "weight of divergence from the first policy; 0: none")
    step_weight: float = deciding(1.0, Number(0, 1e6), "gigpo: weight of advantages among visits of the same moment")


class Learning(NamedTuple):
    """The inputs of `Algorithm.make_learner`."""

    model: Any  # policies.model.Model
    mesh: Any
    settings: Settings
    shape_rewards: Any  # update.ShapeRewards


class Algorithm(abc.ABC):
    """Everything that is particular about an algorithm. JAX is loaded only in methods: checks ask for the rest."""

    on_policy = False  # games wait while it learns
    in_groups = False  # it compares episodes that begin alike
    compares_visits = False  # in groups: also steps from the same moment
    from_replay = False  # minibatches are drawn from a buffer
    cuts_steps = False  # without memory, minibatches consist of single steps

    def check(self, config: Any, limit: int, hosts: int) -> None:  # noqa: B027  (most check nothing)
        """Raises UserError for values of the config that cannot work; `limit`: steps of an episode."""

    def splits_steps(self, section: Any, memory: bool) -> bool:
        """Whether minibatches consist of single steps, not of a batch's columns (rollouts of games)."""
        return self.cuts_steps and not memory

    def group(self, section: Any) -> GroupSettings | None:
        """The settings of groups of episodes; None for an algorithm without groups."""
        return section.grpo if self.in_groups else None

    @abc.abstractmethod
    def make_learner(self, config: Any, world: Any, learning: Learning) -> tuple[Any, Any]:
        """A function that makes the learner's state from parameters, and the update, which is not compiled yet."""


class PolicyGradient(Algorithm):
    """An algorithm whose optimizer steps are those of update.py."""

    ratio_range: tuple[float, float] | None = FINITE_RANGE  # limits of pi / mu; None: it is not clamped

    def once_per_update(self, data: Any, state: Any, frozen: Any, unroll: Any, settings: Settings, group: Any) -> Any:
        """Adds to `losses.Samples` what all optimizer steps of an update share."""
        return data

    @abc.abstractmethod
    def targets(self, data: Any, values: Any, ratio: Any, settings: Settings, acting: Any) -> Any:
        """The `losses.Targets` of an optimizer step, from `losses.Samples` after `once_per_update`.

        `values`: of all observations, by the trained policy, as `Acting.unrolled` gives them: [T + 1, B], or more rows
        for what acts in another way (`acting`). `ratio`: pi / mu. [T, B]
        """

    @abc.abstractmethod
    def policy_loss(self, inputs: Any, settings: Settings, group: GroupSettings | None) -> Any:
        """This device's part of the loss of the policy, from `losses.LossInputs`. []"""

    def bounds(self, settings: Settings, group: GroupSettings | None) -> tuple[float, float]:
        """Ratios beyond which `policy_loss` is clipped, for the metric `fraction_clipped`."""
        return 0.0, math.inf


def find_algorithm(name: str) -> Algorithm:
    """The algorithm of a short name or of a user's `module:Class`; raises UserError if it cannot be used."""
    made = load_class(ALGORITHMS.get(name, name), "algorithm", FLAG)
    if not (isinstance(made, type) and issubclass(made, Algorithm)):
        raise UserError(f"the algorithm {name!r} must be a subclass of {__name__}:Algorithm ({FLAG})")
    with guarded(lambda error: failure(f"the algorithm {name!r}", FLAG, error)):
        return made()

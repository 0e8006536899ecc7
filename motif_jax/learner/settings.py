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
RATIO_RANGE = (0.05, 20.0)  # of pi / mu in APPO, as in sample-factory
FINITE_RANGE = (1e-9, 1e9)  # of the others, only to avoid overflow


@dataclass(frozen=True)
class LearnerSection:
    """How the policy learns: algorithm, optimizer and losses."""

    algorithm: str = deciding(
        "appo",
        Text(tuple(ALGORITHMS), own=True),
        "appo: V-trace, clipped surrogate; impala: V-trace policy gradient; or your own as module:Class",
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


class Learning(NamedTuple):
    """The inputs of `Algorithm.make_learner`."""

    model: Any  # policies.model.Model
    mesh: Any
    settings: Settings
    shape_rewards: Any  # update.ShapeRewards


class Algorithm(abc.ABC):
    """Everything that is particular about an algorithm. JAX is loaded only in methods: checks ask for the rest."""

    on_policy = False  # games wait while it learns
    own_minibatches = False  # single steps are divided into minibatches in a way of its own, as from a buffer
    cuts_steps = False  # without memory, minibatches consist of single steps

    def check(self, config: Any, limit: int, hosts: int) -> None:  # noqa: B027  (most check nothing)
        """Raises UserError for values of the config that cannot work; `limit`: steps of an episode."""

    def splits_steps(self, config: Any, memory: bool) -> bool:
        """Whether minibatches consist of single steps, not of a batch's columns (rollouts of games)."""
        return self.cuts_steps and not memory

    def make_playing(self, plain: Any, config: Any, mesh: Any) -> Any:
        """How its games are played: `plain`, a `Playing` of stages/train_policy/playing.py, or one of a subclass."""
        return plain

    @abc.abstractmethod
    def make_learner(self, config: Any, world: Any, learning: Learning) -> tuple[Any, Any]:
        """A function that makes the learner's state from parameters, and the update, which is not compiled yet."""


class PolicyGradient(Algorithm):
    """An algorithm whose optimizer steps are those of update.py; algorithms.py has what most of them share."""

    def once_per_update(self, data: Any, state: Any, frozen: Any, unroll: Any, settings: Settings) -> Any:
        """Adds to `losses.Samples` what all optimizer steps of an update share."""
        return data

    @abc.abstractmethod
    def ratio(self, log_ratio: Any, data: Any) -> Any:
        """pi / mu of each of `losses.Samples`, from its logarithm. [T, B]"""

    @abc.abstractmethod
    def targets(self, data: Any, values: Any, ratio: Any, settings: Settings, acting: Any) -> Any:
        """The `losses.Targets` of an optimizer step, from `losses.Samples` after `once_per_update`.

        `values`: of all observations, by the trained policy, as `Acting.unrolled` gives them: [T + 1, B], or more rows
        for what acts in another way (`acting`). `ratio`: pi / mu. [T, B]
        """

    @abc.abstractmethod
    def weigh(self, data: Any) -> Any:
        """The weight of each of `losses.Samples` in means over those of all devices. [T, B]"""

    @abc.abstractmethod
    def loss(self, inputs: Any, settings: Settings, exploration_coefficient: Any) -> tuple[Any, dict[str, Any]]:
        """This device's part of the loss and of metrics, from `losses.LossInputs`, as of `losses.sum_of_terms`."""

    def bounds(self, settings: Settings) -> tuple[float, float]:
        """Ratios beyond which the loss is clipped, for the metric `fraction_clipped`."""
        return 0.0, math.inf


def find_algorithm(name: str) -> Algorithm:
    """The algorithm of a short name or of a user's `module:Class`; raises UserError if it cannot be used."""
    made = load_class(ALGORITHMS.get(name, name), "algorithm", FLAG)
    if not (isinstance(made, type) and issubclass(made, Algorithm)):
        raise UserError(f"the algorithm {name!r} must be a subclass of {__name__}:Algorithm ({FLAG})")
    with guarded(lambda error: failure(f"the algorithm {name!r}", FLAG, error)):
        return made()

"""The outputs of a network that plays several options, and of their controller.

Players store these choices of each step in rollouts, [T, B] int32 each:

    chooser the behaviour in charge: an option, or the controller (number N), during whose steps the game waits
    next    the behaviour in charge of the next step, if the episode goes on
    drawn   the action that was drawn, also where the controller was in charge
    option  the option that was drawn, also where the controller was not in charge
    length  the same for the length of its turn, as an index

A controller that chooses mixtures has one head per coefficient. `option` is then the number of the mixture, whose
digits are the choices of these heads.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.contrib.options.plan import mixtures


class OptionHeads(NamedTuple):
    """Sizes of the heads, and of the observation BEHAVIOUR."""

    actions: int
    options: int  # N: options, or mixtures of them
    lengths: tuple[int, ...]  # of turns in game steps, among which the controller chooses; a single one has no head
    weights: np.ndarray | None = None  # of K options in each mixture, [N, K] float32; None: the options themselves
    levels: int = 0  # number of choices for each coefficient of a mixture

    @property
    def choices(self) -> tuple[int, ...]:
        """Sizes of the heads that choose the option, or the coefficients of the mixture."""
        return (self.options,) if self.weights is None else (self.levels,) * self.weights.shape[1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of logits: of actions, of options or coefficients, and of lengths if there is a choice."""
        return (self.actions, *self.choices, *([len(self.lengths)] if len(self.lengths) > 1 else []))

    @property
    def behaviours(self) -> int:
        """Size of the observation BEHAVIOUR."""
        return (self.options if self.weights is None else self.weights.shape[1]) + 1

    @property
    def columns(self) -> int:
        """Number of returns that are kept apart: of each option, or of all mixtures together, and of the controller."""
        return self.options + 1 if self.weights is None else 2

    def split(self, logits: jax.Array) -> list[jax.Array]:
        """The logits of each head. [..., sum of `sizes`]"""
        return jnp.split(logits, list(itertools.accumulate(self.sizes))[:-1], -1)

    def joint(self, chosen: Sequence[Any]) -> tuple[Any, Any]:
        """The option and the length that the controller's heads chose, as indices. [...] each"""
        chosen = list(chosen)
        length = chosen.pop() if len(self.lengths) > 1 else chosen[0] * 0
        option = chosen[0]
        for digit in chosen[1:]:
            option = option * self.levels + digit
        return option, length

    def digits(self, option: jax.Array) -> list[jax.Array]:
        """The choice of each head of `choices`. [...] each"""
        count = len(self.choices)
        if count == 1:
            return [option]
        return [option // self.levels ** (count - 1 - index) % self.levels for index in range(count)]

    def column(self, charge: jax.Array) -> jax.Array:
        """The column of the behaviour in charge. [...]"""
        return charge if self.weights is None else (charge == self.options).astype(charge.dtype)

    def same(self, first: jax.Array, second: jax.Array) -> jax.Array:
        """Whether two numbers are of the same option, or of mixtures with the same coefficients. [...] bool"""
        if self.weights is None:
            return first == second
        return (self.behaviour(first) == self.behaviour(second)).all(-1)

    def behaviour(self, charge: jax.Array, mixture: tuple[float, ...] | None = None) -> jax.Array:
        """The observation BEHAVIOUR: the option as a vector with a single 1, or the mixture.

        Its last number is 1 where the controller is in charge. A `mixture` replaces that of `charge`.
        [...] -> [..., behaviours] float32
        """
        if mixture is not None:
            return jnp.broadcast_to(jnp.array([*mixture, 0.0]), (*charge.shape, self.behaviours))
        if self.weights is None:
            return jax.nn.one_hot(charge, self.options + 1)
        rows = np.zeros((self.options + 1, self.behaviours), np.float32)
        rows[:-1, :-1], rows[-1, -1] = self.weights, 1.0
        return jnp.asarray(rows)[charge]


def heads_of(plan: Mapping[str, Any], actions: int) -> OptionHeads:
    """The heads for a checkpoint's plan of options (`OptionPlan.record`)."""
    names, lengths, coefficients = plan["names"], tuple(plan["lengths"]), plan.get("coefficients", ())
    if not coefficients:
        return OptionHeads(actions, len(names), lengths)
    weights = mixtures(tuple(coefficients), len(names), plan["sum_to_one"])
    return OptionHeads(actions, len(weights), lengths, weights, len(coefficients))

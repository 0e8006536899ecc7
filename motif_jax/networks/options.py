"""The outputs of a network that plays several options and their controller.

Players store these choices of each step in rollouts, [T, B] int32 each:

    charge  who was in charge of the step: an option, or the controller (number K), during whose steps the game waits
    next    who is in charge of the next step, if the episode goes on
    drawn   the action that was drawn, also where the controller was in charge
    option  the option that was drawn, also where the controller was not in charge
    length  the same for the length of its turn, as an index
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp

CHOICES = ("charge", "next", "drawn", "option", "length")


class OptionHeads(NamedTuple):
    """Sizes of the heads."""

    actions: int
    options: int  # K
    lengths: tuple[int, ...]  # of turns in game steps, among which the controller chooses; a single one has no head

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of logits: of actions, of options, and of lengths if there is a choice."""
        return (self.actions, self.options, *([len(self.lengths)] if len(self.lengths) > 1 else []))

    def split(self, logits: jax.Array) -> list[jax.Array]:
        """The logits of each head. [..., A + K + L]"""
        return jnp.split(logits, list(itertools.accumulate(self.sizes))[:-1], -1)

    def who(self, charge: jax.Array) -> jax.Array:
        """The observation TOLD. [...] -> [..., K + 1] float32"""
        return jax.nn.one_hot(charge, self.options + 1)

"""Rates that change during training, for everything that learns; `names.SCHEDULES` has their short names.

A `Decay` makes an optax schedule: `start` at first, `share * start` after `steps`, and the same from then on. JAX is
loaded by schedules alone, as a config is checked without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from motif_jax.names import SCHEDULES, find

Schedule = Callable[[Any], Any]  # as optax.Schedule: the rate at a count


class Decay(NamedTuple):
    """A way from the first rate to the last one."""

    make: Callable[[float, float, int], Schedule]  # of start, share and steps
    reaches_zero: bool  # whether `share` can be 0


def schedule(name: str, start: float, share: float, steps: int) -> Schedule:
    """The schedule of a name; constant, and the same program for all lengths, if `share` is 1 or `steps` is 0."""
    decay: Decay = find(SCHEDULES, name)
    return decay.make(start, share, steps) if steps and share != 1 else lambda count: start


def linear(start: float, share: float, steps: int) -> Schedule:
    """A straight line."""
    return lambda count: start + (start * share - start) * _passed(count, steps)


def cosine(start: float, share: float, steps: int) -> Schedule:
    """Half a period of a cosine."""
    import optax

    return optax.cosine_decay_schedule(start, steps, share)


def exponential(start: float, share: float, steps: int) -> Schedule:
    """By the same share in each step."""
    return lambda count: start * share ** _passed(count, steps)


LINEAR = Decay(linear, reaches_zero=True)
COSINE = Decay(cosine, reaches_zero=True)
EXPONENTIAL = Decay(exponential, reaches_zero=False)


def _passed(count: Any, steps: int) -> Any:
    """The share of the steps that has passed. `steps` may be too many for an int32, as which JAX would take an int."""
    import jax.numpy as jnp

    return jnp.float32(jnp.minimum(count / float(steps), 1.0))

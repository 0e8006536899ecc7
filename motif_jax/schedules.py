"""Rates that change during training, for everything that learns; `names.SCHEDULES` has their short names.

Each function makes an optax schedule: `start` at first, `share * start` after `steps`, and the same from then on.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import optax

from motif_jax.names import SCHEDULES, find


def schedule(name: str, start: float, share: float, steps: int) -> optax.Schedule:
    """The schedule of a name; constant, and the same program for all lengths, if `share` is 1 or `steps` is 0."""
    made: optax.Schedule = (
        find(SCHEDULES, name)(start, share, steps) if steps and share != 1 else optax.constant_schedule(start)
    )
    return made


def linear(start: float, share: float, steps: int) -> optax.Schedule:
    """A straight line."""
    return lambda count: jnp.float32(start) + (start * share - start) * _passed(count, steps)


def cosine(start: float, share: float, steps: int) -> optax.Schedule:
    """Half a period of a cosine."""
    return optax.cosine_decay_schedule(start, steps, share)


def exponential(start: float, share: float, steps: int) -> optax.Schedule:
    """By the same share in each step."""
    return lambda count: start * jnp.float32(share) ** _passed(count, steps)


def _passed(count: Any, steps: int) -> Any:
    """The share of the steps that has passed. `steps` may be too many for an int32, as which JAX would take an int."""
    return jnp.minimum(count / float(steps), 1.0)

"""Running mean and variance on the devices, merged batch by batch (Chan et al. 1983).

    share    = n_batch / n_all
    mean     = mean + share * (mean_batch - mean)
    variance = variance + share * (variance_batch - variance) + share * (1 - share) * (mean_batch - mean)^2

Written with shares, no sum grows without bound, so float32 does for any number of steps.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.devices.mesh import total


class Moments(NamedTuple):
    """Of all values seen so far; `number` 0 before the first."""

    number: jax.Array  # of values; () float32
    mean: jax.Array  # [...]
    variance: jax.Array  # [...], divided by the number


def no_moments(shape: tuple[int, ...] = ()) -> Moments:
    """Nothing has been seen."""
    return Moments(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def add_values(moments: Moments, values: jax.Array) -> Moments:
    """Adds a batch of values, those of all devices, inside a function that `parallel.map_update` maps. [N, ...]"""
    here = jnp.float32(len(values))
    new = total(here)
    mean = total(values.sum(0)) / new
    variance = total(((values - mean) ** 2).sum(0)) / new
    number = moments.number + new
    share, shift = new / number, mean - moments.mean
    return Moments(
        number,
        moments.mean + share * shift,
        moments.variance + share * (variance - moments.variance) + share * (1 - share) * shift**2,
    )

"""Running mean and variance, merged batch by batch (Chan et al. 1983), on the devices and on the host.

    share    = n_batch / n_all
    mean     = mean + share * (mean_batch - mean)
    variance = variance + share * (variance_batch - variance) + share * (1 - share) * (mean_batch - mean)^2

With shares instead of sums no number grows without bound, so float32 suffices for any number of steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.devices.mesh import total

LEAST = 1e-6  # number of values that a batch without any counts as, so that nothing is divided by 0


class RunningStats(NamedTuple):
    """Mean and variance of all values so far: Python numbers, or float32 arrays on the devices."""

    number: Any = 0.0  # of values
    mean: Any = 0.0  # [...]
    variance: Any = 0.0  # [...], divided by the number

    @classmethod
    def of(cls, values: np.ndarray) -> RunningStats:
        if not values.size:
            return cls()
        return cls(float(values.size), float(values.mean(dtype=np.float64)), float(values.var(dtype=np.float64)))

    def merge(self, other: RunningStats) -> RunningStats:
        """Mean and variance of the values of both together."""
        number = self.number + other.number
        if isinstance(number, float) and not number:
            return self
        share, shift = other.number / number, other.mean - self.mean
        variance = self.variance + share * (other.variance - self.variance) + share * (1 - share) * shift**2
        return RunningStats(number, self.mean + share * shift, variance)

    def normalise(self, values: np.ndarray) -> np.ndarray:
        """Scales to mean 0 and variance 1 over all values so far; zeros until two of these differ."""
        if not self.variance > 0:
            return np.zeros_like(values)
        return (values - self.mean) / self.variance**0.5


def no_stats(shape: tuple[int, ...] = ()) -> RunningStats:
    """The statistics before the first value, on the devices."""
    return RunningStats(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def add_values(stats: RunningStats, values: jax.Array, weight: jax.Array) -> RunningStats:
    """Adds the values of all devices, inside a function that `mesh.map_update` maps. [N, ...] per device

    `weight`: 1 for values that count, else 0. [N]
    """
    new = jnp.maximum(total(weight.sum()), LEAST)
    weight = weight.reshape(-1, *[1] * (values.ndim - 1))
    mean = total((weight * values).sum(0)) / new
    return stats.merge(RunningStats(new, mean, total((weight * (values - mean) ** 2).sum(0)) / new))

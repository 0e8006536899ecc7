"""Running mean and variance in NumPy, merged batch by batch (Chan et al. 1983); moments.py has them on the devices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Running(NamedTuple):
    """Of all values seen so far."""

    number: float = 0.0
    mean: float = 0.0
    variance: float = 0.0  # divided by the number

    def merge(self, other: Running) -> Running:
        """Of the values of both."""
        number = self.number + other.number
        if not number:
            return self
        share, shift = other.number / number, other.mean - self.mean
        variance = self.variance + share * (other.variance - self.variance) + share * (1 - share) * shift**2
        return Running(number, self.mean + share * shift, variance)

    def normalise(self, values: np.ndarray) -> np.ndarray:
        """Scales to mean 0 and variance 1 over all values seen; zeros before there are two different ones."""
        if not self.variance > 0:
            return np.zeros_like(values)
        return (values - self.mean) / self.variance**0.5


def running(values: np.ndarray) -> Running:
    """Of these values."""
    if not values.size:
        return Running()
    return Running(float(values.size), float(values.mean(dtype=np.float64)), float(values.var(dtype=np.float64)))

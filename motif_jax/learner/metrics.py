"""How metrics of several devices, minibatches, epochs and updates become one number: by the kind that each declares."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

import jax

from motif_jax.devices.mesh import DATA, total


class Minimum(NamedTuple):
    """A metric of which the lowest value counts."""

    value: Any


class Maximum(NamedTuple):
    """A metric of which the highest value counts."""

    value: Any


Reduce = Callable[[Any], Any]
Metrics = dict[str, Any]  # by name: a mean, whatever the name; or a Minimum or Maximum


def over_devices(metrics: Metrics) -> Metrics:
    """Metrics of all devices, of which a mean is the sum of the devices' parts; inside a mapped function."""
    return _reduced(metrics, total, partial(jax.lax.pmin, axis_name=DATA), partial(jax.lax.pmax, axis_name=DATA))


def over_steps(metrics: Metrics) -> Metrics:
    """Metrics of several steps, whose values lie along the only axis, as those of all. NumPy's arrays or JAX's"""
    return _reduced(metrics, *map(methodcaller, ("mean", "min", "max")))


def numbers(metrics: Metrics) -> dict[str, float]:
    """The metrics on the host, without their kinds."""
    return {name: float(one.value if isinstance(one, Minimum | Maximum) else one) for name, one in metrics.items()}


def _reduced(metrics: Metrics, mean: Reduce, lowest: Reduce, highest: Reduce) -> Metrics:
    def reduced(one: Any) -> Any:
        if isinstance(one, Minimum):
            return Minimum(lowest(one.value))
        return Maximum(highest(one.value)) if isinstance(one, Maximum) else mean(one)

    return {name: reduced(one) for name, one in metrics.items()}

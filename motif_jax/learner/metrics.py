"""How metrics of several devices, minibatches, epochs and updates become one number: by the kind that each declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from motif_jax.devices.mesh import DATA, total


class Minimum(NamedTuple):
    """A metric of which the lowest value counts."""

    value: Any


class Maximum(NamedTuple):
    """A metric of which the highest value counts."""

    value: Any


Metrics = dict[str, Any]  # by name: a mean, whatever the name; or a Minimum or Maximum


def over_devices(metrics: Metrics) -> Metrics:
    """Metrics of all devices, of which a mean is the sum of the devices' parts; inside a mapped function."""
    lowest, highest = (lambda value: jax.lax.pmin(value, DATA)), (lambda value: jax.lax.pmax(value, DATA))
    return {name: _kept(one, total, lowest, highest) for name, one in metrics.items()}


def over_steps(metrics: Metrics) -> Metrics:
    """Metrics of several steps, whose values lie along the only axis, as those of all. NumPy's arrays or JAX's"""
    reduce = (lambda array: array.mean()), (lambda array: array.min()), (lambda array: array.max())
    return {name: _kept(one, *reduce) for name, one in metrics.items()}


def numbers(metrics: Metrics) -> dict[str, float]:
    """The metrics on the host, without their kinds."""
    return {name: float(getattr(one, "value", one)) for name, one in metrics.items()}


def _kept(one: Any, mean: Callable[..., Any], lowest: Callable[..., Any], highest: Callable[..., Any]) -> Any:
    if isinstance(one, Minimum):
        return Minimum(lowest(one.value))
    return Maximum(highest(one.value)) if isinstance(one, Maximum) else mean(one)

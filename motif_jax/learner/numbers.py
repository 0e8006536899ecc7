"""The terms of the loss for actions that are numbers, drawn from squashed Gaussians (networks/actions.py).

Each number is scaled to (-1, 1), so that bounds do not change the terms. Ratios are those of the Gaussians: the
squashing changes both densities by the same factor.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.learner.losses import part_of_mean
from motif_jax.networks.actions import Gaussian

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)  # of the mean over a standard normal variable
WEIGHTS = WEIGHTS / WEIGHTS.sum()
LOG_2PI = math.log(2 * math.pi)


class NumbersHead(NamedTuple):
    """As `losses.Head`, for D numbers."""

    new: Gaussian  # of the policy. [T, B, D]
    old: Gaussian  # of the acting policy. [T, B, D]
    taken: jax.Array  # u. [T, B, D]
    scale: None = None  # of the exploration term: 1

    @property
    def log_pi(self) -> jax.Array:
        """Log density of what was drawn, before it was squashed. [T, B]"""
        return log_density(self.new, self.taken)

    @property
    def log_mu(self) -> jax.Array:
        """That of the acting policy. [T, B]"""
        return log_density(self.old, self.taken)

    def entropy(self, weight: jax.Array) -> jax.Array:
        """This device's part of the mean entropy, in nats; 0.69 for a number that is uniform in (-1, 1)."""
        return part_of_mean(entropies(self.new).sum(-1), weight)

    def divergence(self, weight: jax.Array) -> jax.Array:
        """KL(mu || pi)"""
        difference = (self.old.mean - self.new.mean) * jnp.exp(-self.new.log_scale)
        change = self.old.log_scale - self.new.log_scale
        terms = (jnp.exp(2 * change) + difference**2 - 1) / 2 - change
        return part_of_mean(terms.sum(-1), weight)


def log_density(distribution: Gaussian, u: jax.Array) -> jax.Array:
    """[..., D] -> [...]"""
    z = (u - distribution.mean) * jnp.exp(-distribution.log_scale)
    return -(z**2 / 2 + distribution.log_scale + LOG_2PI / 2).sum(-1)


def entropies(distribution: Gaussian) -> jax.Array:
    """Entropies of tanh(u): those of the Gaussian plus the mean of log(1 - tanh(u)^2), by quadrature. [..., D]"""
    u = distribution.mean[..., None] + jnp.exp(distribution.log_scale)[..., None] * NODES.astype(np.float32)
    log_slope = 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))
    return (1 + LOG_2PI) / 2 + distribution.log_scale + log_slope @ WEIGHTS.astype(np.float32)

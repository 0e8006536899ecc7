"""The terms of the loss for actions that are numbers, against numerical integrals; for several choices, against one."""

import jax.numpy as jnp
import numpy as np
import pytest
from linear_policy import assert_near, make_rollouts, train, unroll
from losses_test import mean
from scipy import stats

from motif_jax.envs.world import ActionSpace
from motif_jax.learner.acting import Acting
from motif_jax.learner.losses import log_density, numbers_head, part_of_mean
from motif_jax.learner.settings import Settings
from motif_jax.networks.actions import Gaussian, gaussian, squash, unsquash

RNG = np.random.default_rng(0)
SHAPE = 9, 8, 3  # the batch of losses_test
NEW, OLD = (Gaussian(*map(np.float32, (RNG.normal(size=SHAPE), RNG.uniform(-2, 1, SHAPE)))) for _ in range(2))
U = RNG.normal(size=SHAPE).astype(np.float32)
GRID = np.linspace(-40, 40, 400_001)  # of u


@pytest.mark.quick
@pytest.mark.parametrize(("at", "log_scale"), [(0.0, 0.0), (0.7, -1.5), (-2.0, 0.3), (0.3, 1.0)])
def test_entropy_is_that_of_the_squashed_density(at, log_scale):
    p = stats.norm.pdf(GRID, at, np.exp(log_scale))
    log_slope = -2 * np.log(np.cosh(GRID))  # of tanh
    log_squashed = stats.norm.logpdf(GRID, at, np.exp(log_scale)) - log_slope  # by the change of variables
    entropy = -float((p * log_squashed).sum() * (GRID[1] - GRID[0]))
    one = Gaussian(*(jnp.full((9, 8, 1), number, jnp.float32) for number in (at, log_scale)))
    head = numbers_head(one, one, U)
    assert mean(lambda weight: part_of_mean(head.entropy, weight)) == pytest.approx(entropy, abs=4e-3)


@pytest.mark.quick
def test_ratios_do_not_depend_on_the_squashing_and_divergence_is_that_of_gaussians():
    head = numbers_head(NEW, OLD, U)
    scale = np.exp(NEW.log_scale), np.exp(OLD.log_scale)
    expected = [stats.norm.logpdf(U, one.mean, s).sum(-1) for one, s in zip((NEW, OLD), scale, strict=True)]
    np.testing.assert_allclose(head.log_pi, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(head.log_mu, expected[1], rtol=1e-4, atol=1e-5)
    many = RNG.normal(size=(400_000, 1))
    one = Gaussian(np.float32([0.5]), np.float32([-0.5])), Gaussian(np.float32([0.1]), np.float32([0.2]))
    drawn = np.float32(one[1].mean + np.exp(one[1].log_scale) * many)  # of the acting policy
    estimate = (log_density(one[1], drawn) - log_density(one[0], drawn)).mean()
    whole = numbers_head(*(Gaussian(*(jnp.full((9, 8, 1), part[0]) for part in each)) for each in one), U)
    assert mean(lambda weight: part_of_mean(whole.divergence, weight)) == pytest.approx(float(estimate), abs=1e-2)


@pytest.mark.quick
def test_numbers_come_back_from_what_was_recorded():
    space = ActionSpace((), (-2.0, 0.0, 10.0), (2.0, 1.0, 30.0))
    u = np.float32(RNG.normal(size=(1000, 3)) * 1.5)
    action = squash(space, u)
    assert ((action >= np.float32(space.low)) & (action <= np.float32(space.high))).all()
    np.testing.assert_allclose(unsquash(space, action), u, atol=2e-2)
    bounds = unsquash(space, jnp.array([space.low, space.high]))  # a game or a player may give exactly these
    assert np.isfinite(bounds).all()
    assert (np.abs(np.asarray(gaussian(jnp.full((1, 6), 1e6)))) <= 3).all()


@pytest.mark.parametrize("settings", [
    Settings(exploration_coefficient=0.1), Settings(algorithm="impala"),
    Settings(algorithm="ppo", num_epochs=2, num_minibatches=2),
], ids=lambda settings: settings.algorithm)  # fmt: skip
def test_two_choices_learn_as_one_choice_among_all_their_pairs(settings):
    mixed = RNG.normal(size=(3, 5)).astype(np.float32)

    def unroll_parts(*arguments):
        logits, values = unroll(*arguments)
        return logits @ mixed, values

    def joint(logits):  # the logits of all pairs of a choice among 2 and one among 3
        return (logits[..., :2, None] + logits[..., None, 2:]).reshape(*logits.shape[:-1], 6)

    def unroll_pairs(*arguments):
        logits, values = unroll_parts(*arguments)
        return joint(logits), values

    rollouts = make_rollouts()
    first, second = RNG.integers(2, size=(5, 16)), RNG.integers(3, size=(5, 16))
    logits = RNG.normal(size=(5, 16, 5)).astype(np.float32)
    spec = {"action_space": ActionSpace((2, 3)).record(), "num_actions": 5}
    parts = rollouts._replace(action=np.stack([first, second], -1), logits=logits)
    pairs = rollouts._replace(action=3 * first + second, logits=np.asarray(joint(logits)))
    several = train(settings, parts, policy=unroll_parts, acting=Acting(spec))
    assert_near(several, train(settings, pairs, policy=unroll_pairs), atol=1e-5)

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear_policy import BASE, B, T, make_params, make_rollouts

from motif_jax.learner.losses import Samples, gae, minibatch, next_values, vtrace, with_targets

PPO = replace(BASE, algorithm="ppo")
# a policy without memory, so that minibatches are cut from single steps
NO_MEMORY = np.zeros((1, B, 0), np.float32)


def forgetful(params, frozen, observations, first, core):
    x = observations["x"]
    features = jnp.concatenate([x, x[..., :2]], -1)
    return features @ params["policy"], (features @ params["value"])[..., 0]


def slow_gae(rewards, values, terminated, truncated, discount, decay, never=False):
    """Sums over the future of each step, as they are written in the paper. Values are [T + 1]."""
    steps = len(rewards)
    errors, goes_on = np.zeros(steps), np.zeros(steps)
    for t in range(steps):
        ended = terminated[t] or (never and truncated[t])
        cut = truncated[t] and not ended
        following = values[t] if cut else values[t + 1]
        errors[t] = rewards[t] + (0 if ended else discount * following) - values[t]
        goes_on[t] = not (ended or cut)
    advantages = np.zeros(steps)
    for t in range(steps):
        weight = 1.0
        for later in range(t, steps):
            advantages[t] += weight * errors[later]
            weight *= discount * decay * goes_on[later]
    return advantages


@pytest.mark.differs(
    "glam",
    there="a time limit counts as an end, so what follows has no value",
    here="the value of the last state stands for what follows",
    reference="as published (`bootstrap=never`)",
)
@pytest.mark.differs(
    "glam",
    there="Lamorel's examples train values on discounted sums of rewards",
    here="on advantage + value, as in GLAM",
)
@pytest.mark.quick
@pytest.mark.parametrize("bootstrap", ["explicit", "never"])
def test_advantages_are_the_papers_sums(bootstrap):
    rollouts, values = make_rollouts(), np.random.default_rng(3).normal(size=(T + 1, B)).astype(np.float32)
    ends = jnp.asarray(rollouts.terminated), jnp.asarray(rollouts.truncated)
    v_t, discount_t, trace_t = next_values(jnp.asarray(values), jnp.asarray(rollouts.reward), *ends, 0.9, bootstrap)
    estimates = gae(jnp.asarray(values[:-1]), v_t, jnp.asarray(rollouts.reward), discount_t, trace_t, 0.8)
    for game in range(B):
        wanted = slow_gae(rollouts.reward[:, game], values[:, game], rollouts.terminated[:, game],
                          rollouts.truncated[:, game], 0.9, 0.8, bootstrap == "never")  # fmt: skip
        np.testing.assert_allclose(estimates.advantages[:, game], wanted, atol=1e-5)
    np.testing.assert_allclose(estimates.targets, estimates.advantages + values[:-1], atol=1e-6)
    # V-trace without importance ratios, whose traces fade by lambda, has the same targets
    ones = jnp.ones((T, B))
    other = vtrace(jnp.asarray(values[:-1]), v_t, jnp.asarray(rollouts.reward), discount_t, ones,
                   trace_t, clip_c=0.8)  # fmt: skip
    np.testing.assert_allclose(estimates.targets, other.targets, atol=1e-6)


def test_without_memory_minibatches_are_made_of_steps_the_same_on_any_number_of_devices():
    rollouts = make_rollouts(core=NO_MEMORY)
    samples, params = Samples(rollouts, rollouts.reward, np.ones((T, B), bool)), make_params()
    data = jax.vmap(lambda _: with_targets(samples, params, (), forgetful, PPO), axis_name="data")(jnp.zeros(1))
    data = jax.tree.map(lambda array: np.asarray(array[0]), data)
    assert data.rollouts.action.shape == (1, T * B)
    assert data.rollouts.core.shape == (1, T * B, 0)
    np.testing.assert_array_equal(data.reward[0, :T], rollouts.reward[:, 0])  # game by game
    part = minibatch(data, jnp.int32(3), 10)  # 80 steps
    np.testing.assert_array_equal(part.reward[0], data.reward[0, 3::10])
    np.testing.assert_array_equal(part.rollouts.observations["x"][0], data.rollouts.observations["x"][0, 3::10])

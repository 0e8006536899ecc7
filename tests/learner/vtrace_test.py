import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.learner.losses import VTrace, next_values, vtrace

pytestmark = pytest.mark.quick
GAMMA = 0.97


def data(length: int = 23, batch: int = 7, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    ends = rng.random((2, length, batch)) < 0.15
    drawn = rng.normal(size=(2, length + 1, batch)).astype(np.float32)
    ratio = np.exp(rng.normal(size=(length, batch))).astype(np.float32)
    return {"values": drawn[0], "rewards": drawn[1, 1:], "terminated": ends[0], "truncated": ends[1], "ratio": ratio}


@functools.partial(jax.jit, static_argnames=("bootstrap", "discount", "clip_rho", "clip_c"))
def ours(values, rewards, terminated, truncated, ratio, bootstrap="explicit", discount=GAMMA, **clips) -> VTrace:
    v_t, discount_t, trace_t = next_values(values, rewards, terminated, truncated, discount, bootstrap)
    return vtrace(values[:-1], v_t, rewards, discount_t, ratio, trace_t, **clips)


def slow(values, rewards, terminated, truncated, ratio, bootstrap="explicit", discount=GAMMA, clip_rho=1.0, clip_c=1.0):
    """Backwards over the steps of one stream, as it is written down for the published system, in float64."""
    length = len(rewards)
    big = np.append(np.float64(values[:-1]), values[-1])
    if bootstrap == "inferred":
        big[length] = (big[length - 1] - rewards[-1]) / discount
    targets, advantages = np.zeros(length), np.zeros(length)
    small_next = big[length]
    for t in reversed(range(length)):
        rho, c, big_next = min(clip_rho, ratio[t]), min(clip_c, ratio[t]), big[t + 1]
        m = 0.0 if terminated[t] else 1.0
        if truncated[t] and not terminated[t]:
            big_next = small_next = big[t]  # nothing from the other episode
        delta = rho * (rewards[t] + discount * m * big_next - big[t])
        advantages[t] = rho * (rewards[t] + discount * m * small_next - big[t])
        targets[t] = big[t] + delta + discount * m * c * (small_next - big_next)
        small_next = targets[t]
    return targets, advantages


@pytest.mark.parametrize("clips", [{}, {"clip_rho": 2.0, "clip_c": 0.7}])
@pytest.mark.parametrize("bootstrap", ["explicit", "inferred"])
def test_it_is_the_slow_recursion(bootstrap, clips):
    inputs = data()
    result = ours(**inputs, bootstrap=bootstrap, **clips)
    for column in range(7):
        one = {name: array[:, column] for name, array in inputs.items()}
        expected = slow(**one, bootstrap=bootstrap, **clips)
        for array, wanted in zip(result, expected, strict=True):
            np.testing.assert_allclose(array[:, column], wanted, atol=1e-5)


def test_it_is_that_of_rlax():
    rlax = pytest.importorskip("rlax", reason="needs rlax: bash launch/test.sh installs it")
    inputs = {name: jnp.asarray(array[:, 0]) for name, array in data().items()}
    values, trace = inputs["values"], 1.0 - inputs["truncated"]
    v_tm1, v_t, discount = values[:-1], values[1:], GAMMA * (1.0 - inputs["terminated"])
    # rlax takes cuts as lambda = 0, and then the values of the rollout's own next states.
    streams = (v_tm1, v_t, inputs["rewards"], discount, inputs["ratio"], trace)
    result = jax.jit(vtrace)(*streams)
    np.testing.assert_allclose(result.targets - v_tm1, rlax.vtrace(*streams), atol=1e-5)
    theirs = rlax.vtrace_td_error_and_advantage(*streams)
    np.testing.assert_allclose(result.targets - v_tm1, theirs.errors, atol=1e-5)
    np.testing.assert_allclose(result.advantages, theirs.pg_advantage, atol=1e-5)
    # What stands in for the unseen value: errors only, as rlax's advantage does not look at `v_t` there.
    v_t = jnp.where(trace > 0, v_t, v_tm1)
    streams = (v_tm1, v_t, *streams[2:])
    np.testing.assert_allclose(jax.jit(vtrace)(*streams).targets - v_tm1, rlax.vtrace(*streams), atol=1e-5)

import columns_twin as twin
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.learner.options import decision_rewards, vtrace_in_columns

K = 3  # options


def streams(seed: int, steps: int = 24, games: int = 40) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(seed)
    shape = steps, games
    charge = np.where(chance.random(shape) < 0.25, K, np.repeat(chance.integers(0, K, (steps // 4, games)), 4, 0))
    terminated = chance.random(shape) < 0.06
    truncated = (chance.random(shape) < 0.06) & (chance.random(shape) < 0.7)  # sometimes at the same step
    return {
        "values": chance.normal(size=shape), "rewards": chance.normal(size=shape),
        "discounts": chance.choice([0.9, 0.99, 0.5], shape), "ratio": np.exp(chance.normal(size=shape)),
        "charge": charge, "switches": (chance.random(shape) < 0.3) & (charge != K), "terminated": terminated,
        "truncated": truncated, "last": chance.normal(size=(K + 1, games)),
        "known_last": chance.random((K + 1, games)) < 0.5,
    }  # fmt: skip


def both(data: dict[str, np.ndarray], **options) -> tuple:
    arrays = {one: jnp.asarray(data[one], jnp.float32) for one in ("values", "rewards", "discounts", "ratio", "last")}
    flags = {name: jnp.asarray(data[name]) for name in ("charge", "switches", "terminated", "truncated", "known_last")}
    return vtrace_in_columns(**arrays, **flags, **options), twin.vtrace_in_columns(**data, **options)


@pytest.mark.parametrize("options", [{}, {"inferred": True}, {"clip_rho": 2.0, "clip_c": 0.5}])
def test_targets_and_advantages_are_those_of_the_slow_twin(options):
    for seed in range(3):
        ours, expected = both(streams(seed), **options)
        np.testing.assert_allclose(ours.targets, expected[0], rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(ours.advantages, expected[1], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_a_decision_is_rewarded_with_the_sum_until_the_next_one(discount):
    data = streams(7)
    decides = data["charge"] == K
    ended = (data["terminated"] | data["truncated"]) & ~decides  # the game stands still in a decision
    ours = decision_rewards(jnp.float32(data["rewards"]), jnp.asarray(decides), jnp.asarray(ended), discount)
    wanted = twin.decision_rewards(data["rewards"], decides, ended, discount)
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-4)

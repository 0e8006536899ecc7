import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.contrib.options.control import decision_rewards, vtrace_in_columns
from motif_jax.learner import losses

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


def slow_rewards(rewards, decides, ended, discount=1.0):
    sums = np.zeros(rewards.shape)
    for game in range(rewards.shape[1]):
        for step in np.flatnonzero(decides[:, game]):
            factor = 1.0
            for later in range(step + 1, len(rewards)):
                if decides[later, game]:
                    break
                sums[step, game] += factor * rewards[later, game]
                factor *= discount
                if ended[later, game]:
                    break
    return sums


def next_of(step, charge, switches, terminated, truncated, known_last):
    """The next step of the same column in one game: its number, "ended", "cut", "unknown", or "last"."""
    column = charge[step]
    for now in range(step, len(charge)):
        if now > step and charge[now] == column:
            return now
        if terminated[now]:
            return "ended"
        if truncated[now]:
            return "cut"
        if now == step and switches[now]:
            return "unknown"
    return "last" if known_last[column] else "unknown"


def slow_vtrace(
    values, rewards, discounts, ratio, charge, switches, terminated, truncated, last, known_last,
    inferred=False, clip_rho=1.0, clip_c=1.0,
):  # fmt: skip
    """One game at a time: each target is a sum over all later steps of its column."""
    targets, advantages = np.zeros(values.shape), np.zeros(values.shape)
    for game in range(values.shape[1]):
        V, r, g, w = values[:, game], rewards[:, game], discounts[:, game], ratio[:, game]

        def after(step):
            following = next_of(
                step, charge[:, game], switches[:, game], terminated[:, game], truncated[:, game], known_last[:, game]
            )
            if following == "ended":
                return 0.0, None
            if following == "unknown" or (following == "cut" and inferred):
                return V[step] - r[step], None
            if following == "cut":
                return g[step] * V[step], None
            if following == "last":
                return g[step] * last[charge[step, game], game], None
            return g[step] * V[following], following

        def error(step):
            return min(w[step], clip_rho) * (r[step] + after(step)[0] - V[step])

        for step in range(len(values)):
            total, factor, now = 0.0, 1.0, step
            while now is not None:
                total += factor * error(now)
                factor *= g[now] * min(w[now], clip_c)
                now = after(now)[1]
            targets[step, game] = V[step] + total
        for step in range(len(values)):
            future, following = after(step)
            if following is not None:
                future = g[step] * targets[following, game]
            advantages[step, game] = min(w[step], clip_rho) * (r[step] + future - V[step])
    return targets, advantages


@pytest.mark.parametrize("options", [{}, {"inferred": True}, {"clip_rho": 2.0, "clip_c": 0.5}])
def test_targets_and_advantages_are_those_of_the_slow_twin(options):
    for seed in range(3):
        data = streams(seed)
        given = {name: jnp.asarray(one, jnp.float32 if one.dtype == float else None) for name, one in data.items()}
        ours, expected = vtrace_in_columns(**given, **options), slow_vtrace(**data, **options)
        np.testing.assert_allclose(ours.targets, expected[0], rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(ours.advantages, expected[1], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("bootstrap", ["explicit", "inferred", "never"])
def test_a_single_column_is_the_v_trace_of_a_policy_alone(bootstrap):
    """Without decisions and switches: all steps are one option's, whose value after the last step is known."""
    for seed in range(3):
        chance = np.random.default_rng(seed)
        shape = steps, games = 24, 40
        values, rewards = (jnp.float32(chance.normal(size=size)) for size in ((steps + 1, games), shape))
        ratio = jnp.float32(np.exp(chance.normal(size=shape)))
        terminated, truncated = (jnp.asarray(chance.random(shape) < 0.15) for _ in range(2))  # sometimes together
        next_values = losses.next_values(values, rewards, terminated, truncated, 0.9, bootstrap)
        alone = losses.vtrace(values[:-1], next_values[0], rewards, next_values[1], ratio, next_values[2], 1.2, 0.7)
        ended = terminated | truncated if bootstrap == "never" else terminated
        known = np.arange(K + 1)[:, None] * np.ones(games) == 1
        ours = vtrace_in_columns(
            values[:-1], rewards, jnp.full(shape, 0.9), ratio, jnp.ones(shape, jnp.int32), jnp.zeros(shape, bool),
            ended, truncated, jnp.where(known, values[-1], 0.0), jnp.asarray(known & (bootstrap != "inferred")),
            clip_rho=1.2, clip_c=0.7,
        )  # fmt: skip
        np.testing.assert_allclose(ours.targets, alone.targets, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(ours.advantages, alone.advantages, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_a_decision_is_rewarded_with_the_sum_until_the_next_one(discount):
    data = streams(7)
    decides = data["charge"] == K
    ended = (data["terminated"] | data["truncated"]) & ~decides  # the game stands still in a decision
    ours = decision_rewards(jnp.float32(data["rewards"]), jnp.asarray(decides), jnp.asarray(ended), discount)
    wanted = slow_rewards(data["rewards"], decides, ended, discount)
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-4)

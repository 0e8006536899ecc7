"""One update: what Adam does with the loss, on any number of devices, in minibatches, with samples that are of no use."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import ROOT

from motif_jax.learner.update import LearnerState, Rewards, Rollouts, Settings, init_state, make_update
from motif_jax.learner.vtrace import next_values, vtrace
from motif_jax.parallel import make_mesh, map_update, replicate, shard

T, B, A, D, H = 5, 16, 3, 4, 2
VERSION = 7
FAST = {"learning_rate": 1e-2, "learning_rate_end": 1e-2}


def unroll(params, observations, first, core):
    """A linear policy with a memory that fades, and is lost when an episode begins."""

    def remember(core, step):
        x, first = step
        core = jnp.where(first[:, None], 0.0, core) / 2 + x @ params["core"]
        return core, jnp.concatenate([x, core], -1)

    _, features = jax.lax.scan(remember, core, (observations["x"], first))
    return features @ params["policy"], (features @ params["value"])[..., 0]


def shape_rewards(constants, rollouts):
    intrinsic = constants["scale"] * rollouts.moments["m"]
    return Rewards(rollouts.reward + intrinsic, rollouts.reward, intrinsic)


CONSTANTS = {"scale": jnp.float32(0.5)}


def make_params(seed: int = 0):
    rng = np.random.default_rng(seed)
    shapes = {"core": (D, H), "policy": (D + H, A), "value": (D + H, 1)}
    return {name: (rng.normal(size=shape) / 2).astype(np.float32) for name, shape in shapes.items()}


def make_rollouts(seed: int = 1, **changes) -> Rollouts:
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    terminated, truncated = rng.random((2, T, B)) < 0.1
    rollouts = Rollouts(
        observations={"x": normal(T + 1, B, D)},
        first=np.concatenate([rng.random((1, B)) < 0.2, terminated | truncated]),
        core=normal(1, B, H),
        action=rng.integers(A, size=(T, B), dtype=np.int32),
        logits=normal(T, B, A),
        value=normal(T, B),
        version=np.full((T, B), VERSION - 1, np.int32),
        reward=normal(T, B),
        terminated=terminated,
        truncated=truncated,
        moments={"m": normal(T, B)},
    )
    return rollouts._replace(**changes)


def train(settings: Settings, rollouts=None, params=None, devices: int = 1, updates: int = 1, version: int = VERSION):
    """The state and the metrics after some updates on the same rollouts."""
    mesh = make_mesh(devices)
    update = map_update(make_update(unroll, shape_rewards, settings), mesh, batch_axis=1, num_constants=1)
    state = init_state(params or make_params(), settings)._replace(version=jnp.int32(version))
    state = replicate(state, mesh)
    placed = shard(rollouts or make_rollouts(), mesh, axis=1)
    for _ in range(updates):
        state, metrics = update(state, replicate(CONSTANTS, mesh), placed)
    state, metrics = jax.device_get((state, metrics))
    return state, {name: float(value) for name, value in metrics.items()}


def assert_same(one, other, atol: float = 1e-6) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), one, other)


def assert_near(one, other) -> None:
    """States, and metrics as far as rounding goes."""
    assert_same(one[0], other[0], atol=2e-6)
    assert one[1].keys() == other[1].keys()
    for name, value in one[1].items():
        np.testing.assert_allclose(value, other[1][name], rtol=1e-4, atol=1e-5, err_msg=name)


def garbage(rollouts: Rollouts, column: int, age: int = 100) -> Rollouts:
    """One rollout is old, and nothing in it is sane; when it began does not matter."""
    version, reward, value, logits = (np.array(rollouts[rollouts._fields.index(name)])
                                      for name in ("version", "reward", "value", "logits"))  # fmt: skip
    version[:, column] = VERSION - age
    reward[:, column], value[:, column], logits[:, column, 0] = 1e6, -1e6, 1e4
    return rollouts._replace(version=version, reward=reward, value=value, logits=logits)


def only(rollouts: Rollouts, columns) -> Rollouts:
    return jax.tree.map(lambda array: array[:, columns], rollouts)


def plain_loss(params, rollouts: Rollouts, settings: Settings):
    """The loss, for one device and samples that are all valid, written without the learner's parts but V-trace."""
    logits, values = unroll(params, rollouts.observations, rollouts.first, rollouts.core[0])
    log_pi, log_mu = jax.nn.log_softmax(logits[:-1]), jax.nn.log_softmax(rollouts.logits)
    chosen = jax.nn.one_hot(rollouts.action, A)
    ratio = jnp.exp(((log_pi - log_mu) * chosen).sum(-1))
    reward = rollouts.reward + 0.5 * rollouts.moments["m"]
    ahead = next_values(values, reward, rollouts.terminated, rollouts.truncated, 0.9, settings.bootstrap)
    v, advantages = vtrace(values[:-1], ahead.v_t, reward, ahead.discount_t, ratio, ahead.trace_t)
    advantages = (advantages - advantages.mean()) / advantages.std(ddof=1)
    near = rollouts.value + jnp.clip(values[:-1] - rollouts.value, -1, 1)
    loss = 0.5 * jnp.maximum((values[:-1] - v) ** 2, (near - v) ** 2).mean()
    if settings.algorithm == "appo":
        loss -= jnp.minimum(ratio * advantages, jnp.clip(ratio, 1 / 1.1, 1.1) * advantages).mean()
        return loss + 0.1 * (jnp.exp(log_pi) * log_pi).sum(-1).mean()
    loss -= ((log_pi * chosen).sum(-1) * advantages).mean()
    return loss + 0.1 * ((jnp.exp(log_pi) - 1 / A) * (log_pi + jnp.log(A))).sum(-1).mean() / 2


@pytest.mark.parametrize("bootstrap", ["explicit", "inferred"])
@pytest.mark.parametrize(("algorithm", "exploration"), [("appo", "entropy"), ("impala", "symmetric_kl")])
def test_an_update_is_a_step_of_adam_on_the_loss(algorithm, exploration, bootstrap):
    settings = Settings(algorithm=algorithm, exploration=exploration, exploration_coefficient=0.1, bootstrap=bootstrap,
                        discount=0.9, max_gradient_norm=0.5, **FAST)  # fmt: skip
    rollouts, params = make_rollouts(), make_params()
    state, metrics = train(settings, rollouts, params, updates=2)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-2, 0.9, 0.999, 1e-6))
    optimizer_state = optimizer.init(params)
    for _ in range(2):
        loss, gradients = jax.jit(jax.value_and_grad(plain_loss), static_argnums=2)(params, rollouts, settings)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state)
        params = optax.apply_updates(params, updates)
    assert_same(state.params, params, atol=1e-5)
    assert state.version == VERSION + 2
    assert metrics["loss"] == pytest.approx(float(loss), rel=1e-4)
    parts = ("policy_loss", "value_loss", "exploration_loss")
    assert metrics["loss"] == pytest.approx(sum(metrics[name] for name in parts), rel=1e-5)
    assert metrics["gradient_norm"] == pytest.approx(float(optax.global_norm(gradients)), rel=1e-4) > 0.5
    assert metrics["update_norm"] == pytest.approx(float(optax.global_norm(updates)), rel=1e-3)
    assert metrics["parameter_norm"] == pytest.approx(float(optax.global_norm(params)), rel=1e-4)


def test_what_is_measured():
    rollouts = make_rollouts()
    rollouts.version[:, :4] = VERSION - 3
    metrics = train(Settings(max_policy_lag=3), rollouts)[1]
    assert metrics["valid_fraction"] == 0.75
    assert (metrics["lag_min"], metrics["lag_mean"], metrics["lag_max"]) == (1, 1.5, 3)
    assert metrics["extrinsic_reward"] == pytest.approx(rollouts.reward.mean(), abs=1e-6)
    assert metrics["intrinsic_reward"] == pytest.approx(rollouts.moments["m"].mean() / 2, abs=1e-6)
    assert metrics["learning_rate"] == pytest.approx(1e-4)
    assert metrics["finite"] == 1
    # the policy that acted, asked again
    params, fresh = make_params(), make_rollouts()
    logits, values = unroll(params, fresh.observations, fresh.first, fresh.core[0])
    metrics = train(Settings(), fresh._replace(logits=logits[:-1], value=values[:-1]), params)[1]
    for name, value in {"kl": 0, "ratio_mean": 0, "ratio_min": 1, "ratio_max": 1, "fraction_clipped": 0}.items():
        assert metrics[name] == pytest.approx(value, abs=1e-5)
    assert metrics["value_mean"] == pytest.approx(float(values[:-1].mean()), rel=1e-4)
    assert metrics["entropy"] > 0


def test_minibatches_are_every_other_rollout_and_epochs_go_over_them_again():
    rollouts = make_rollouts()
    whole = train(Settings(num_minibatches=2, num_epochs=2, **FAST), rollouts)
    state = init_state(make_params(), Settings())
    metrics = []
    update = map_update(make_update(unroll, shape_rewards, Settings(**FAST)), make_mesh(1), 1, 1)
    for number in (0, 1, 0, 1):
        state, measured = update(
            state._replace(version=jnp.int32(VERSION)), CONSTANTS, only(rollouts, np.s_[number::2])
        )
        metrics.append(jax.device_get(measured))
    assert_same(whole[0], jax.device_get(state), atol=1e-6)  # one version
    for name, reduce in {"loss": np.mean, "ratio_max": np.max, "advantage_min": np.min}.items():
        assert whole[1][name] == pytest.approx(float(reduce([each[name] for each in metrics])), rel=1e-4)


@pytest.mark.parametrize("algorithm", ["appo", "impala"])
def test_a_rollout_that_is_too_old_changes_nothing(algorithm):
    rollouts, settings = make_rollouts(), Settings(algorithm=algorithm, max_policy_lag=100, **FAST)
    with_garbage = train(settings, garbage(rollouts, 3))
    without = train(settings, only(rollouts, np.delete(np.arange(B), 3)))
    assert_same(with_garbage[0], without[0], atol=2e-6)
    assert with_garbage[1]["valid_fraction"] == pytest.approx(15 / 16)
    for name in ("loss", "advantage_std", "ratio_max", "target_mean", "kl"):
        assert with_garbage[1][name] == pytest.approx(without[1][name], rel=1e-4), name
    young = train(settings, garbage(rollouts, 3, age=99))
    assert young[1]["valid_fraction"] == 1
    assert abs(young[0].params["value"] - without[0].params["value"]).max() > 1e-4


def test_a_rollout_that_is_too_old_counts_in_the_normalisation_where_that_is_wished():
    rollouts = make_rollouts()
    old = garbage(rollouts, 3)
    without = only(rollouts, np.delete(np.arange(B), 3))
    over_all = Settings(max_policy_lag=100, normalise_over_all=True, **FAST)
    state, metrics = train(over_all, old)
    expected, wanted = train(Settings(max_policy_lag=100, **FAST), without)
    assert metrics["value_loss"] == pytest.approx(wanted["value_loss"], rel=1e-4)
    # advantages of 1e6 in one rollout of 16 leave little of the others' differences
    assert metrics["policy_loss"] != pytest.approx(wanted["policy_loss"], abs=0.05)
    raw = {"normalise_advantages": False, "max_policy_lag": 100}
    assert_same(train(over_all._replace(**raw), old)[0], train(Settings(**raw, **FAST), without)[0], atol=2e-6)


def test_nothing_valid_nothing_changed():
    before = init_state(make_params(), Settings())
    state, metrics = train(Settings(max_policy_lag=1))
    assert_same(state, before._replace(version=np.int32(VERSION + 1)), atol=0)
    assert metrics["valid_fraction"] == 0


@pytest.mark.parametrize("steps", [{}, {"num_minibatches": 2, "num_epochs": 2}])
def test_what_is_no_number_changes_nothing(steps):
    settings = Settings(**steps)
    before = init_state(make_params(), settings)._replace(version=np.int32(VERSION + 1))
    rollouts = make_rollouts()
    rollouts.reward[2, 5] = np.nan
    state, metrics = train(settings, rollouts)
    assert_same(state, before, atol=0)
    assert metrics["finite"] == 0
    # a loss that is a number with a gradient that is not one, or with parameters that are none
    for changes in ({"exploration_coefficient": np.inf, "exploration_end": np.inf}, {"learning_rate": np.inf}):
        state, metrics = train(settings._replace(**changes))
        assert_same(state, before, atol=0)
        assert metrics["finite"] == 0


def test_rates_change_in_a_straight_line_and_stay_where_it_ends():
    line = Settings(learning_rate=1e-2, learning_rate_end=2e-3, total_updates=10, exploration_coefficient=0.4,
                    exploration_end=0.0)  # fmt: skip
    # after 5 of 10: (0.01 + 0.002) / 2 and 0.4 / 2;  after 20: the end
    for version, rate, coefficient in ((0, 1e-2, 0.4), (5, 6e-3, 0.2), (10, 2e-3, 0), (20, 2e-3, 0)):
        metrics = train(line, version=version)[1]
        assert metrics["learning_rate"] == pytest.approx(rate, rel=1e-5)
        assert metrics["exploration_loss"] == pytest.approx(-coefficient * metrics["entropy"], abs=1e-7)
    constant = train(line._replace(total_updates=0), version=20)[1]
    assert constant["learning_rate"] == pytest.approx(1e-2)


@pytest.mark.parametrize("algorithm", ["appo", "impala"])
def test_it_learns_which_action_pays(algorithm):
    """Each step is an episode: action 1 pays 1 if the first number of the observation is positive, else action 2."""
    settings = Settings(algorithm=algorithm, learning_rate=3e-2, learning_rate_end=3e-2)
    mesh = make_mesh(1)
    update = map_update(make_update(unroll, shape_rewards, settings), mesh, 1, 1)
    state = replicate(init_state(make_params(), settings), mesh)
    rng, yes, no = np.random.default_rng(0), np.ones((T, B), bool), np.zeros((T, B), bool)
    act, pay = jax.jit(unroll), []
    for number in range(60):
        rollouts = make_rollouts(number, terminated=yes, truncated=no, first=np.ones((T + 1, B), bool))
        logits, value = jax.device_get(act(state.params, rollouts.observations, rollouts.first, rollouts.core[0]))
        action = (logits[:-1] + rng.gumbel(size=(T, B, A))).argmax(-1).astype(np.int32)
        reward = np.float32(action == np.where(rollouts.observations["x"][:-1, :, 0] > 0, 1, 2))
        version = np.full((T, B), number, np.int32)
        rollouts = rollouts._replace(logits=logits[:-1], value=value[:-1], action=action, reward=reward,
                                     version=version, moments={"m": 0 * reward})  # fmt: skip
        state, _ = update(state, CONSTANTS, rollouts)
        pay.append(reward.mean())
    assert np.mean(pay[:5]) < 0.55
    assert np.mean(pay[-10:]) > 0.85


@pytest.mark.quick
def test_settings_and_shapes_are_looked_at():
    with pytest.raises(ValueError, match="algorithm='ppo': give one of appo, impala"):
        make_update(unroll, shape_rewards, Settings(algorithm="ppo"))
    with pytest.raises(ValueError, match="num_minibatches=3 does not divide the 16 rollouts of each device"):
        train(Settings(num_minibatches=3))
    rollouts = make_rollouts()
    for changes in ({"core": rollouts.core[0]}, {"first": rollouts.first[1:]}, {"logits": rollouts.logits[..., :2]}):
        with pytest.raises(AssertionError):
            train(Settings(), rollouts._replace(**changes))


def compare_devices() -> None:
    """What the test below runs where there are four devices."""
    assert jax.device_count() == 4
    rollouts = garbage(make_rollouts(), 3)
    for changes in (
        {},
        {"algorithm": "impala", "bootstrap": "inferred", "normalise_over_all": True, "exploration": "symmetric_kl"},
        {"num_minibatches": 2, "num_epochs": 2},
    ):
        settings = Settings(max_policy_lag=100, **changes, **FAST)
        one, four = (train(settings, rollouts, devices=devices, updates=2) for devices in (1, 4))
        assert_near(one, four)


def test_four_devices_do_what_one_does():
    code = "import sys; sys.path[:0] = ['tests', 'tests/learner']\nimport update_test\nupdate_test.compare_devices()"
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import on_devices
from linear_policy import BASE, VERSION, B, assert_near, assert_same, initial, make_params, make_rollouts, train, unroll

from motif_jax.learner.algorithms import Appo
from motif_jax.learner.losses import gae, next_values, part_of_mean, vtrace
from motif_jax.learner.metrics import Maximum, Minimum
from motif_jax.learner.settings import Settings
from motif_jax.learner.update import Rollouts
from motif_jax.names import SCHEDULES
from motif_jax.schedules import schedule


def garbage(rollouts: Rollouts, column: int, age: int = 100) -> Rollouts:
    """One rollout is old, and its numbers are absurd."""
    version, reward, value, logits = (np.array(rollouts[rollouts._fields.index(name)])
                                      for name in ("version", "reward", "value", "logits"))  # fmt: skip
    version[:, column] = VERSION - age
    reward[:, column], value[:, column], logits[:, column, 0] = 1e6, -1e6, 1e4
    return rollouts._replace(version=version, reward=reward, value=value, logits=logits)


def only(rollouts: Rollouts, columns) -> Rollouts:
    return jax.tree.map(lambda array: array[:, columns], rollouts)


def plain_loss(params, rollouts: Rollouts, settings: Settings):
    """The loss, for one device and samples that are all valid, written without the learner's parts but the targets."""
    logits, values = unroll(params, (), rollouts.observations, rollouts.first, rollouts.core[0])
    log_pi, log_mu = jax.nn.log_softmax(logits[:-1]), jax.nn.log_softmax(rollouts.logits)
    chosen = jax.nn.one_hot(rollouts.action, logits.shape[-1])
    ratio = jnp.exp(((log_pi - log_mu) * chosen).sum(-1))
    low, high = (0.8, 1.2) if settings.algorithm == "ppo" else (1 / 1.2, 1.2)
    if settings.algorithm == "appo":
        ratio = jnp.clip(ratio, 0.05, 20)
    reward = rollouts.reward + 0.5 * rollouts.reward_inputs["m"]
    ends = rollouts.terminated, rollouts.truncated
    if settings.algorithm == "ppo":  # values are of the policy that acted, but for what follows the batch
        critic = jnp.concatenate([rollouts.value, jax.lax.stop_gradient(values[-1:])])
        v_t, discount_t, trace_t = next_values(critic, reward, *ends, 0.9, settings.bootstrap)
        v, advantages = gae(critic[:-1], v_t, reward, discount_t, trace_t, 0.8)
    else:
        v_t, discount_t, trace_t = next_values(values, reward, *ends, 0.9, settings.bootstrap)
        v, advantages = vtrace(values[:-1], v_t, reward, discount_t, ratio, trace_t)
    advantages = (advantages - advantages.mean()) / advantages.std(ddof=1)
    near = rollouts.value + jnp.clip(values[:-1] - rollouts.value, -0.5, 0.5)
    loss = 0.5 * jnp.maximum((values[:-1] - v) ** 2, (near - v) ** 2).mean()
    if settings.algorithm == "impala":
        loss -= ((log_pi * chosen).sum(-1) * advantages).mean()
    else:
        loss -= jnp.minimum(ratio * advantages, jnp.clip(ratio, low, high) * advantages).mean()
    return loss + 0.1 * (jnp.exp(log_pi) * log_pi).sum(-1).mean()


@pytest.mark.differs(
    "glam", there="the value loss compares each value with all returns of the batch", here="with its own return"
)
@pytest.mark.differs(
    "glam",
    there="Lamorel's examples normalise the advantages of each environment, with a deviation that divides by n",
    here="they are normalised over the whole batch, by n - 1",
    reference="advantages are not normalised, as in GLAM",
)
@pytest.mark.parametrize(
    ("algorithm", "bootstrap"), [("appo", "explicit"), ("impala", "inferred"), ("ppo", "explicit")]
)
def test_an_update_is_a_step_of_adam_on_the_loss(algorithm, bootstrap):
    settings = Settings(algorithm=algorithm, exploration_coefficient=0.1, bootstrap=bootstrap, discount=0.9,
                        max_gradient_norm=0.5, gae_lambda=0.8, clip_ratio=0.2, clip_value=0.5)  # fmt: skip
    rollouts, params = make_rollouts(), make_params()
    state, metrics = train(settings, rollouts, updates=2)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-4, 0.9, 0.999, 1e-6))
    optimizer_state = optimizer.init(params)
    for _ in range(2):
        loss, gradients = jax.jit(jax.value_and_grad(plain_loss), static_argnums=2)(params, rollouts, settings)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state)
        params = optax.apply_updates(params, updates)
    assert_same(state.params, params, atol=1e-6)
    assert state.version == VERSION + 2
    assert metrics["loss"] == pytest.approx(float(loss), rel=1e-4)
    assert metrics["gradient_norm"] > 0.5
    for name, tree in {"gradient_norm": gradients, "update_norm": updates, "parameter_norm": params}.items():
        norm = np.sqrt(sum((np.square(leaf)).sum() for leaf in jax.tree.leaves(tree)))
        assert metrics[name] == pytest.approx(norm, rel=1e-3), name


def test_metrics_of_an_update():
    rollouts = make_rollouts()
    rollouts.version[:, :4] = VERSION - 100
    metrics = train(BASE, rollouts)[1]
    assert metrics["valid_fraction"] == 0.75
    assert (metrics["lag_min"], metrics["lag_mean"], metrics["lag_max"]) == (1, 25.75, 100)
    assert metrics["extrinsic_reward"] == pytest.approx(rollouts.reward.mean(), abs=1e-6)
    assert metrics["intrinsic_reward"] == pytest.approx(rollouts.reward_inputs["m"].mean() / 2, abs=1e-6)
    assert metrics["learning_rate"] == pytest.approx(2e-2)
    assert metrics["finite"] == 1
    # the policy that acted, asked again
    rollouts = make_rollouts()
    logits, values = unroll(make_params(), (), rollouts.observations, rollouts.first, rollouts.core[0])
    metrics = train(BASE, rollouts._replace(logits=logits[:-1], value=values[:-1]))[1]
    for name, value in {"kl": 0, "ratio_deviation": 0, "ratio_min": 1, "ratio_max": 1, "fraction_clipped": 0}.items():
        assert metrics[name] == pytest.approx(value, abs=1e-5)
    assert metrics["value_mean"] == pytest.approx(float(values[:-1].mean()), rel=1e-4)
    log_p = jax.nn.log_softmax(logits[:-1])
    assert metrics["entropy"] == pytest.approx(-float((jnp.exp(log_p) * log_p).sum(-1).mean()), rel=1e-5)


def test_minibatches_are_every_other_rollout_and_epochs_go_over_them_again():
    rollouts = make_rollouts()
    whole, summary = train(replace(BASE, num_minibatches=2, num_epochs=2), rollouts)
    state, parts = initial(), []
    for number in (0, 1, 0, 1):
        state, metrics = train(BASE, only(rollouts, np.s_[number::2]), state._replace(version=np.int32(VERSION)))
        parts.append(metrics)
    assert_same(whole, state, atol=1e-5)  # one update, one version
    for name, reduce in {"loss": np.mean, "ratio_max": np.max, "advantage_min": np.min}.items():
        assert summary[name] == pytest.approx(reduce([metrics[name] for metrics in parts]), rel=1e-4)


class Measured(Appo):
    """Measures its targets in three ways, which the names do not tell."""

    def loss(self, inputs, settings, exploration_coefficient):
        summed, terms = super().loss(inputs, settings, exploration_coefficient)
        mean, of_all = part_of_mean(inputs.target, inputs.weight), inputs.target
        return summed, terms | {"x_min": mean, "low": Minimum(of_all.min()), "high": Maximum(of_all.max())}


@on_devices(4)
def test_a_metric_is_averaged_whatever_its_name_unless_it_is_declared_as_an_extreme():
    """Over the devices, and over minibatches, while the policy stays as it is."""
    rollouts, still = make_rollouts(), replace(BASE, learning_rate=1e-12)
    found = [train(still, only(rollouts, np.s_[n::2]), algorithm=Measured())[1] for n in range(2)]
    for devices in (1, 4):
        metrics = train(replace(still, num_minibatches=2), rollouts, devices=devices, algorithm=Measured())[1]
        for name, reduce in {"x_min": np.mean, "low": np.min, "high": np.max}.items():
            assert metrics[name] == pytest.approx(reduce([one[name] for one in found]), rel=1e-4), (name, devices)
        assert metrics["low"] < metrics["x_min"] < metrics["high"]


def test_a_rollout_that_is_too_old_changes_nothing():
    rollouts = make_rollouts()
    old = functools.reduce(garbage, range(1, B, 2), rollouts)
    (state, metrics), (expected, wanted) = train(BASE, old), train(BASE, only(rollouts, np.s_[::2]))
    assert_same(state, expected, atol=1e-5)
    assert metrics["valid_fraction"] == 0.5
    for name in ("loss", "advantage_std", "ratio_max", "target_mean", "kl"):
        assert metrics[name] == pytest.approx(wanted[name], rel=1e-4), name
    state, metrics = train(BASE, garbage(rollouts, 3, age=99))
    assert metrics["valid_fraction"] == 1
    assert abs(state.params["value"] - expected.params["value"]).max() > 1e-3
    state, metrics = train(BASE, functools.reduce(garbage, range(B), rollouts))  # without valid samples
    assert_same(state, initial(version=VERSION + 1), atol=0)
    assert metrics["valid_fraction"] == 0


def test_normalise_over_all_includes_old_rollouts():
    rollouts = make_rollouts()
    old = functools.reduce(garbage, range(1, B, 2), rollouts)
    state, metrics = train(replace(BASE, normalise_over_all=True), old)
    expected, wanted = train(BASE, only(rollouts, np.s_[::2]))
    assert metrics["value_loss"] == pytest.approx(wanted["value_loss"], rel=1e-4)
    assert_same(state.params["value"], expected.params["value"], atol=1e-5)
    # advantages of 1e6 in half of the rollouts leave nothing of the others' differences
    assert metrics["policy_loss"] != pytest.approx(wanted["policy_loss"], abs=0.05)
    assert abs(state.params["policy"] - expected.params["policy"]).max() > 1e-3


@pytest.mark.parametrize("steps", [1, 2])
def test_a_loss_that_is_not_finite_changes_nothing(steps):
    settings = replace(BASE, num_minibatches=steps, num_epochs=steps)
    rollouts = make_rollouts()
    rollouts.reward[2, 5] = np.nan
    state, metrics = train(settings, rollouts)
    assert_same(state, initial(version=VERSION + 1), atol=0)
    assert metrics["finite"] == 0
    # loss and gradients are numbers, the parameters would be none
    before = initial()
    optimizer = jax.tree.map(lambda leaf: leaf + np.inf if leaf.ndim else leaf, before.optimizer)
    state, metrics = train(settings, state=before._replace(optimizer=optimizer))
    assert np.isfinite(metrics["gradient_norm"]) or steps > 1
    assert metrics["finite"] == 0
    assert_same(state, before._replace(optimizer=optimizer, version=np.int32(VERSION + 1)), atol=0)


def test_rates_are_annealed_and_then_constant():
    line = replace(BASE, learning_rate=1e-2, anneal_learning_rate_to=0.2, total_updates=10, exploration_coefficient=0.4,
                         anneal_exploration_to=0.0)  # fmt: skip
    # after 5 of 10: (0.01 + 0.002) / 2 and 0.4 / 2;  after 20: the end
    for version, rate, coefficient in ((0, 1e-2, 0.4), (5, 6e-3, 0.2), (10, 2e-3, 0), (20, 2e-3, 0)):
        metrics = train(line, state=initial(version=version))[1]
        assert metrics["learning_rate"] == pytest.approx(rate, rel=1e-5)
        assert metrics["exploration_loss"] == pytest.approx(-coefficient * metrics["entropy"], abs=1e-7)
    assert train(BASE, state=initial(version=20))[1]["learning_rate"] == pytest.approx(2e-2)
    # after 8 of 10: 0.2 + 0.8 (1 + cos(0.8 pi)) / 2 = 0.27639 and 0.2^0.8 = 0.27595
    for decay, share in (("cosine", 0.27639), ("exponential", 0.27595)):
        metrics = train(replace(line, learning_rate_decay=decay), state=initial(version=8))[1]
        assert metrics["learning_rate"] == pytest.approx(1e-2 * share, rel=1e-4)
    # the first of four steps in which it rises
    assert train(replace(BASE, learning_rate_warmup=4))[1]["learning_rate"] == pytest.approx(2e-2 / 4)


@pytest.mark.parametrize("name", SCHEDULES)
def test_more_updates_than_an_int32_counts_are_annealed(name):
    rate = jax.jit(schedule(name, 1e-2, 0.2, 10**15))
    assert rate(jnp.int32(5)) == pytest.approx(1e-2)
    assert rate(jnp.float32(10**15)) == pytest.approx(2e-3)


@on_devices(4)
def test_four_devices_do_what_one_does():
    rollouts = garbage(make_rollouts(), 3)
    impala = replace(BASE, algorithm="impala", bootstrap="inferred", normalise_over_all=True)
    for settings in (replace(BASE, num_minibatches=2, num_epochs=2), impala):
        one, four = (train(settings, rollouts, devices=devices, updates=2) for devices in (1, 4))
        assert_near(one, four)

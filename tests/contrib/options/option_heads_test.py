from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from columns_test import slow_vtrace
from conftest import on_devices
from linear_policy import BASE, VERSION, B, D, T, make_params, make_rollouts, unroll
from small_options import options_of

from motif_jax.contrib.options.control import Control
from motif_jax.contrib.options.heads import OptionHeads
from motif_jax.contrib.options.plan import mixtures
from motif_jax.contrib.options.sections import OptionsSection
from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.learner.update import TrainingRewards, init_state, make_policy_update

ACTIONS, K, LENGTHS = 3, 2, (1, 2, 4, 8)
HEADS = OptionHeads(ACTIONS, K, LENGTHS)
CONTROL = Control(HEADS, OptionsSection(exploration=3.0))
FACTORS = np.array([[1.0, 0.5], [0.0, 2.0], [0.1, 0.0]], np.float32)
WEIGHTS = mixtures((0.0, 1.0), K, sum_to_one=True)
MIXED = CONTROL._replace(heads=OptionHeads(ACTIONS, len(WEIGHTS), LENGTHS, WEIGHTS, 2))


def told_unroll(params, frozen, observations, first, core):
    seen = jnp.concatenate([observations["x"], observations["behaviour"]], -1)
    return unroll(params, frozen, {"x": seen}, first, core)


def make_batch(heads: OptionHeads = HEADS):
    """Random turns; the controller is in charge of the first step of an episode, and of others."""
    rng, rollouts, count = np.random.default_rng(2), make_rollouts(), heads.options
    first = rollouts.first.copy()
    charge = np.where(first[:-1] | (rng.random((T, B)) < 0.2), count, rng.integers(count, size=(T, B)))
    following = np.concatenate([charge[1:], rng.integers(count + 1, size=(1, B))])
    draw = {"drawn": ACTIONS, "option": count, "length": len(LENGTHS)}
    control = {"chooser": charge, "next": following} | {name: rng.integers(n, size=(T, B)) for name, n in draw.items()}
    control = {name: array.astype(np.int32) for name, array in control.items()}
    played = charge != count
    ends = {name: getattr(rollouts, name) & played for name in ("terminated", "truncated")}
    first[1:] = ends["terminated"] | ends["truncated"]
    return rollouts._replace(
        first=first, recorded=control, action=np.where(played, control["drawn"], -1).astype(np.int32),
        reward=np.where(played, rollouts.reward, 0).astype(np.float32),
        logits=rng.normal(size=(T, B, sum(heads.sizes))).astype(np.float32), **ends,
    )  # fmt: skip


def train(batch, control=CONTROL, devices=1, **changes):
    settings = replace(BASE, **changes)
    mixed = np.concatenate([np.array(WEIGHTS) @ FACTORS[:-1], FACTORS[-1:]])
    factors = FACTORS if control.heads.weights is None else mixed

    def shape_rewards(rollouts):
        rewards = jnp.stack([rollouts.reward, rollouts.reward_inputs["m"]])
        total, of_options = control.training_rewards(rewards, jnp.float32(factors), rollouts, settings.discount)
        return TrainingRewards(total, rollouts.reward, of_options)

    mesh, acting = make_mesh(devices), options_of(ACTIONS, K, LENGTHS)
    acting.heads, acting.section = control
    update = map_update(make_policy_update(told_unroll, shape_rewards, settings, acting), mesh, 1, num_constants=1)
    state = init_state(make_params(D + K + 1, sum(control.heads.sizes)), settings)._replace(version=jnp.int32(VERSION))
    state, metrics = update(replicate(state, mesh), (), shard(batch, mesh, axis=1))
    assert metrics["finite"] == 1
    return jax.device_get((state.params, metrics))


def assert_near(one, other, near=True):
    same = [np.allclose(a, b, rtol=2e-4, atol=2e-5) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True)]
    assert all(same) if near else not all(same)


def with_other_choices(batch, count):
    """What was drawn without effect is different."""
    decides, control = batch.recorded["chooser"] == count, dict(batch.recorded)
    control["drawn"] = np.where(decides, (control["drawn"] + 1) % ACTIONS, control["drawn"])
    control["option"] = np.where(decides, control["option"], (control["option"] + 1) % count)
    control["length"] = np.where(decides, control["length"], (control["length"] + 1) % len(LENGTHS))
    return batch._replace(recorded=control)


@pytest.mark.parametrize(("control", "algorithm"), [(CONTROL, "appo"), (MIXED, "impala")], ids=["options", "mixtures"])
def test_choices_without_effect_do_not_count_unless_all_are_to(algorithm, control):
    batch = make_batch(control.heads)
    other = with_other_choices(batch, control.heads.options)
    assert_near(train(batch, control, algorithm=algorithm), train(other, control, algorithm=algorithm))
    every = control._replace(section=replace(control.section, heads="all"))
    assert_near(train(batch, every, algorithm=algorithm), train(other, every, algorithm=algorithm), near=False)


@pytest.mark.quick
def test_all_mixtures_share_one_column():
    batch, rng = jax.tree.map(jnp.asarray, make_batch(MIXED.heads)), np.random.default_rng(0)
    values, rewards, ratio = rng.normal(size=(T + 2, B)), rng.normal(size=(T, B)), np.exp(rng.normal(size=(T, B)))
    given = (jnp.asarray(array, jnp.float32) for array in (values, rewards, ratio))
    settings = replace(BASE, normalise_advantages=False)
    ours = MIXED.targets(*given, jnp.ones((T, B), bool), batch, settings).vtrace
    charge, option = (np.asarray(batch.recorded[name]) for name in ("chooser", "option"))
    decides, after = charge == 4, np.where(batch.first[1:], 4, batch.recorded["next"])
    chosen = np.concatenate([option[1:], np.full((1, B), -1)])
    column_at_end, alike = (after[-1] == 4).astype(int), np.array([0, 1, 2, 0, 4])  # 0 and 3 are the same mixture
    expected = slow_vtrace(
        values[:-2], rewards, np.full((T, B), settings.discount), ratio, decides.astype(int),
        (after == 4) & (alike[chosen] != alike[charge]) & ~decides & ~np.asarray(batch.first[1:]),
        np.asarray(batch.terminated), np.asarray(batch.truncated),
        np.where(np.arange(2)[:, None] == column_at_end, values[-2], values[-1] * np.arange(2)[:, None]),
        np.stack([column_at_end == 0, (column_at_end == 1) | ~decides[-1]]),
    )  # fmt: skip
    np.testing.assert_allclose(ours.targets, expected[0], rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(ours.advantages, expected[1], rtol=2e-4, atol=2e-4)


@pytest.mark.quick
def test_advantages_are_normalised_for_options_and_controller_by_themselves():
    rng = np.random.default_rng(0)
    charge = rng.integers(K + 1, size=(T, B))
    charge[0, 0] = 1
    advantages = (rng.normal(size=(T, B)) * 10.0**charge + charge).astype(np.float32)
    valid = rng.random((T, B)) < 0.8
    mesh = make_mesh(1)
    normalised = jax.device_get(map_update(
        lambda state, given: (state, CONTROL.normalised(*given, BASE)), mesh, batch_axis=1, results=None,
    )(replicate(jnp.zeros(()), mesh), shard((advantages, valid, charge), mesh, axis=1))[1])  # fmt: skip
    for column in range(K + 1):
        counted = normalised[(charge == column) & valid]
        assert counted.mean() == pytest.approx(0, abs=1e-5)
        assert counted.std(ddof=1) == pytest.approx(1, rel=1e-4)


@on_devices(8)
def test_eight_devices_do_what_one_does():
    batch = make_batch()
    assert_near(train(batch), train(batch, devices=8))
    assert_near(train(batch, num_minibatches=2), train(batch, devices=8, num_minibatches=2))


@pytest.mark.quick
def test_the_last_moment_is_read_again_with_the_controller_in_charge():
    batch = make_batch()
    seen, first = jax.device_get(CONTROL.with_behaviour(jax.tree.map(jnp.asarray, batch)))
    assert seen["behaviour"].shape == (T + 2, B, K + 1)
    np.testing.assert_array_equal(seen["behaviour"][:T].argmax(-1), batch.recorded["chooser"])
    charge = np.where(batch.first[T], K, batch.recorded["next"][-1])
    np.testing.assert_array_equal(seen["behaviour"][T].argmax(-1), charge)
    assert (seen["behaviour"][T + 1].argmax(-1) == K).all()
    np.testing.assert_array_equal(seen["x"][T + 1], seen["x"][T])
    assert not first[T + 1].any()

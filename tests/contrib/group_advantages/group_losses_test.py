import functools
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slow_terms
from conftest import on_devices
from linear_policy import BASE, A, B, T, assert_same, initial, make_params, make_rollouts, shape_rewards, train
from ppo_test import NO_MEMORY, forgetful

from motif_jax.config.table import table_of
from motif_jax.contrib.group_advantages.losses import with_reference
from motif_jax.contrib.group_advantages.playing import make_in_groups, places
from motif_jax.contrib.group_advantages.sections import GroupAdvantages
from motif_jax.devices.mesh import make_mesh, map_update
from motif_jax.learner.settings import Settings, find_algorithm
from motif_jax.learner.update import make_policy_update
from motif_jax.stages.train_policy import Policy, TrainConfig
from motif_jax.structs import UserError

GROUP = GroupAdvantages(group_size=4)
GRPO = replace(BASE, algorithm="grpo", discount=0.9, clip_ratio=0.2)
RNG = np.random.default_rng(5)
PLAYED = np.arange(T)[:, None] < RNG.integers(1, T + 1, B)
PLAYED[:, 8:12] = False  # an incomplete group
VISIT = RNG.integers(4, size=(T, B)).astype(np.int32)


def slow_advantages(reward, group, discount):
    rewards, moments = ([array[one, column].tolist() for column, one in enumerate(PLAYED.T)]
                        for array in (reward, VISIT))  # fmt: skip
    found = slow_terms.advantages([*map(sum, rewards)], rewards, moments, group.group_size,
                                  group.divide_by == "deviation", discount, group.step_weight)  # fmt: skip
    advantages = np.zeros((T, B))
    for column, one in enumerate(found):
        advantages[PLAYED[:, column], column] = one
    return advantages


def batch(index=None):
    own = {"played": PLAYED, "visit": VISIT} | ({} if index is None else {"index": index})
    return make_rollouts(core=NO_MEMORY, own=own)


@functools.cache
def algorithm_of(name, group):
    return type(find_algorithm(name))(group)


def update_of(settings, group, rollouts, devices=1, fsdp=1):
    state, algorithm = with_reference(initial(settings), group), algorithm_of(settings.algorithm, group)
    return train(settings, rollouts, state, devices, fsdp=fsdp, policy=forgetful, algorithm=algorithm)


def program(group: GroupAdvantages) -> str:
    settings = Settings(algorithm="gigpo", total_updates=10)
    made = make_policy_update(forgetful, shape_rewards, settings, algorithm=algorithm_of("gigpo", group))
    update = map_update(made, make_mesh(1), batch_axis=1, num_constants=1)
    return str(jax.make_jaxpr(update)(with_reference(initial(settings), group), (), batch()))


@pytest.mark.quick
@pytest.mark.parametrize("name", [field.name for field in fields(GroupAdvantages)])
def test_every_value_of_groups_changes_the_update(name):
    value, kind = getattr(GROUP, name), table_of(GroupAdvantages)[name].kind
    others = getattr(kind, "choices", ()) or [2 * value or 1]
    tried = {program(GROUP), *(program(replace(GROUP, **{name: other})) for other in others)}
    assert len(tried) == len({value, *others})


def slow_loss(params, settings, group):
    rollouts = batch()
    logits, _ = forgetful(params, (), rollouts.observations, rollouts.first, None)
    log_pi, log_mu = jax.nn.log_softmax(logits[:-1]), jax.nn.log_softmax(rollouts.logits)
    start = make_params()
    log_start = jax.nn.log_softmax(forgetful(start, (), rollouts.observations, rollouts.first, None)[0][:-1])
    apart = ((log_pi - log_mu) * np.eye(A)[rollouts.action]).sum(-1)
    length = np.maximum(PLAYED.sum(0), 1)
    if group.ratio == "episode":
        apart = jnp.broadcast_to((apart * PLAYED).sum(0) / length, (T, B))
    ratio = jnp.exp(apart)
    reward = np.asarray(shape_rewards(rollouts).total)
    advantage = slow_advantages(reward, group, settings.discount if settings.algorithm == "gigpo" else None)
    high = 1 + (group.clip_high or settings.clip_ratio)
    terms = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - settings.clip_ratio, high) * advantage)
    terms += settings.exploration_coefficient * (jnp.exp(log_pi) * log_pi).sum(-1)
    terms += group.reference_coefficient * (jnp.exp(log_pi) * (log_pi - log_start)).sum(-1)
    episodes = (PLAYED.sum(0) > 0).sum()
    by = {"steps": 1 / PLAYED.sum(), "episodes": 1 / length / episodes, "limit": 1 / (T * episodes)}[group.mean_over]
    return (terms * PLAYED * by).sum()


CASES = (
    (GRPO, GROUP),
    (replace(GRPO, algorithm="gigpo"), replace(GROUP, mean_over="episodes", clip_high=0.5, step_weight=0.7)),
    (
        replace(GRPO, algorithm="gigpo"),
        replace(GROUP, ratio="episode", mean_over="limit", divide_by="nothing", reference_coefficient=0.3),
    ),
)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_an_update_follows_the_gradient_of_the_slow_loss(case):
    settings, group = CASES[case]
    value, gradient = jax.value_and_grad(slow_loss)(make_params(), settings, group)
    state, metrics = update_of(settings, group, batch())
    assert metrics["loss"] == pytest.approx(float(value), abs=1e-5)
    del gradient["value"], gradient["core"]  # there is no critic, and this policy has no memory
    for name, slope in gradient.items():
        # Adam's first step is the sign of the gradient times the rate
        moved = make_params()[name] - state.params[name]
        clear = np.abs(slope) > 1e-4
        np.testing.assert_allclose(moved[clear], np.sign(slope)[clear] * settings.learning_rate, rtol=1e-2)
    np.testing.assert_array_equal(state.params["value"], make_params()["value"])


def test_an_update_from_played_steps_alone_is_the_same():
    """Also in minibatches, and from the policy at the start."""
    group = replace(GROUP, reference_coefficient=0.1)
    places = np.flatnonzero(PLAYED)
    index = np.concatenate([places, np.full(64 - len(places), -1)])[None].astype(np.int32)
    one, metrics = update_of(GRPO, group, batch())
    other, others = update_of(GRPO, group, batch(index))
    assert_same(one, other)
    for name in ("loss", "policy_loss", "reference_loss", "entropy", "kl", "gradient_norm", "advantage_max"):
        assert others[name] == pytest.approx(metrics[name], abs=1e-6), name
    twice = replace(GRPO, num_epochs=2, num_minibatches=2)
    assert update_of(twice, group, batch(index))[1]["finite"] == 1


@on_devices(4)
def test_four_devices_do_what_one_does():
    """With one group on each, or two shared by two devices."""
    settings, group = CASES[1]
    one = update_of(settings, group, batch())[0]
    assert_same(one, update_of(settings, group, batch(), devices=4)[0], atol=1e-5)
    assert_same(one, update_of(settings, group, batch(places(PLAYED, 4, 1)), devices=4)[0], atol=1e-5)
    section = Policy(algorithm=settings.algorithm, batch_size=T * B, rollout_length=T, network="language")
    config = TrainConfig(policy=section, plugins={"group_advantages": group})
    playing = make_in_groups(config, make_mesh(4, fsdp=2))
    index = places(PLAYED, playing.parts, playing.multiple)
    assert_same(one, update_of(settings, group, batch(index), devices=4, fsdp=2)[0], atol=1e-5)
    with pytest.raises(UserError, match=r"episodes of a batch cannot be divided among 4 devices in groups of"):
        make_in_groups(replace(config, policy=replace(section, batch_size=T * B // 2)), make_mesh(4))

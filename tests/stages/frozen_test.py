"""A policy with parameters that are not trained, and without recurrent state, from actors to checkpoints and back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from frozen_policy import HIDDEN, FrozenPolicy
from train_policy_test import arrays, settings

from motif_jax.devices.mesh import make_mesh, map_update
from motif_jax.devices.parameters import sum_of_arrays
from motif_jax.envs.nethack.observations import OBSERVATIONS
from motif_jax.learner.settings import Settings
from motif_jax.learner.update import Rollouts, init_state, make_policy_update
from motif_jax.policies import model as policy_model
from motif_jax.policies.model import make_policy_model, read_policy
from motif_jax.policies.player import PolicyPlayer
from motif_jax.policies.playing import Policy
from motif_jax.rewards.intrinsic import Mix
from motif_jax.rewards.sources import RewardSources
from motif_jax.stages import train_policy
from motif_jax.stages.train_policy.setup import make_shape_rewards

A, T, B = 23, 3, 4
OPTIONS = {"network": "small", "num_actions": A, "dtype": "float32"}
MIX = Mix(extrinsic=0.1, intrinsic=0.0, scale=0.1, clip=10.0, threshold=0.0, count_exponent=3.0)
BYTES = 4 * HIDDEN * HIDDEN


@pytest.fixture(autouse=True)
def frozen(monkeypatch):
    monkeypatch.setattr(policy_model, "PolicyNetwork", FrozenPolicy)


def run(workdir, seed=777, **values):
    """Trains in this process."""
    config = settings(**values)
    config.seed = seed
    train_policy.run(config, workdir)


def blstats(*leading):
    return {"blstats": np.ones((*leading, *OBSERVATIONS["blstats"].shape), OBSERVATIONS["blstats"].dtype)}


def size_of_program(function, *arguments) -> int:
    """Characters of the program that is compiled, and bytes of the constants that it would be given."""
    traced = jax.jit(function).trace(*arguments)
    constants = sum(np.asarray(constant).nbytes for constant in traced.jaxpr.consts)
    return len(traced.lower().as_text()) + constants


@pytest.mark.quick
def test_frozen_parameters_are_arguments_and_not_constants_of_programs():
    model = make_policy_model(OPTIONS, 0)
    weights = model.params, model.frozen
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(model.frozen)) > BYTES > 1_000_000
    first, core = np.zeros(B, bool), np.zeros((B, 0), np.float32)
    assert size_of_program(model.prepare, *weights) < 10_000
    assert size_of_program(model.step, *weights, blstats(B), first, core, model.prepare(*weights)) < 10_000
    assert size_of_program(model.unroll, *weights, blstats(T, B), np.zeros((T, B), bool), core) < 20_000
    # what is closed over does become a constant, so the sizes above say something
    assert size_of_program(lambda params: model.prepare(params, model.frozen), model.params) > BYTES

    settings, steps = Settings(), np.zeros((T, B), np.float32)
    update = make_policy_update(model.unroll, make_shape_rewards(MIX, RewardSources()), settings)
    rollouts = Rollouts(
        blstats(T + 1, B), np.zeros((T + 1, B), bool), np.zeros((1, B, 0), np.float32), np.zeros((T, B), np.int32),
        np.zeros((T, B, A), np.float32), steps, np.zeros((T, B), np.int32), steps, steps > 0, steps > 0, {},
    )  # fmt: skip
    program = map_update(update, make_mesh(1), 1, num_constants=1)
    state = init_state(jax.tree.map(jnp.copy, model.params), settings)
    traced = program.trace(state, model.frozen, rollouts)
    assert len(traced.lower().as_text()) < 400_000
    state, metrics = program(state, model.frozen, rollouts)
    assert metrics["finite"] == 1


def test_a_run_trains_the_rest_saves_all_and_goes_on(tmp_path):
    before = make_policy_model(OPTIONS, 777)
    run(tmp_path, train_for_env_steps=128)
    run(tmp_path, train_for_env_steps=256)
    step, learner, _ = arrays(tmp_path)
    assert (step, int(learner["version"])) == (256, 4)
    model, facts, _ = read_policy(tmp_path)
    assert sum_of_arrays(model.frozen) == sum_of_arrays(before.frozen)
    assert not np.array_equal(jax.tree.leaves(model.params)[0], jax.tree.leaves(before.params)[0])
    # notebooks and players see the frozen parameters of the checkpoint
    player = PolicyPlayer(model, 1, 1, seed=0)
    _, outputs = player(blstats(1), np.ones(1, bool), np.zeros(1, int))
    act = Policy(model, facts, None)({"blstats": blstats(1)["blstats"][0]})
    assert act.value == pytest.approx(float(outputs["value"][0]), rel=1e-4)
    assert np.asarray(outputs["core"]).shape == (1, 0)

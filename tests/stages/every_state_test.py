"""A checkpoint of a time when nothing was learnt gives the state of every network and recipe back, to the bit."""

import functools

import jax
import numpy as np
import pytest
from conftest import get_config
from tiny_decoder import LANGUAGE as DECODER
from tiny_decoder import new_params
from train_policy_test import settings

from motif_jax.devices.checkpoints import Checkpoints, reading
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.networks.kinds import BY_PROMPT, BY_SPECS, DRRN, FIXED
from motif_jax.offline.recipes import names, recipe_of
from motif_jax.offline.settings import Settings
from motif_jax.offline.update import init_state
from motif_jax.rewards.sources import make_sources
from motif_jax.stages.train_policy.setup import assemble
from motif_jax.stages.train_policy.start import START, Keeper, arrays_of, whole_state

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def assert_same(one, other):
    """Structure, shapes, types and values: an update cannot tell one from the other."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(functools.partial(np.testing.assert_array_equal, strict=True), one, other)


def config_of(network):
    if network not in BY_PROMPT:
        return settings(network=network)
    pytest.importorskip("minigrid", reason="needs the extra [babyai]: bash launch/test.sh installs it")
    config = get_config("glam_quickstart.py", "goto_small,drrn" if network == DRRN else "goto_local,unread")
    config.policy.update({"num_workers": 0, "games_per_worker": 4, "rollout_length": 8, "batch_size": 32})
    config.policy.language.update({"width": 8, "layers": 1, "heads": 2, "hidden": 8})
    config.policy.drrn.width = 8
    config.policy.replay.update({"capacity": 64, "minibatch_size": 8})
    return config


@pytest.mark.parametrize("network", [*FIXED, *BY_SPECS, *BY_PROMPT])
def test_the_state_of_every_network_comes_back_from_no_steps(network, tmp_path):
    config = config_of(network)
    parts = assemble(config, tmp_path, make_sources, 1)
    state = parts.begin(parts.model.params)
    whole = whole_state(state, parts.model.frozen)
    keeper = Keeper(config, tmp_path, parts)
    keeper.frozen = parts.model.frozen
    keeper.save(state, START)
    keeper.close()
    with reading(tmp_path / "checkpoints") as checkpoints:
        _, saved, facts = checkpoints.readable("last")
    assert_same(rebuild(whole, arrays_of(saved), tmp_path), whole)
    assert facts["progress"] == START


@pytest.mark.parametrize("recipe", names())
def test_the_state_of_every_recipe_comes_back_from_no_updates(recipe, tmp_path):
    state = init_state(jax.random.key(0), DECODER, recipe_of(recipe), Settings(), new_params(1), new_params(2))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(0, {"train": state}, {})
    checkpoints.close()
    with reading(tmp_path) as checkpoints:
        _, whole, _ = checkpoints.readable("last")
    assert_same(rebuild(state, leaves_by_path(whole["train"]), tmp_path), state)

"""Encoders of users (docs/own-network.md): what they may do, what is refused, and whom checkpoints may import."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import get_config, viewed
from flax import nnx
from general_test import ACTIONS, SPECS, observations
from train_policy_test import TINY

import motif_jax
from motif_jax.devices import releases
from motif_jax.envs.worlds import make_world
from motif_jax.files import read_json, write_json
from motif_jax.networks.policy import PolicyNetwork
from motif_jax.stages import evaluate, export, train_policy
from motif_jax.structs import UserCodeError, UserError

MINE = "own_encoders:Encoder"


def network(path, dtype=jnp.float32):
    return PolicyNetwork(path, ACTIONS, specs=SPECS, dtype=dtype, rngs=nnx.Rngs(0))


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_its_features_are_followed_by_memory_and_heads(dtype):
    net = network(MINE, dtype)
    assert net.reads == tuple(SPECS)
    assert net.encoder.features == 32
    seen, first, core = observations(3, 2), jnp.zeros((3, 2), bool), jnp.zeros((2, net.core_size))
    logits, values = net.unroll(seen, first, core)
    for step in range(3):
        now = {name: array[step] for name, array in seen.items()}
        one, value, core = net.step(now, first[step], core)
        np.testing.assert_allclose(one, logits[step], atol=2e-2 if dtype == jnp.bfloat16 else 1e-5)
        assert value.shape == values[step].shape


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Dropout", r"its variable 'dropout\.rngs\.key' is not an array of numbers"),
        ("BatchNorm", r"its call changes 'norm\.mean', and changes are lost.*nnx\.LayerNorm"),
        ("OneNumber", r"shape \(2,\) and type float32, instead of .* shape \(2, features\)"),
        ("Pair", r"shape None and type tuple"),
        ("Integers", r"shape \(2, 32\) and type int32, instead of floating-point"),
        ("TwoRows", r"for 3 rows of observations it gave shape \(2, 32\)"),
        ("TwoHalves", r"for 3 rows of observations it gave shape \(2, 48\)"),
        ("Decides", r"failed with .*TracerBoolConversionError"),
        ("Keeps", r"its variable 'seen' is not an array of numbers"),
        ("WholeParameter", r"its variable 'count' has the type int32, and parameters need float32"),
        ("ShortParameter", r"its variable 'scale' has the type bfloat16, and parameters need float32"),
        ("Raises", r"failed with KeyError: 'nothing'"),
        ("Exits", r"failed with SystemExit: 0"),
        ("NoModule", r"not a subclass of flax\.nnx\.Module"),
        ("Encodr", r"no class 'Encodr': did you mean 'Encoder'"),
    ],
)
@pytest.mark.filterwarnings("ignore:Using 'Module.sow:DeprecationWarning")
def test_what_cannot_work_is_refused_by_name(name, said):
    with pytest.raises((UserError, UserCodeError), match=f"own_encoders:{name}.*{said}") as raised:
        network(f"own_encoders:{name}")
    assert "--config.policy.network" in str(raised.value)


@pytest.mark.quick
def test_a_call_that_is_compiled_changes_nothing():
    assert network("own_encoders:Compiled").encoder.features == 32


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A workdir, trained and resumed, with a release."""
    workdir = tmp_path_factory.mktemp("own") / "run"
    config = get_config(argument="toy")
    config.policy.update(TINY | {"network": MINE, "intrinsic_coefficient": 0.0})
    config.evaluate.update({"episodes": 4, "num_workers": 0, "games_per_worker": 4})
    for steps in (320, 640):
        config.policy.train_for_env_steps = steps
        train_policy.check(viewed(config))
        train_policy.STAGE.run(viewed(config), workdir)
    evaluate.STAGE.run(evaluate.STAGE.view(config), workdir)
    config.export.to = str(workdir / "release")
    export.STAGE.run(export.STAGE.view(config), workdir)
    return workdir


def choose(path):
    """The probabilities of a loaded policy."""
    policy = motif_jax.load_policy(path, trusted=MINE)
    policy.begin(4)
    return policy(observations(4, specs=dict(sorted(policy._specs.items())))).probabilities


def test_a_checkpoint_imports_it_only_if_it_is_named(trained):
    assert f'trusted=["{MINE}"]' in (trained / "release/README.md").read_text()
    for path in (trained, trained / "release"):
        with pytest.raises(UserError, match=f"{MINE}.*imported only if you name it"):
            motif_jax.load_policy(path)
    np.testing.assert_array_equal(choose(trained), choose(trained / "release"))


def test_a_release_keeps_the_order_of_observations(trained, tmp_path):
    """JSON files have sorted keys, and the network joins features in the order of the world's `reads`."""
    release = shutil.copytree(trained / "release", tmp_path / "release")
    facts = read_json(release / "config.json")
    facts.pop(releases.CHECKSUM, None)
    model = facts["policy"]["facts"]["model"]
    assert list(model["reads"]) != model["order"] == list(make_world({"task": "toy"}).reads)

    def write():
        write_json(release / "config.json", facts | {releases.CHECKSUM: releases._checksum(facts)})

    del model["order"]  # as in older releases
    write()
    np.testing.assert_array_equal(choose(trained), choose(release))
    facts["policy"]["facts"]["config"]["env"] |= {"world": "unknown_games:Mine"}
    write()
    with pytest.raises(UserError, match="does not tell the order.*export it again"):
        choose(release)
    model["order"] = ["crop", "crop", "message"]
    write()
    with pytest.raises(UserError, match="does not tell the order.*export it again"):
        choose(release)


def test_a_name_that_does_not_exist_is_refused_before_the_first_stage():
    config = get_config(argument="toy")
    config.policy.update({"network": "own_encoders:Encodr", "intrinsic_coefficient": 0.0})
    with pytest.raises(UserError, match="did you mean 'Encoder'"):
        train_policy.check(viewed(config))

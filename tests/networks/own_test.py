"""Encoders of users (docs/own-network.md): what they may do, what is refused, and whom checkpoints may import."""

import pytest
from conftest import get_config, refusal, run_stage
from flax import nnx
from general_test import ACTIONS, SPECS, observations
from train_policy_test import TINY

import motif_jax
from motif_jax.networks.policy import PolicyNetwork
from motif_jax.stages import evaluate, train_policy
from motif_jax.structs import UserCodeError, UserError

MINE = "own_encoders:Encoder"


@pytest.mark.quick
@pytest.mark.parametrize(("name", "sentence"), [
    ("Dropout", r"its variable 'dropout\.rngs\.key' has the type key"),
    ("BatchNorm", r"its call changes 'norm\.mean', and changes are lost.*nnx\.LayerNorm"),
    ("OneNumber", r"shape \(2,\) and type float32, instead of .* shape \(2, features\)"),
    ("TwoRows", r"for 3 rows of observations it gave shape \(2, 32\)"),
    ("Decides", r"failed with .*TracerBoolConversionError"),
    ("WholeParameter", r"its variable 'count' has the type int32, and parameters need float32"),
    ("Exits", r"failed with SystemExit: 0"),
    ("Encodr", r"no class 'Encodr': did you mean 'Encoder'"),
])  # fmt: skip
def test_encoders_that_cannot_work_are_refused(name, sentence):
    with pytest.raises((UserError, UserCodeError), match=f"own_encoders:{name}.*{sentence}") as raised:
        PolicyNetwork(f"own_encoders:{name}", ACTIONS, specs=SPECS, rngs=nnx.Rngs(0))
    assert "--config.policy.network" in str(raised.value)


def train(workdir):
    """Trains a policy with a user's encoder, and evaluates it; returns the config."""
    config = get_config(argument="toy")
    config.policy.update(TINY | {"network": MINE, "intrinsic_coefficient": 0.0})
    config.evaluate.update({"episodes": 4, "num_workers": 0, "games_per_worker": 4})
    for steps in (320, 640):
        config.policy.train_for_env_steps = steps
        run_stage(train_policy, config, workdir)
    evaluate.STAGE.run(evaluate.STAGE.view(config.to_dict()), workdir)
    return config


def choose(path):
    policy = motif_jax.load_policy(path, trusted=MINE)
    policy.begin(4)
    return policy(observations(4, specs=dict(sorted(policy._specs.items())))).probabilities


def test_a_checkpoint_imports_it_only_if_it_is_named(tmp_path):
    train(tmp_path)
    refusal(lambda: motif_jax.load_policy(tmp_path), match=f"{MINE}.*imported only if you name it")
    assert choose(tmp_path).shape == (4, 23)

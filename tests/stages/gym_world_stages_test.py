import numpy as np
import pytest
from conftest import get_config, run_stage
from train_policy_test import TINY

from motif_jax import load_policy
from motif_jax.files import read_lines
from motif_jax.stages import evaluate, report, train_policy


@pytest.mark.parametrize("actions", ["numbers", "choices"])
def test_actions_of_several_parts_are_learnt_evaluated_and_shown(tmp_path, actions):
    config = get_config("quickstart.py", "toy")
    config.env.world, config.env.options = "own_gym:AimWorld", f'{{"actions": "{actions}"}}'
    config.env.max_episode_steps = 50
    config.policy.update(TINY | {
        "network": "general", "games_per_worker": 32, "groups": 2, "batch_size": 512, "rollout_length": 16,
        "train_for_env_steps": 12_288, "train_for_seconds": 0.0, "extrinsic_coefficient": 1.0, "learning_rate": 6e-3,
    })  # fmt: skip
    config.evaluate.update({"episodes": 30, "num_workers": 0, "replays": "best", "games_per_worker": 4})
    for stage in (train_policy, evaluate, report):
        run_stage(stage, config, tmp_path)
    files = [next(tmp_path.glob(f"evaluate/{name}/episodes.jsonl")) for name in ("policy-*", "random")]
    agent, random = (np.mean([row["episode_return"] for row in read_lines(file)]) for file in files)
    assert agent > random / 2  # returns are negative
    policy = load_policy(tmp_path)
    shown = {"observation": np.float32([0.5, 0.05])}
    act = policy(shown, greedy=True)
    assert act.probabilities is None
    assert act.action.shape == (2,)
    policy.begin(3)
    assert policy({"observation": np.zeros((3, 2), np.float32)}).action.shape == (3, 2)

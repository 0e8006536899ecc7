"""What people use in notebooks."""

import gymnasium
import numpy as np
import pytest
from toy_policies import TASK, policies

import motif_jax
import motif_jax.envs
from motif_jax.envs.gym_game import GymGame
from motif_jax.stages.policy_acting import PolicyPlayer
from motif_jax.stages.policy_setup import read_policy


def test_a_policy_plays_a_game_step_by_step():
    """It wins, it gives what the trainer's own player gives, and it remembers until it is told to forget."""
    good = policies().good
    policy, env = motif_jax.load_policy(good), GymGame(TASK)
    assert policy.facts["model"]["network"] == "small"
    assert policy.reward is not None
    player = PolicyPlayer(read_policy(good)[0], 1, 1, seed=0)
    won = 0
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        policy.begin()
        first = True
        for _ in range(20):
            act = policy(observation)
            _, outputs = player({name: observation[name][None] for name in player.reads}, np.array([first]),
                                np.array([0]))  # fmt: skip
            odds = np.exp(outputs["logits"][0])
            np.testing.assert_allclose(act.probabilities, odds / odds.sum(), rtol=1e-4)
            assert act.value == pytest.approx(float(outputs["value"][0]), rel=1e-4)
            observation, _, terminated, truncated, info = env.step(act.action)
            first = False
            if terminated or truncated:
                break
        won += info["success"]
    assert won > 15
    assert policy(observation, greedy=True).action == policy(observation, greedy=True).probabilities.argmax()
    with pytest.raises(TypeError, match="this policy reads"):
        policy({"message": observation["message"]})
    env.close()


def test_it_plays_the_games_that_gymnasium_makes():
    env = gymnasium.make("motif_jax/NetHackScore-v1")
    policy = motif_jax.load_policy(policies().weak, "64")
    observation, _ = env.reset(seed=7)
    for _ in range(20):
        observation, *_ = env.step(policy(observation).action)
    env.close()

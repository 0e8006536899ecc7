"""The tasks as gymnasium environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import motif_jax.envs  # noqa: F401  (makes the ids known)
from motif_jax.envs.nethack.tasks import TASKS, extended_ids


@pytest.mark.quick
@pytest.mark.parametrize("name", [*(task.name for task in TASKS.values()), *extended_ids(), "Toy-v0"])
@pytest.mark.filterwarnings("ignore:.*(not within the observation space|render_modes).*")
def test_gymnasiums_own_checker_passes(name):
    env = gymnasium.make(f"motif_jax/{name}")
    check_env(env.unwrapped, skip_render_check=True)
    env.close()


@pytest.mark.quick
def test_observations_are_not_overwritten_by_later_steps():
    env = gymnasium.make("motif_jax/NetHackScore-v1", observations=("message", "blstats"), max_episode_steps=None)
    first, _ = env.reset(seed=1)
    kept = {key: value.copy() for key, value in first.items()}
    for _ in range(20):
        env.step(19)
    assert all(np.array_equal(first[key], kept[key]) for key in kept)
    env.close()


def test_stable_baselines_trains_on_them():
    stable_baselines3 = pytest.importorskip("stable_baselines3", reason="bash launch/test.sh installs it")
    import torch

    torch.set_num_threads(1)  # threads that wait for each other on a busy machine take ten times as long
    env = gymnasium.make("motif_jax/NetHackScore-v1")
    agent = stable_baselines3.PPO("MultiInputPolicy", env, n_steps=128, batch_size=64, n_epochs=1, seed=1, device="cpu")
    extractors = agent.policy.features_extractor.extractors
    assert extractors.keys() == env.observation_space.keys()
    assert all(isinstance(one, torch.nn.Flatten) for one in extractors.values())  # nothing is taken for a picture
    agent.learn(384)
    assert agent.num_timesteps == 384
    env.close()

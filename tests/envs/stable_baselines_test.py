"""The games as another library meets them: Stable-Baselines3 checks them and trains on them."""

import warnings

import gymnasium
import numpy as np
import pytest

import motif_jax.envs  # noqa: F401  (makes the ids known)
from motif_jax.envs.nethack.observations import EVENTS, OBSERVATIONS
from motif_jax.envs.nethack.tasks import TASKS, extended_ids

pytest.importorskip("stable_baselines3", reason="bash launch/test.sh installs Stable-Baselines3")


@pytest.mark.parametrize("name", [*(task.name for task in TASKS.values()), *extended_ids(), "Toy-v0"])
def test_its_checker_has_nothing_to_say(name):
    from stable_baselines3.common.env_checker import check_env

    env = gymnasium.make(f"motif_jax/{name}")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        check_env(env, skip_render_check=True)
    env.close()


@pytest.fixture
def one_thread():
    """Threads of PyTorch that wait for each other on a busy machine take ten times as long."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["NetHackScore-v1", "Toy-v0"])
def test_it_trains_on_them(name, one_thread):
    from stable_baselines3 import PPO
    from torch import nn

    env = gymnasium.make(f"motif_jax/{name}")
    agent = PPO("MultiInputPolicy", env, n_steps=128, batch_size=64, n_epochs=1, seed=1, device="cpu")
    extractors = agent.policy.features_extractor.extractors
    assert extractors.keys() == env.observation_space.keys()
    assert all(isinstance(extractor, nn.Flatten) for extractor in extractors.values())  # nothing is taken for a picture
    agent.learn(384)
    assert agent.ep_info_buffer or name.startswith("NetHack")  # statistics of episodes that have ended
    assert agent.num_timesteps == 384
    observation, _ = env.reset(seed=7)
    for _ in range(10):
        action, _ = agent.predict(observation)
        observation, *_ = env.step(int(action))
    env.close()


def test_all_observations_stay_within_their_spaces():
    """Those that no policy reads as well; an episode that ends included."""
    env = gymnasium.make("motif_jax/NetHackScore-v1", observations=(*OBSERVATIONS, *EVENTS), time_limit=150)
    env.action_space.seed(3)
    observation, _ = env.reset(seed=3)
    for _ in range(400):
        assert env.observation_space.contains(observation)
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            assert env.observation_space.contains(observation)
            observation, _ = env.reset()
    crop = observation["crop"].reshape(2, 12, 12)
    assert crop[0, 7, 6] == ord("@")  # the hero
    assert {len(space.shape) for space in env.observation_space.values()} == {1, 2}
    assert np.array_equal(env.observation_space["crop"].high.reshape(2, -1).max(1), [255, 31])
    env.close()

"""The games as another library meets them: Stable-Baselines3 checks them and trains on them."""

import warnings

import gymnasium
import pytest

import motif_jax.envs  # noqa: F401  (makes the ids known)
from motif_jax.envs.nethack.tasks import extended_ids

pytest.importorskip("stable_baselines3", reason="bash launch/test.sh installs Stable-Baselines3")


@pytest.mark.parametrize("name", ["NetHackScore-v1", extended_ids()[0], "Toy-v0"])
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

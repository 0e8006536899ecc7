"""The same games with PPO of Stable-Baselines3, for comparison: its documentation's values for them, in one process.

    pip install stable-baselines3 box2d
    python examples/control/sb3.py pendulum 1

The number is the seed. It prints the training's seconds and steps, and the mean return of 100 episodes.
"""

import sys
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

GAMES = {
    "pendulum": ("Pendulum-v1", 300_000, 4, {
        "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "learning_rate": 1e-3, "use_sde": True, "sde_sample_freq": 4,
    }),
    "lander": ("LunarLanderContinuous-v3", 1_000_000, 16, {
        "n_steps": 1024, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01,
    }),
}  # fmt: skip


def main(game: str, seed: int) -> None:
    """Trains and evaluates one seed."""
    torch.set_num_threads(1)
    name, steps, games, values = GAMES[game]
    began = time.perf_counter()
    agent = PPO("MlpPolicy", make_vec_env(name, games, seed=seed), seed=seed, device="cpu", **values).learn(steps)
    seconds = time.perf_counter() - began
    mean, _ = evaluate_policy(agent, make_vec_env(name, 4, seed=10_000 + seed), n_eval_episodes=100)
    print(f"{game} seed {seed}: {seconds:.0f} s for {agent.num_timesteps:,} steps; return {mean:.1f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""PPO with actions that are numbers, on two games of gymnasium; the game's own reward, without captions.

    python -m motif_jax.launch --config=examples/control/config.py:pendulum --workdir=runs/pendulum

`:lander` needs `pip install box2d`. sb3.py trains Stable-Baselines3's PPO on the same games.

Time on one core: 39 seconds, `:lander` four minutes. Expected over five seeds: a return of -178 [-202, -159], `:lander`
261 [248, 273] (docs/results/own-game.md).
"""

from ml_collections import ConfigDict

from motif_jax.configs.motif import get_config as motif
from motif_jax.structs import UserError


def get_config(argument: str = "pendulum") -> ConfigDict:
    """`configs/motif.py` on another game, without a learnt reward."""
    if argument not in ("pendulum", "lander"):
        raise UserError(f"unknown game {argument!r}: choose pendulum or lander (--config)")
    config = motif("toy")
    config.stages = ("train_policy", "evaluate", "report")
    config.env.world = f"examples.control.games:{argument.capitalize()}"
    config.env.max_episode_steps = 1000  # the pendulum ends after 200
    policy = config.policy
    policy.network = "general"
    policy.algorithm = "ppo"
    policy.extrinsic_coefficient, policy.intrinsic_coefficient = 1.0, 0.0
    policy.num_workers = 1
    policy.games_per_worker = 32
    policy.warmup_steps = 0
    policy.wait_for_learner = True
    policy.batch_size = 2048
    policy.num_epochs, policy.num_minibatches = 10, 4
    policy.learning_rate, policy.anneal_learning_rate_to = 1e-3, 0.1
    policy.clip_ratio = 0.2
    policy.clip_value = 0.0
    policy.exploration_coefficient = 0.0
    policy.discount = 0.9
    policy.train_for_env_steps = 300_000
    if argument == "lander":
        policy.rollout_length = 64
        policy.num_epochs, policy.num_minibatches = 4, 16
        policy.discount, policy.gae_lambda = 0.999, 0.98
        policy.learning_rate = 5e-4
        policy.exploration_coefficient = 0.003
        policy.train_for_env_steps = 1_000_000
    config.evaluate.episodes = 100
    config.evaluate.greedy = True
    return config

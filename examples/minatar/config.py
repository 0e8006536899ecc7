"""An encoder of one's own on MinAtar's Breakout, with the game's reward.

    pip install -e ".[minatar]"
    python -m motif_jax.launch --config=examples/minatar/config.py --workdir=runs/minatar

Time: about two minutes on two cores. Expected: not measured over seeds.
"""

from ml_collections import ConfigDict

from motif_jax.configs.motif import get_config as motif


def get_config() -> ConfigDict:
    """`configs/motif.py` on another game, without a learnt reward."""
    config = motif()
    config.stages = ("train_policy", "evaluate", "report")
    config.env.world = "examples.minatar.breakout:Breakout"
    config.env.max_episode_steps = 1000
    config.policy.network = "examples.minatar.breakout:Encoder"
    config.policy.games_per_worker = 16
    config.policy.warmup_steps = 64
    config.policy.batch_size = 1024
    config.policy.learning_rate = 1e-3
    config.policy.extrinsic_coefficient = 1.0
    config.policy.reward_scale = 1.0
    config.policy.intrinsic_coefficient = 0.0
    config.policy.train_for_env_steps = 2_000_000
    config.evaluate.episodes = 100
    config.evaluate.baselines = "random"
    return config

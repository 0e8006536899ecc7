"""The whole of Motif on a MiniGrid level, in about seven minutes on two cores.

    pip install -e ".[minigrid]"
    python -m motif_jax.launch --config=examples/minigrid/config.py --workdir=runs/minigrid

Random play makes pairs of captioned moments, the rules of lexicon.toml judge them, a reward is learnt from that, and an
agent learns from this reward alone; then it plays 200 games beside random play, and the report shows all of it.
Expected over five seeds: success in 0.81 [0.75, 0.87] of the games, random play in 0.28 (docs/results/own-game.md).
"""

from ml_collections import ConfigDict

from motif_jax.configs.motif import get_config as motif


def get_config() -> ConfigDict:
    """`configs/motif.py` on another game, and small."""
    config = motif()
    config.env.world = "examples.minigrid.go_to:GoTo"
    config.env.max_episode_steps = 64
    config.collect.collector = "random"
    config.collect.num_pairs = 20_000
    config.reward.learning_rate = 5e-4  # few pairs, so few updates: larger ones
    config.reward.num_epochs = 6
    config.policy.network = "general"  # follows from what the world lets its players see
    config.policy.games_per_worker = 16
    config.policy.warmup_steps = 64
    config.policy.batch_size = 1024
    config.policy.learning_rate = 1e-3
    config.policy.extrinsic_coefficient = 0.0  # what the lexicon prefers is all that counts
    config.policy.intrinsic_coefficient = 1.0
    config.policy.train_for_env_steps = 100_000_000  # time ends it
    config.policy.train_for_seconds = 300.0
    config.policy.save_every_s = 60.0
    config.evaluate.episodes = 200
    return config

"""The whole pipeline, small, on a CPU, with no download.

    python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/quickstart

Today this is the dataset, 20,000 pairs from the explorer and random play, its annotation by the lexicon, a reward
learnt from that (half a minute on two cores), and an agent trained on it for a million steps (two minutes and a half).
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict


def get_config(argument: str = "score") -> ConfigDict:
    """`motif.py`, made small."""
    config = runpy.run_path(str(Path(__file__).with_name("motif.py")))["get_config"](argument)
    config.collect.num_pairs = 20_000
    config.collect.keep_empty = 0.2  # most steps show no message; few of them are enough here
    config.env.max_episode_steps = 1000
    config.reward.learning_rate = 5e-4  # few pairs, so few updates: larger ones
    config.reward.num_epochs = 6
    config.policy.network = "small"
    config.policy.groups = 4
    config.policy.batch_size = 1024
    config.policy.learning_rate = 1e-3  # a small network, and few steps
    config.policy.train_for_env_steps = 1_000_000
    config.policy.save_every_s = 60.0
    return config

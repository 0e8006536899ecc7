"""The whole pipeline, small, on a CPU, with no download.

    python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/quickstart

Today this is the dataset, 20,000 pairs from the explorer and random play, its annotation by the lexicon, and a reward
learnt from that: half a minute on two cores.
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
    return config

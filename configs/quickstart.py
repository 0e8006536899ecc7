"""The whole pipeline, small, on a CPU, with no download.

    python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/quickstart

50,000 pairs from the explorer and random play, their annotation by the lexicon, a reward learnt from that (a minute and
a half on two cores until here), an agent that is trained on this reward alone (nearly seven minutes), 100 games
of evaluation beside random play, and the report.
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict


def get_config(argument: str = "score") -> ConfigDict:
    """`motif.py`, made small."""
    config = runpy.run_path(str(Path(__file__).with_name("motif.py")))["get_config"](argument)
    config.collect.num_pairs = 50_000
    config.collect.keep_empty = 0.2  # most steps show no message; few of them are enough here
    config.env.max_episode_steps = 1000
    config.reward.learning_rate = 5e-4  # few pairs, so few updates: larger ones
    config.reward.num_epochs = 6
    config.policy.network = "small"
    # 64 games in all, that wait for a slower learner: with 128 that run ahead, samples were ten updates old instead of
    # one or two, and it was no faster.
    config.policy.games_per_worker = max(64 >> (config.policy.num_workers - 1).bit_length(), 2)
    config.policy.wait_for_learner = True
    config.policy.batch_size = 1024
    config.policy.learning_rate = 1e-3  # a small network, and few steps
    config.policy.extrinsic_coefficient = 0.0  # what the lexicon prefers is all that counts
    config.policy.intrinsic_coefficient = 1.0
    config.policy.train_for_env_steps = 100_000_000  # time ends it
    config.policy.train_for_seconds = 400.0
    config.policy.save_every_s = 60.0
    return config

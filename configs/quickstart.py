"""The whole pipeline, small, on a CPU, without downloads.

    python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/quickstart

It collects 50,000 pairs with the explorer and random play, annotates them with the lexicon, learns a reward from the
labels, trains an agent on this reward alone, evaluates it and random play on 100 games, and writes the report.

Time: ten minutes on two cores, nearly seven of them for the agent. Expected: a score of 107 [94, 118] over ten seeds;
random play 18 (docs/results/motif.md).
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict


def get_config(argument: str = "score") -> ConfigDict:
    """`motif.py` with small sizes."""
    config = runpy.run_path(str(Path(__file__).with_name("motif.py")))["get_config"](argument)
    config.collect.num_pairs = 50_000  # half the default, which is enough for a reward in this time
    config.collect.keep_empty = 0.2  # most steps are without a message; few of them are enough
    config.env.max_episode_steps = 1000  # short games, for more of them
    config.reward.learning_rate = 5e-4  # few pairs, so few updates: larger steps
    config.reward.num_epochs = 6
    config.reward.labels = "hard"  # agents learn more slowly from degrees (docs/results/motif.md, "Eating")
    config.policy.network = "small"  # for CPUs
    # 64 games, which wait for the learner: with 128 games that do not wait, samples were ten updates old instead of one
    # or two, and training was not faster.
    config.policy.games_per_worker = max(64 >> (config.policy.num_workers - 1).bit_length(), 2)
    config.policy.wait_for_learner = True
    config.policy.batch_size = 1024  # smaller batches, for more updates
    config.policy.learning_rate = 1e-3  # a small network, and few steps
    config.policy.extrinsic_coefficient = 0.0  # the learnt reward alone
    config.policy.intrinsic_coefficient = 1.0
    config.policy.train_for_env_steps = 100_000_000  # not reached
    config.policy.train_for_seconds = 400.0  # the limit of the run
    config.policy.save_every_s = 60.0  # of 400
    return config

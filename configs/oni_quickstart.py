"""ONI, small, on a CPU, without downloads: a judge labels messages while the agent trains from scratch.

    python -m motif_jax.launch --config=configs/oni_quickstart.py --workdir=runs/oni

The judge is the lexicon on a local server, which takes 50 ms per question. Only its labels reward the agent.

Time: eight minutes on two cores, nearly seven of them for training. Expected after 600,000 steps, over five seeds: a
score of 21.5 [16.5, 26.4], with `:reward_free,classification` 40.6 [19.7, 76.1]; random play 7.1 (docs/results/oni.md).
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict


def get_config(argument: str = "reward_free,retrieval") -> ConfigDict:
    """`oni.py` with small sizes."""
    config = runpy.run_path(str(Path(__file__).with_name("oni.py")))["get_config"](argument)
    config.env.max_episode_steps = 1000  # short games, for more of them
    config.policy.network = "small"  # for CPUs
    # As in quickstart.py: 64 games, which wait for the learner, so that samples are newer.
    config.policy.games_per_worker = max(64 >> (config.policy.num_workers - 1).bit_length(), 2)
    config.policy.wait_for_learner = True
    config.policy.batch_size = 1024  # smaller batches, for more updates
    config.policy.learning_rate = 1e-3  # a small network, and few steps
    config.policy.train_for_env_steps = 100_000_000  # not reached
    config.policy.train_for_seconds = 400.0  # the limit of the run
    config.policy.save_every_s = 60.0  # of 400
    config.policy.online.message = "lt_cnn_small"  # for CPUs
    config.policy.online.learning_rate = 1e-3  # few labels, so few lessons: larger steps
    config.policy.online.updates_early = 4  # lessons share the CPU with the games
    config.policy.online.batch_size = 64
    return config

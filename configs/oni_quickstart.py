"""ONI, small, on a CPU, with no download: an agent that starts from nothing, and a judge that is asked meanwhile.

    python -m motif_jax.launch --config=configs/oni_quickstart.py --workdir=runs/oni

The judge is the lexicon behind a server of its own, which takes 50 ms for a question. Its labels alone reward the
agent. Training takes nearly seven minutes, evaluation beside random play one more.
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict


def get_config(argument: str = "reward_free,retrieval") -> ConfigDict:
    """`oni.py`, made small."""
    config = runpy.run_path(str(Path(__file__).with_name("oni.py")))["get_config"](argument)
    config.env.max_episode_steps = 1000
    config.policy.network = "small"
    # As in quickstart.py: 64 games in all, which wait for a slower learner.
    config.policy.games_per_worker = max(64 >> (config.policy.num_workers - 1).bit_length(), 2)
    config.policy.wait_for_learner = True
    config.policy.batch_size = 1024
    config.policy.learning_rate = 1e-3  # a small network, and few steps
    config.policy.train_for_env_steps = 100_000_000  # time ends it
    config.policy.train_for_seconds = 400.0
    config.policy.save_every_s = 60.0
    config.policy.online.message = "lt_cnn_small"
    config.policy.online.learning_rate = 1e-3  # few labels, so few lessons: larger ones
    config.policy.online.lessons_early = 4
    config.policy.online.batch_size = 64
    return config

"""Motif on a game of your own, small: docs/own-game.md.

    python -m motif_jax.launch --config=configs/own_game.py:my_package.my_game:MyWorld --workdir=runs/mine \
        --config.annotate.backend=model --config.annotate.model=smollm2 --config.annotate.mode=rate \
        --config.annotate.goal="The player wants to ..."

The argument is the class of the world; with a name of this program, such as `toy`, it is tried without a game. An
installation without the repository has this config as --config=own_game:my_package.my_game:MyWorld.

Time: a minute for data and labels of a game with few captions, and five minutes of training, on one or two cores.
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict


def get_config(argument: str = "toy") -> ConfigDict:
    """`motif.py` with small sizes, for the world that the argument names."""
    config = runpy.run_path(str(Path(__file__).with_name("motif.py")))["get_config"]()
    config.env.world = argument
    config.env.max_episode_steps = 64
    config.collect.collector = "random"
    config.collect.num_pairs = 20_000
    config.policy.network = "general"  # follows from what the world lets its players see
    config.policy.games_per_worker = 16
    config.policy.warmup_steps = 64
    config.policy.batch_size = 1024
    config.policy.learning_rate = 1e-3
    config.policy.extrinsic_coefficient = 0.0  # what the judge prefers is all that counts
    config.policy.intrinsic_coefficient = 1.0
    config.policy.train_for_env_steps = 100_000_000  # time ends it
    config.policy.train_for_seconds = 300.0
    config.policy.save_every_s = 60.0
    config.evaluate.episodes = 200
    config.reward.learning_rate = 5e-4  # few pairs, so few updates: larger ones
    config.reward.num_epochs = 6
    return config

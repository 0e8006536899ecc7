"""Rewards as programs, small, on a CPU, without downloads: a program is written, and an agent learns from it.

    pip install -e ".[minigrid]"
    python -m motif_jax.launch --config=code_quickstart:doorkey --workdir=runs/code

The argument is the game: `gold` is NetHack with the goal `gold`; `doorkey` is MiniGrid's level DoorKey of a checkout
(examples/minigrid/door_key.py). Rules judge the programs, and templates over the words of the goal write them, which
know nothing of games: they show what the loop does. To have a language model write:

    --config.code_rewards.writer=server --config.annotate.server.url=URL --config.annotate.model=NAME

Eight minutes on two cores, 400 s of them training; training on DoorKey ends when 95 of the last 100 games succeed.
Expected there: 90 % success after 139,000 steps [90,000, 188,000] over five seeds; without a program, not within
500,000 (docs/results/code-rewards.md).
"""

import runpy

from ml_collections import ConfigDict

from motif_jax.config.file import find_config
from motif_jax.structs import UserError


def get_config(argument: str = "gold") -> ConfigDict:
    """The whole experiment; docs/config.md lists all values."""
    known = {"gold": gold, "doorkey": doorkey}
    if argument not in known:
        raise UserError(f"unknown game {argument!r}: choose from {', '.join(known)} (--config)")
    config = runpy.run_path(find_config("quickstart"))["get_config"]()
    config.stages = ("write_reward", "train_policy", "evaluate", "report")
    config.policy.sources = "code:write_reward"  # the best program of the workdir
    config.policy.intrinsic_coefficient = 0.0
    known[argument](config)
    return config


def gold(config: ConfigDict) -> None:
    """NetHack, with the sizes of quickstart.py."""
    config.annotate.goal = "gold"
    config.code_rewards.players = "explorer:0.5,random:0.5"
    config.code_rewards.steps = 40_000


def doorkey(config: ConfigDict) -> None:
    """A locked door between a robot and its goal, with the sizes of examples/minigrid/config.py."""
    config.env.world = "examples.minigrid.door_key:DoorKey"
    config.env.max_episode_steps = 360  # the level's own limit
    config.code_rewards.steps = 40_000
    config.policy.network = "general"
    config.policy.games_per_worker = 16
    config.policy.warmup_steps = 64
    config.policy.wait_for_learner = False
    config.policy.train_until = "success>=0.95"  # long before the 400 s are over

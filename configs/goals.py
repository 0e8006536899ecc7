"""An agent with a rare goal: it is to find gold, to go down, or to see much of the dungeon.

    python -m motif_jax.launch --config=configs/goals.py:gold --workdir=runs/gold    # :gold,gpu on a GPU

`:progress` goes on from the agent for stairs, in whole games and with the goal of quickstart.py:

    python -m motif_jax.launch --config=configs/goals.py:progress --workdir=runs/progress \
        --config.policy.init_from=runs/stairs

With --config.policy.train_for_env_steps=40000000 (82 minutes on two cores) this made the agent of docs/releases.md.

Time: training takes six minutes on two cores. Expected over five seeds (docs/results/motif.md): gold is picked up 1.14
[0.94, 1.34] times, by random play 0.51; stairs are taken down 0.32 [0.10, 0.53] times, by random play 0.05.

As quickstart.py, but the reward is learnt from labels with degrees, so that small steps stay small. The agent also gets
a little for each new square of the map, and loses a little in each step that takes no time; its games are short.
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.structs import UserError

GOALS = "gold", "stairs", "explore", "progress"


def get_config(argument: str = "gold") -> ConfigDict:
    """The whole experiment; docs/results/motif.md has the results."""
    argument, _, switch = argument.partition(",")
    if argument not in GOALS or switch not in ("", "gpu"):
        raise UserError(f"unknown goal {argument!r}: choose from {', '.join(GOALS)}, and optionally gpu (--config)")
    small = runpy.run_path(str(Path(__file__).with_name("quickstart.py")))
    config = small["get_config"]("score,gpu" if switch else "score")
    config.policy.sources = "explore:0.02,event_idle:-0.01"
    config.policy.max_episode_steps = 250
    config.policy.exploration_coefficient = 0.01
    config.policy.anneal_exploration_to = 0.2
    if argument == "explore":
        config.stages = ("train_policy", "evaluate", "report")
        config.policy.intrinsic_coefficient = 0.0
    else:
        config.annotate.goal = "defaultgoal" if argument == "progress" else argument
        config.env.stairs_message = True  # a step onto stairs has a message, which the reward can value
        config.reward.labels = "auto"  # degrees
        config.policy.sources = f"learnt,{config.policy.sources}"
        config.policy.intrinsic_form = "relative"
    if argument in ("stairs", "progress"):
        # Before agents find stairs, the key for going down only wastes steps, but they must not unlearn it.
        config.policy.sources = "learnt,explore:0.02,event_idle:-0.005"
        config.policy.intrinsic_coefficient = 5.0
        config.policy.exploration_coefficient = 0.02
    if argument == "progress":
        config.policy.max_episode_steps = 0  # hunger matters only in long games
    if not switch:
        config.policy.train_for_env_steps = 2_500_000
        config.policy.train_for_seconds = 0.0
    config.evaluate.baselines = "random"
    config.evaluate.episodes = 200
    return config

"""Options over rewards: one network plays several behaviours, and a controller chooses among them (docs/options.md).

    python -m motif_jax.launch --config=options:treasure --workdir=runs/options

`treasure` is a small game whose best return, 29, is known; an agent that is satisfied with the first reward gets 20.
`nethack` has the options learnt, gold and stairs, and a controller that is paid the game's score.

Time of `treasure`: training takes three minutes on two cores. Expected: a return of 27.9 [27.8, 28.0] over five seeds
(docs/results/options.md). In `nethack`, an agent with one reward scores more.
"""

import runpy

from ml_collections import ConfigDict

from motif_jax.config.file import find_config
from motif_jax.experiment import defaults
from motif_jax.structs import UserError


def get_config(argument: str = "treasure") -> ConfigDict:
    """The whole experiment; docs/options.md lists the values of options."""
    known = {"treasure": treasure, "nethack": nethack}
    if argument not in known:
        raise UserError(f"unknown experiment {argument!r}: choose from {', '.join(known)} (--config)")
    return known[argument]()


def treasure() -> ConfigDict:
    """A corridor with gold on one side and stairs on the other."""
    config = defaults()
    config.stages = ("train_policy", "evaluate", "report")
    config.env.world = "treasure"
    config.policy.network = "general"
    config.options.rewards = "stairs:20,gold:1"
    config.options.controller = "game:0.1"
    config.policy.games_per_worker = max(64 >> (config.policy.num_workers - 1).bit_length(), 2)
    config.policy.rollout_length = 64  # a whole episode with its decisions
    config.policy.warmup_steps = 0  # episodes are short
    config.policy.wait_for_learner = True
    config.policy.num_minibatches = 4
    config.policy.learning_rate = 4e-4  # a small network, and few steps
    config.policy.anneal_learning_rate_to = 0.1
    # At first the controller chooses almost at random, until the options can be relied on.
    config.options.exploration = 100_000.0
    config.options.anneal_exploration_to = 1e-5
    config.options.bootstrap_on_switch = False  # see docs/options.md
    config.policy.train_for_env_steps = 4_000_000
    return config


def nethack() -> ConfigDict:
    """The learnt reward, gold and stairs down as options; data, reward and small pay for new squares as in goals.py."""
    config = runpy.run_path(find_config("goals"))["get_config"]("progress")
    policy, options, own = config.policy, config.options, {"learnt": 5, "gold": 0.1, "stairs": 0.05}
    # Each option can earn 0.05 to 0.1 per step: paid 1 per step on stairs, stairs broke what the others had learnt.
    policy.sources, policy.intrinsic_coefficient = "", 0.0
    options.rewards = ",".join(f"{name}={name}:{factor}+explore:0.02+idle:-0.005" for name, factor in own.items())
    options.controller = "score:0.01"
    policy.max_episode_steps = 250  # more beginnings, where most gold and stairs are found
    # As above: the controller chooses almost at random until the options can be relied on.
    options.exploration = 100_000.0
    options.anneal_exploration_to = 1e-5
    options.bootstrap_on_switch = False
    policy.train_for_env_steps = 10_000_000
    config.evaluate.baselines = "random,#learnt,#gold,#stairs"
    return config

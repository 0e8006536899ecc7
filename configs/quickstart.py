"""The whole pipeline, small, on a CPU, without downloads; `:score,gpu` on a GPU.

    python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/quickstart
    python -m motif_jax.launch --config=configs/quickstart.py:score,gpu --workdir=runs/quickstart

It collects 50,000 pairs with the explorer and random play, annotates them with the lexicon, learns a reward from the
labels, trains an agent on this reward alone, evaluates it and random play on 100 games, and writes the report.

Time: ten minutes on two cores, nearly seven of them for the agent. Expected: a score of 107 [94, 118] over ten seeds;
random play 18 (docs/results/motif.md).

On a GPU the published network is trained for five minutes, with the sources of goals.py:progress and sizes from
motif_jax/system/sizing.py. A run with these values on an H200 with 16 cores had a score of 233 and a deepest level of
2.2 after 270 s of training (one seed; docs/results/motif.md); this config itself is not measured yet.
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.system.machine import usable_cores
from motif_jax.system.sizing import size_run


def get_config(argument: str = "score") -> ConfigDict:
    """`motif.py` with small sizes; the argument is a task, and optionally `gpu`."""
    config = runpy.run_path(str(Path(__file__).with_name("motif.py")))["get_config"](argument)
    config.collect.num_pairs = 50_000  # half the default, which is enough for a reward in this time
    config.collect.keep_empty = 0.2  # most steps are without a message; few of them are enough
    config.env.max_episode_steps = 1000  # short games, for more of them
    config.reward.learning_rate = 5e-4  # few pairs, so few updates: larger steps
    config.reward.num_epochs = 6
    config.reward.labels = "hard"  # agents learn more slowly from degrees (docs/results/motif.md, "Eating")
    config.policy.learning_rate = 1e-3  # a small network, and few steps
    config.policy.extrinsic_coefficient = 0.0  # the learnt reward alone
    config.policy.intrinsic_coefficient = 1.0
    config.policy.train_for_env_steps = 100_000_000  # not reached
    config.policy.train_for_seconds = 400.0  # the limit of the run
    config.policy.save_every_s = 60.0  # of 400
    if config.sized:
        return on_gpu(config)
    config.policy.update(size_run(usable_cores(), None)._asdict())
    return config


def on_gpu(config: ConfigDict) -> ConfigDict:
    """The recipe for a GPU, where a training has twenty million steps: enough to learn to go down, and to explore."""
    config.env.stairs_message = True  # a step onto stairs has a message, which the reward can value
    config.reward.labels = "auto"  # degrees, so that small steps stay small
    config.policy.sources = "learnt,explore:0.02,event_idle:-0.005"
    config.policy.intrinsic_form = "relative"
    config.policy.intrinsic_coefficient = 5.0
    config.policy.exploration_coefficient = 0.02
    config.policy.anneal_exploration_to = 0.2
    config.policy.warmup_steps = 100
    config.policy.learning_rate = 3e-4  # the published network
    config.policy.train_for_seconds = 300.0
    return config

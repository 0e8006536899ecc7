"""DRRN on BabyAI-Text, small, on a CPU: the baseline beside the config glam_quickstart.

    python -m motif_jax.launch --config=drrn_quickstart --workdir=runs/drrn

The argument is a level. Time: five minutes on two cores. Expected over five seeds: a return of 0.37 [0.35, 0.38]
(docs/results/glam.md).
"""

import runpy
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.config.file import find_config


def get_config(argument: str = "goto_small") -> ConfigDict:
    """`glam_quickstart.py` with DRRN in place of a language model."""
    config = runpy.run_path(find_config("glam_quickstart"))["get_config"](f"{argument},unread")
    policy = config.policy
    policy.games_per_worker = 32
    runpy.run_path(str(Path(__file__).with_name("drrn.py")))["q_learning"](policy)
    policy.learning_rate = 1e-3  # high: a small network, few steps
    policy.num_minibatches = 8  # per 128 steps: more updates, as the steps are few
    policy.probe_every = 8  # batches are eight times smaller than the language model's
    config.drrn.width = 32  # as the language model's
    config.drrn.max_tokens = policy.language.max_tokens
    config.drrn.capacity = policy.train_for_env_steps  # all steps of the run
    return config

"""DRRN on BabyAI-Text, GLAM's baseline: a network reads prompts and names of actions, and learns by Q-learning.

    python -m motif_jax.launch --config=drrn:goto_local --workdir=runs/drrn-published

The argument is a level of the config glam, and optionally `reference`. The config drrn_quickstart is small.
"""

import runpy

from ml_collections import ConfigDict

from motif_jax.config.file import find_config


def get_config(argument: str = "goto_local") -> ConfigDict:
    """`glam.py` with DRRN, with the published hyperparameters."""
    config = runpy.run_path(find_config("glam"))["get_config"](argument)
    q_learning(config.policy)
    return config


def q_learning(policy: ConfigDict) -> None:
    """Sets the section `policy` to the baseline DRRN, with the published hyperparameters."""
    policy.network = "drrn"
    policy.algorithm = "q_learning"
    policy.num_devices = 1  # this algorithm runs on one device
    policy.extrinsic_coefficient = 20.0  # actions are sampled from the softmax of Q: the scale sets the exploration
    policy.discount = 0.9
    policy.learning_rate = 1e-4
    policy.adam_eps = 1e-8
    policy.max_gradient_norm = 5.0
    policy.rollout_length = 4  # 4 steps of 32 games, then one minibatch
    policy.batch_size = 128
    policy.num_epochs = 1
    policy.num_minibatches = 1

"""GRPO or GiGPO on BabyAI-Text: advantages within groups of episodes in place of GLAM's critic (docs/groups.md).

    python -m motif_jax.launch --config=groups:goto_small,gigpo --workdir=runs/groups

The argument is a level of the config glam, then grpo or gigpo, and optionally more words of that config: with smollm2,
SmolLM2-135M-Instruct plays, which takes minutes on one GPU. There are only trials with one seed.
"""

import runpy

from ml_collections import ConfigDict

from motif_jax.config.file import find_config
from motif_jax.structs import UserError

ALGORITHMS = ("grpo", "gigpo")


def get_config(argument: str = "goto_small,gigpo") -> ConfigDict:
    """`glam.py` with groups of episodes."""
    words = argument.split(",")
    chosen = [word for word in words if word in ALGORITHMS]
    if len(chosen) != 1:
        raise UserError(f"{argument!r} must have one of {' and '.join(ALGORITHMS)} (--config)")
    glam, tiny = runpy.run_path(find_config("glam")), "rehearsal" in words
    config = glam["get_config"](",".join(word for word in words if word not in (*ALGORITHMS, "rehearsal")))
    policy = config.policy
    policy.algorithm = chosen[0]
    policy.max_episode_steps = policy.rollout_length = 32  # whole episodes
    policy.batch_size = 1024  # 4 groups of 8 episodes
    policy.num_minibatches = 16
    if "smollm2" in words:
        policy.max_episode_steps = policy.rollout_length = 64
        policy.batch_size = 4096  # 8 groups of 8 episodes
        policy.num_minibatches = 32  # of 128 steps, as with PPO
        policy.train_for_env_steps = 81_920  # 20 batches
    if tiny:
        glam["tiny"](config)
    return config

"""What needs no JAX: when training is finished, what makes an update smaller, Q-learning."""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.actors.capacity import available_mib
from motif_jax.learner.settings import Q_LEARNING, REPLAY
from motif_jax.networks.kinds import DRRN, LANGUAGE
from motif_jax.policies.drrn_settings import FLAG as DRRN_FLAG
from motif_jax.structs import UserError

RESCUED = "rescued.npz"  # in the policy's directory: what was learnt when another host was lost (rescue.py)
TOKEN_BYTES = 2  # a token in a replay buffer takes at least so many
DEVICE_MEMORY = "--config.policy.batch_size, .num_minibatches, .network"  # flags that decide what an update takes of it


def finished(config: ConfigDict, env_steps: int, seconds: float) -> bool:
    """Whether training has reached the config's limit of steps or seconds."""
    limit = config.policy.train_for_seconds
    return env_steps >= config.policy.train_for_env_steps or bool(limit and seconds >= limit)


def takes_turns(section: ConfigDict) -> bool:
    """Whether games wait while the learner works: for runs that are the same twice, and for PPO."""
    return section.synchronous or section.algorithm == "ppo"


def minibatches_of_columns(section: ConfigDict) -> int:
    """How many minibatches the columns of a batch must make, a column being a game's steps in a row.

    In PPO with a network that has no memory, minibatches are made of single steps; in Q-learning they are drawn from
    the replay buffer.
    """
    of_steps = section.algorithm == "ppo" and section.network == LANGUAGE
    return 1 if of_steps or section.algorithm == Q_LEARNING else section.num_minibatches


def check_q_learning(section: ConfigDict) -> None:
    """Raises UserError if one of the network DRRN and its algorithm is chosen alone, or the buffer cannot be."""
    if (section.network == DRRN) != (section.algorithm == Q_LEARNING):
        raise UserError(
            f"the network {DRRN!r} and the algorithm {Q_LEARNING!r} are only used together, not "
            f"{section.network!r} with {section.algorithm!r} (--config.policy.network, .algorithm)"
        )
    if section.network != DRRN:
        return
    if section.bootstrap == "inferred":
        raise UserError(
            f"the algorithm {Q_LEARNING!r} infers no values: choose explicit or never (--config.policy.bootstrap)"
        )
    buffer = section[REPLAY]
    if buffer.capacity < section.batch_size:
        raise UserError(
            f"a replay buffer of {buffer.capacity:,} steps has no room for a batch of {section.batch_size:,} "
            f"(--config.policy.{REPLAY}.capacity, .batch_size)"
        )
    needed, available = buffer.capacity * section.drrn.max_tokens * TOKEN_BYTES >> 20, available_mib()
    if needed > available:
        raise UserError(
            f"a replay buffer of {buffer.capacity:,} steps with {section.drrn.max_tokens:,} tokens needs more than "
            f"{needed:,} MiB, but {available:,} MiB are available (--config.policy.{REPLAY}.capacity, "
            f"{DRRN_FLAG}.max_tokens)"
        )

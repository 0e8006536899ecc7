"""The learner's settings, and the values of the config that they come from. Nothing here loads JAX.

`Settings` and TABLE are of the learner; `ReplaySettings` and REPLAY_TABLE are of the buffer of q_learning.

To add a setting: a field of `Settings`, a line in TABLE by the same name, with `older=` so that older runs
go on, and the value with a comment in configs/motif.py.
"""

from __future__ import annotations

from typing import NamedTuple

from motif_jax.config.table import Flag, Number, Table, Text, Value, Whole


class Settings(NamedTuple):
    """Settings of the learner. Defaults are the published system's; `bootstrap` and `normalise_over_all` are ours."""

    algorithm: str = "appo"  # or "impala", "ppo"; q_learning.py has an update of its own
    discount: float = 0.99
    clip_ratio: float = 0.1  # not of IMPALA
    clip_value: float = 1.0  # 0: none
    value_coefficient: float = 0.5
    exploration: str = "entropy"  # or "symmetric_kl"
    exploration_coefficient: float = 0.003
    exploration_end: float = 0.003  # reached after `total_updates`, in a straight line
    learning_rate: float = 1e-4
    learning_rate_end: float = 1e-4
    total_updates: int = 0  # 0: nothing is annealed
    adam_b1: float = 0.9
    adam_b2: float = 0.999
    adam_eps: float = 1e-6
    max_gradient_norm: float = 4.0
    num_epochs: int = 1
    num_minibatches: int = 1
    clip_rho: float = 1.0
    clip_c: float = 1.0
    gae_lambda: float = 0.95  # PPO only
    bootstrap: str = "explicit"  # or "inferred", "never", see vtrace.py
    normalise_advantages: bool = True
    advantage_floor: float = 1e-3
    normalise_over_all: bool = False  # statistics of the advantages include samples that are too old
    max_policy_lag: int = 10000


class ReplaySettings(NamedTuple):
    """Settings of the replay buffer."""

    capacity: int = 100_000  # steps; rounded down to whole batches
    minibatch_size: int = 64  # steps that are drawn at a time
    rewarded_share: float = 0.0  # of a minibatch, drawn from steps with a reward above zero


POLICY_GRADIENTS = ("appo", "impala", "ppo")  # algorithms of update.py
Q_LEARNING = "q_learning"  # q_learning.py
# by their names in `config.policy`; those with `anneal_` say where another value ends
TABLE: Table = {
    "algorithm": Value(Text((*POLICY_GRADIENTS, Q_LEARNING)), decides=True),
    "num_epochs": Value(Whole(1, 1_000_000), decides=True),
    "num_minibatches": Value(Whole(1), decides=True),
    "discount": Value(Number(0, 1), decides=True),
    "learning_rate": Value(Number(0, above=True), decides=True),
    "anneal_learning_rate_to": Value(Number(0, 1e6), decides=True),
    "adam_eps": Value(Number(0, 1, above=True), decides=True, older=1e-6),
    "max_gradient_norm": Value(Number(0, above=True, infinite=True), decides=True),
    "clip_ratio": Value(Number(0, infinite=True), decides=True),
    "clip_value": Value(
        Number(0, infinite=True),
        decides=True,
        differs="in goal tasks the value loss is not clipped, as their rewards are 50, far from any first value",
    ),
    "value_coefficient": Value(Number(0, 1e6), decides=True),
    "exploration": Value(Text(("entropy", "symmetric_kl")), decides=True),
    "exploration_coefficient": Value(Number(0, 1e6), decides=True),
    "anneal_exploration_to": Value(Number(0, 1e6), decides=True),
    "clip_rho": Value(Number(0, above=True, infinite=True), decides=True),
    "clip_c": Value(Number(0, above=True, infinite=True), decides=True),
    "gae_lambda": Value(Number(0, 1), decides=True, older=0.95),
    "bootstrap": Value(
        Text(("explicit", "inferred", "never")),
        decides=True,
        differs="every 32nd reward, that of a rollout's last step, is not lost",
    ),
    "normalise_advantages": Value(Flag(), decides=True),
    "normalise_over_all": Value(
        Flag(),
        decides=True,
        differs="advantages are normalised by the samples that are learnt from, without those that are too old",
    ),
    "max_policy_lag": Value(Whole(1), decides=True),
}
CHOICES = {name: value.kind.choices for name, value in TABLE.items() if isinstance(value.kind, Text)}
CHOICES |= {"algorithm": POLICY_GRADIENTS}  # what `update.make_policy_update` takes
REPLAY = "replay"
REPLAY_TABLE: Table = {
    f"{REPLAY}.{name}": value
    for name, value in {
        "capacity": Value(Whole(1, 2**30), decides=True, older=100_000),
        "minibatch_size": Value(Whole(1, 2**20), decides=True, older=64),
        "rewarded_share": Value(Number(0, 1), decides=True, older=0.0),
    }.items()
}

"""The values of DRRN and Q-learning in the config: the section `drrn`. Does not load JAX."""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import Whole, value

DRRN, Q_LEARNING = "drrn", "q_learning"  # the network, and the algorithm


@dataclass(frozen=True)
class DrrnSection:
    """The network drrn, with q_learning: Q of a prompt and of an action's name; and its replay buffer."""

    width: int = value(128, Whole(1, 2**14), "size of word vectors, of the GRUs and of the hidden layer", decides=True)
    max_tokens: int = value(512, Whole(1, 2**20), "maximum tokens of a prompt; a longer one is an error", decides=True)
    capacity: int = value(
        100_000, Whole(1, 2**30), "steps in the replay buffer; each takes over 2 bytes per token of max_tokens",
        decides=True,
    )  # fmt: skip
    minibatch_size: int = value(
        64, Whole(1, 2**20), "steps per minibatch; an update has num_epochs * num_minibatches", decides=True
    )

"""The section `policy.drrn` of the config. Loads no JAX."""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import Whole, value

SECTION = "drrn"
FLAG = f"--config.policy.{SECTION}"


@dataclass(frozen=True)
class DrrnPolicy:
    """The network drrn, with q_learning: Q of a prompt and of an action's name."""

    width: int = value(
        128, Whole(1, 2**14), "size of word vectors, of the memory of texts, and of the hidden layer", decides=True
    )
    max_tokens: int = value(512, Whole(1, 2**20), "most tokens of a prompt; a longer one is an error", decides=True)

"""Estimates the memory that training a language model takes, before the model is read."""

from __future__ import annotations

from typing import Any

import jax

from motif_jax.console import print_line
from motif_jax.devices.mesh import describe_memory
from motif_jax.language.config import LanguageConfig
from motif_jax.structs import UserError
from motif_jax.system.errors import in_words
from motif_jax.system.machine import available_mib


def activation_bytes(config: LanguageConfig, rows: int, length: int, itemsize: int, remat: bool) -> int:
    """Bytes of the activations that are kept for the gradient; the compiler needed 0.9 to 1.1 times as much."""
    layers = config.layers + config.encoder_layers
    of_token = (12 * config.width + 5 * config.mlp_size + 2 * config.heads * length) * itemsize
    if remat:
        return rows * length * (layers * config.width * itemsize + of_token)
    return rows * length * layers * of_token


def bytes_of(tree: Any) -> int:
    """Bytes of all arrays of a tree, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def print_memory(
    what: str, learnt: Any, weights: int, learning: int, activations: int, copies: int, flags: str
) -> None:
    """Prints the memory that a training takes; raises UserError if not even its parameters fit.

    Args:
      what: the subject of the sentence.
      learnt: parameters, or their shapes.
      weights, learning, activations: bytes of all parameters; of gradients and optimizer; of activations.
      copies: bytes that the host keeps or writes; they count if its devices have no memory of their own.
      flags: those that reduce the memory.
    """
    count = sum(leaf.size for leaf in jax.tree.leaves(learnt))
    device = jax.local_devices()[0]
    memory = describe_memory(device)
    available = memory.free if memory else available_mib() * 2**20
    learning += 0 if memory else copies
    if weights + learning > available:
        raise UserError(
            f"{what} learns {count:,} parameters, which needs {in_words(weights + learning)} of memory, but only "
            f"{in_words(available)} are free ({flags})"
        )
    print_line(
        f"{what} learns {count:,} parameters: weights {in_words(weights)}, gradients, optimizer and copies "
        f"{in_words(learning)}, activations about {in_words(activations)}, of {in_words(available)} that are free"
        + (f": too little, if this estimate is right ({flags})" if weights + learning + activations > available else "")
    )

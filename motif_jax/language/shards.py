"""Sharding rules for the parameters of a language model, for the mesh of `devices/mesh.py`.

Along `tensor`, a device computes some of the heads and a part of the MLP: matrices into these are sharded by their
outputs, matrices out of them by their inputs. Along `fsdp` the other side is sharded. Norms, biases and low-rank
additions are small, so they are replicated.
"""

from __future__ import annotations

from jax.sharding import PartitionSpec as P

from motif_jax.devices.mesh import FSDP, TENSOR, Rules
from motif_jax.language.config import LanguageConfig
from motif_jax.structs import UserError


def sharding_rules(config: LanguageConfig, tensor: int = 1) -> Rules:
    """Rules for `place` and `shardings` in `devices/mesh.py`; `tensor` is the size of that axis."""
    if config.heads % tensor:
        raise UserError(f"tensor {tensor} must divide the number of heads of this language model, {config.heads}")
    shared = TENSOR if config.kv_heads % tensor == 0 else None
    by_words = TENSOR if config.vocabulary % tensor == 0 else None
    return (
        (r"\.(q|up|gate)\.(base\.)?kernel$", P(None, FSDP, TENSOR)),
        (r"\.(k|v)\.(base\.)?kernel$", P(None, FSDP, shared)),
        (r"\.(o|down)\.(base\.)?kernel$", P(None, TENSOR, FSDP)),
        (r"\bhead\.kernel$", P(FSDP, by_words)),
        (r"\bembedding$", P(by_words, FSDP)),
        (r"", P()),
    )

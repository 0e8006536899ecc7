"""How the parameters of a language model are cut among devices, in the terms of `devices/mesh.py`.

Along `tensor`, a device computes some of the heads and a part of the MLP: matrices that lead there are cut by their
outputs, those that lead back by their inputs. Along `fsdp` the other side is cut. Norms and biases of few numbers are
copied, and so are additions of low rank.
"""

from __future__ import annotations

from jax.sharding import PartitionSpec as P

from motif_jax.devices.mesh import FSDP, TENSOR, Rules
from motif_jax.language.config import LanguageConfig
from motif_jax.structs import UserError


def sharding_rules(config: LanguageConfig, tensor: int = 1) -> Rules:
    """Rules for `parallel.place` and `parallel.shardings`; `tensor` is the size of that axis."""
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

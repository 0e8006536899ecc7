"""Low-rank additions to the matrices of a language model (LoRA, Hu et al. 2021).

    x @ kernel  ->  x @ kernel + (alpha / rank) * x @ a @ b

`b` begins at zero, so the model is unchanged before training. Frozen parameters may be bfloat16 and need neither
gradients nor optimizer state, which saves most of the memory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P

from motif_jax.console import print_line
from motif_jax.devices.mesh import FSDP, TENSOR, Rules, describe_memory
from motif_jax.devices.parameters import leaves_by_path, name_of
from motif_jax.language.config import LanguageConfig
from motif_jax.language.model import Decoder, EncoderDecoder, Linear
from motif_jax.structs import UserError
from motif_jax.system.errors import in_words
from motif_jax.system.machine import available_mib

Model = TypeVar("Model", Decoder, EncoderDecoder)


class LowRank(nnx.Module):
    """A frozen linear map plus a trained low-rank product."""

    def __init__(self, base: Linear, rank: int, alpha: float, *, rngs: nnx.Rngs):
        """`base` may be a stack of linear maps: [..., inputs, outputs]."""
        self.base, self.factor = base, alpha / rank
        self.low_a, self.low_b = map(nnx.LoRAParam, _factors(base.kernel.shape, rank, rngs))

    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.base(x)
        low = x.astype(y.dtype) @ self.low_a[...].astype(y.dtype) @ self.low_b[...].astype(y.dtype)
        return y + low * self.factor


def add_low_rank(model: Model, names: Sequence[str], rank: int, alpha: float, seed: int) -> Model:
    """Adds low-rank products to some matrices of a copy of the model.

    `names`: ends of the paths of matrices in the blocks: "q", or "cross.q", or "decoder.blocks.mlp.up". The products
    are multiplied by alpha / rank.
    """
    model, rngs = nnx.clone(model), nnx.Rngs(seed)
    matrices = {path: module for path, module in _modules(model, Linear).items() if "blocks" in path}
    for path in _called(names, matrices):
        _put(model, path, LowRank(matrices[path], rank, alpha, rngs=rngs))
    return model


def merge_low_rank(model: Model) -> Model:
    """A copy of the model with all low-rank products added to their matrices."""
    model = nnx.clone(model)
    for path, module in _modules(model, LowRank).items():
        kernel = module.base.kernel[...]
        added = module.factor * (module.low_a[...] @ module.low_b[...])
        module.base.kernel = nnx.Param((kernel.astype(jnp.float32) + added).astype(kernel.dtype))
        _put(model, path, module.base)
    return model


def new_additions(params: Any, names: Sequence[str], rank: int, seed: int) -> dict[str, dict[str, jax.Array]]:
    """The same low-rank factors beside the parameters of a model, for `with_additions`; see `add_low_rank`."""
    leaves, rngs = leaves_by_path(params), nnx.Rngs(seed)
    additions = {}
    for path in _called(names, [path[:-1] for path in leaves if path[-1] == "kernel" and "blocks" in path]):
        low_a, low_b = _factors(leaves[*path, "kernel"].shape, rank, rngs)
        additions["-".join((*path, "kernel"))] = {"low_a": low_a, "low_b": low_b}
    return additions


def with_additions(params: Any, additions: Mapping[str, Mapping[str, jax.Array]], factor: float) -> Any:
    """The parameters of the model with the additions, as plain matrices."""

    def merge(path: Any, leaf: Any) -> Any:
        if (added := additions.get("-".join(name_of(path)))) is None:
            return leaf
        return (leaf.astype(jnp.float32) + factor * (added["low_a"] @ added["low_b"])).astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(merge, params)


def _modules(model: Any, kind: type) -> dict[tuple[Any, ...], Any]:
    return {path: module for path, module in nnx.iter_modules(model) if type(module) is kind}


def _factors(shape: Sequence[int], rank: int, rngs: nnx.Rngs) -> tuple[jax.Array, jax.Array]:
    """New factors for a matrix, or a stack of them, of this shape: [..., inputs, rank], [..., rank, outputs]"""
    *stack, inputs, outputs = shape
    normal = nnx.initializers.normal(inputs**-0.5)
    return normal(rngs.params(), (*stack, inputs, rank), jnp.float32), jnp.zeros((*stack, rank, outputs), jnp.float32)


def _called(names: Sequence[str], paths: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The paths that end with one of these names; raises UserError for a name of no matrix."""
    dotted = {path: ".".join(map(str, ("", *path))) for path in paths}
    for name in names:
        if not any(path.endswith(f".{name}") for path in dotted.values()):
            available = ", ".join(sorted({path.partition(".blocks.")[2] for path in dotted.values()}))
            raise UserError(f"no matrix of this language model is called {name!r}; it has {available}")
    return [path for path, text in dotted.items() if text.endswith(tuple(f".{name}" for name in names))]


def _put(model: Any, path: Sequence[Any], module: nnx.Module) -> None:
    setattr(functools.reduce(getattr, path[:-1], model), path[-1], module)


# Estimates the memory that training a language model takes, before the model is read.


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
    """Prints the memory that a training takes.

    `weights`, `learning`, `activations`: bytes of all parameters; of gradients and optimizer; of activations.
    `copies`: bytes that the host keeps or writes; they count if its devices have no memory of their own. `flags`:
    those that reduce the memory.
    """
    count = sum(leaf.size for leaf in jax.tree.leaves(learnt))
    memory = describe_memory(jax.local_devices()[0])
    available = memory.free if memory else available_mib() * 2**20
    learning += 0 if memory else copies
    is_little = weights + learning + activations > available
    print_line(
        f"{what} learns {count:,} parameters: weights {in_words(weights)}, gradients, optimizer and copies "
        f"{in_words(learning)}, activations about {in_words(activations)}, of {in_words(available)} that are free"
        + f": too little, if this estimate is right ({flags})"
        * is_little
    )


# Sharding rules for the parameters of a language model, for the mesh of `devices/mesh.py`.
#
# Along `tensor`, a device computes some of the heads and a part of the MLP: matrices into these are sharded by their
# outputs, matrices out of them by their inputs. Along `fsdp` the other side is sharded. Norms, biases and low-rank
# additions are small, so they are replicated.


def sharding_rules(config: LanguageConfig, tensor: int = 1) -> Rules:
    """Rules for `place` and `shardings` in `devices/mesh.py`; `tensor` is the size of that axis."""
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

"""Low-rank additions to the matrices of a language model (LoRA, Hu et al. 2021).

    x @ kernel  ->  x @ kernel + (alpha / rank) * x @ a @ b

`b` begins at zero, so the model is unchanged before training. Frozen parameters may be bfloat16 and need neither
gradients nor optimizer state, which saves most of the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.devices.parameters import leaves_by_path, name_of
from motif_jax.language.layers import Linear
from motif_jax.language.model import Decoder, EncoderDecoder
from motif_jax.structs import UserError

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

    def merged(self) -> Linear:
        """The sum of both as one linear map."""
        kernel = self.base.kernel[...]
        added = self.factor * (self.low_a[...] @ self.low_b[...])
        self.base.kernel = nnx.Param((kernel.astype(jnp.float32) + added).astype(kernel.dtype))
        return self.base


def add_low_rank(model: Model, names: Sequence[str], rank: int, alpha: float, seed: int) -> Model:
    """Adds low-rank products to some matrices of a copy of the model.

    `names`: ends of the paths of matrices in the blocks: "q", or "cross.q", or "decoder.blocks.mlp.up". The products
    are multiplied by alpha / rank.
    """
    model, rngs = nnx.clone(model), nnx.Rngs(seed)
    matrices = {path: module for path, module in _modules(model, Linear) if "blocks" in path}
    for path in _called(names, matrices):
        _put(model, path, LowRank(matrices[path], rank, alpha, rngs=rngs))
    return model


def merge_low_rank(model: Model) -> Model:
    """A copy of the model with all low-rank products added to their matrices."""
    model = nnx.clone(model)
    for path, module in list(_modules(model, LowRank)):
        _put(model, path, module.merged())
    return model


def new_additions(params: Any, names: Sequence[str], rank: int, seed: int) -> dict[str, dict[str, jax.Array]]:
    """The same low-rank factors beside the parameters of a model, for `with_additions`; see `add_low_rank`."""
    kernels = {
        path[:-1]: leaf for path, leaf in leaves_by_path(params).items() if path[-1] == "kernel" and "blocks" in path
    }
    rngs = nnx.Rngs(seed)
    return {
        "-".join((*path, "kernel")): dict(
            zip(("low_a", "low_b"), _factors(kernels[path].shape, rank, rngs), strict=True)
        )
        for path in _called(names, kernels)
    }


def with_additions(params: Any, additions: Mapping[str, Mapping[str, jax.Array]], factor: float) -> Any:
    """The parameters of the model with the additions, as plain matrices."""

    def merge(path: Any, leaf: Any) -> Any:
        if (added := additions.get("-".join(name_of(path)))) is None:
            return leaf
        return (leaf.astype(jnp.float32) + factor * (added["low_a"] @ added["low_b"])).astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(merge, params)


def _modules(model: Any, kind: type) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for path, module in nnx.iter_modules(model):
        if type(module) is kind:
            yield path, module


def _factors(shape: Sequence[int], rank: int, rngs: nnx.Rngs) -> tuple[jax.Array, jax.Array]:
    """New factors for a matrix, or a stack of them, of this shape: [..., inputs, rank], [..., rank, outputs]"""
    *stack, inputs, outputs = shape
    normal = nnx.initializers.normal(inputs**-0.5)
    return normal(rngs.params(), (*stack, inputs, rank), jnp.float32), jnp.zeros((*stack, rank, outputs), jnp.float32)


def _called(names: Sequence[str], paths: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The paths that end with one of these names; raises UserError for a name of no matrix."""
    dotted = {path: "." + ".".join(map(str, path)) for path in paths}
    for name in names:
        if not any(path.endswith(f".{name}") for path in dotted.values()):
            available = ", ".join(sorted({path.partition(".blocks.")[2] for path in dotted.values()}))
            raise UserError(f"no matrix of this language model is called {name!r}; it has {available}")
    return [path for path, text in dotted.items() if text.endswith(tuple(f".{name}" for name in names))]


def _put(model: Any, path: Sequence[Any], module: nnx.Module) -> None:
    for name in path[:-1]:
        model = getattr(model, name)
    setattr(model, path[-1], module)

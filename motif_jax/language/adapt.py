"""Low-rank additions to the matrices of a language model (LoRA, Hu et al. 2021).

    x @ kernel  ->  x @ kernel + (alpha / rank) * x @ a @ b

`b` begins at zero, so the model is unchanged before training. Frozen parameters may be bfloat16 and need neither
gradients nor optimizer state, which saves most of the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        *stack, inputs, outputs = base.kernel.shape
        normal = nnx.initializers.normal(inputs**-0.5)
        self.base, self.factor = base, alpha / rank
        self.low_a = nnx.LoRAParam(normal(rngs.params(), (*stack, inputs, rank), jnp.float32))
        self.low_b = nnx.LoRAParam(jnp.zeros((*stack, rank, outputs), jnp.float32))

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
    matrices = [(path, module) for path, module in _modules(model, Linear) if "blocks" in path]
    for name in names:
        if not any(_is_called(path, name) for path, _ in matrices):
            available = ", ".join(sorted({".".join(path[path.index("blocks") + 1 :]) for path, _ in matrices}))
            raise UserError(f"no matrix of this language model is called {name!r}; it has {available}")
    for path, module in matrices:
        if any(_is_called(path, name) for name in names):
            _put(model, path, LowRank(module, rank, alpha, rngs=rngs))
    return model


def merge_low_rank(model: Model) -> Model:
    """A copy of the model with all low-rank products added to their matrices."""
    model = nnx.clone(model)
    for path, module in list(_modules(model, LowRank)):
        _put(model, path, module.merged())
    return model


def new_additions(params: Any, names: Sequence[str], rank: int, seed: int) -> dict[str, dict[str, jax.Array]]:
    """The same low-rank factors beside the parameters of a model, for `with_additions`; see `add_low_rank`."""
    kernels = {path: leaf for path, leaf in leaves_by_path(params).items() if path[-1] == "kernel" and "blocks" in path}
    for name in names:
        if not any(_is_called(path[:-1], name) for path in kernels):
            raise UserError(f"no matrix of this language model is called {name!r}")
    rngs, additions = nnx.Rngs(seed), {}
    for path, kernel in kernels.items():
        if any(_is_called(path[:-1], name) for name in names):
            *stack, inputs, outputs = kernel.shape
            normal = nnx.initializers.normal(inputs**-0.5)
            additions["-".join(path)] = {
                "low_a": normal(rngs.params(), (*stack, inputs, rank), jnp.float32),
                "low_b": jnp.zeros((*stack, rank, outputs), jnp.float32),
            }
    return additions


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


def _is_called(path: Sequence[Any], name: str) -> bool:
    return f".{'.'.join(map(str, path))}".endswith(f".{name}")


def _put(model: Any, path: Sequence[Any], module: nnx.Module) -> None:
    for name in path[:-1]:
        model = getattr(model, name)
    setattr(model, path[-1], module)

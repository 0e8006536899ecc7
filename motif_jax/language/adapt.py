"""Training a language model: all of it, or low-rank additions to some of its matrices (LoRA, Hu et al. 2021).

    x @ kernel  ->  x @ kernel + (alpha / rank) * x @ a @ b

`b` is zero at the start, so nothing changes before training. What is not trained may have fewer bits (bfloat16) and
needs no gradients and no optimizer state: that is where memory goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.language.layers import Linear
from motif_jax.language.model import Decoder, EncoderDecoder
from motif_jax.structs import UserError

Model = TypeVar("Model", Decoder, EncoderDecoder)


class LowRank(nnx.Module):
    """A linear map with an addition of low rank, which is trained."""

    def __init__(self, base: Linear, rank: int, alpha: float, *, rngs: nnx.Rngs):
        """`base` may be a stack of linear maps: [..., inputs, outputs]."""
        *stack, inputs, outputs = base.kernel.shape
        normal = nnx.initializers.normal(inputs**-0.5)
        self.base, self.factor = base, alpha / rank
        self.low_a = nnx.LoRAParam(normal(rngs.params(), (*stack, inputs, rank), jnp.float32))
        self.low_b = nnx.LoRAParam(jnp.zeros((*stack, rank, outputs), jnp.float32))

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., inputs] -> [..., outputs]"""
        y = self.base(x)
        low = x.astype(y.dtype) @ self.low_a[...].astype(y.dtype) @ self.low_b[...].astype(y.dtype)
        return y + low * self.factor

    def whole(self) -> Linear:
        """One linear map that does the same."""
        kernel = self.base.kernel[...]
        added = self.factor * (self.low_a[...] @ self.low_b[...])
        self.base.kernel = nnx.Param((kernel.astype(jnp.float32) + added).astype(kernel.dtype))
        return self.base


def add_low_rank(model: Model, names: Sequence[str], rank: int, alpha: float, seed: int) -> Model:
    """The model with additions of low rank.

    Args:
      model: as it was read or made; it is not changed.
      names: matrices of the blocks, by the end of their names: "q", or "cross.q", or "decoder.blocks.mlp.up".
      rank: of the additions.
      alpha: the additions are multiplied by alpha / rank.
      seed: of the initial values.
    """
    model, rngs = nnx.clone(model), nnx.Rngs(seed)
    found = [(path, module) for path, module in _modules(model, Linear) if "blocks" in path]
    for name in names:
        if not any(_is_called(path, name) for path, _ in found):
            known = ", ".join(sorted({".".join(path[path.index("blocks") + 1 :]) for path, _ in found}))
            raise UserError(f"no matrix of this language model is called {name!r}; it has {known}")
    for path, module in found:
        if any(_is_called(path, name) for name in names):
            _put(model, path, LowRank(module, rank, alpha, rngs=rngs))
    return model


def merge_low_rank(model: Model) -> Model:
    """The model with all additions of low rank added to their matrices."""
    model = nnx.clone(model)
    for path, module in list(_modules(model, LowRank)):
        _put(model, path, module.whole())
    return model


def split_trained(model: Decoder | EncoderDecoder) -> tuple[Any, Any, Any]:
    """Graph, trained and frozen parameters: with additions of low rank these alone are trained, else everything is.

    `nnx.merge(graph, trained, frozen)` is the model again.
    """
    has_low_rank = next(_modules(model, LowRank), None) is not None
    graph, trained, *rest = nnx.split(model, nnx.LoRAParam if has_low_rank else nnx.Param, ...)
    return graph, trained, rest[0]


def accumulate(loss: Callable[[Any, Any], jax.Array], params: Any, batch: Any, num_parts: int) -> tuple[jax.Array, Any]:
    """Loss and gradient of a batch, part by part, which takes the memory of one part.

    Args:
      loss: (params, batch) -> a sum over the rows of the batch. A mean would have to be divided by the same number in
        all parts.
      params: for the gradient.
      batch: arrays [B, ...].
      num_parts: divides B.
    """
    rows = len(jax.tree.leaves(batch)[0])
    if rows % num_parts:
        raise ValueError(f"{num_parts} parts do not divide {rows} rows")
    parts = jax.tree.map(lambda array: array.reshape(num_parts, -1, *array.shape[1:]), batch)
    compute = jax.value_and_grad(loss)

    def add(total: Any, part: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, compute(params, part)), None

    first = jax.tree.map(lambda array: array[0], parts)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(compute, params, first))
    return jax.lax.scan(add, zero, parts)[0]


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

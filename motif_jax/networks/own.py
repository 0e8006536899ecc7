"""An encoder of the user's: `module:Class`, a Flax NNX module that maps observations to features.

    class Encoder(nnx.Module):
        def __init__(self, specs, *, dtype, rngs): ...    # specs: {name: ArraySpec} of the observations
        def __call__(self, observations): ...             # {name: [N, ...]} -> [N, features]

The memory, the heads and options follow it, as in the general network. docs/own-network.md has an example.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from motif_jax.envs.own_code import failure, guarded, load_class
from motif_jax.networks.kinds import FLAG
from motif_jax.structs import ArraySpec, UserError
from motif_jax.system.errors import find_refusal

ROWS = 2  # of the observations that are encoded to learn the number of features


class OwnEncoder(nnx.Module):
    """Wraps an encoder of the user's, and checks it once."""

    def __init__(self, path: str, specs: Mapping[str, ArraySpec], *, dtype: DTypeLike, rngs: nnx.Rngs):
        """Makes the encoder; raises UserError if it does not fit its purpose, UserCodeError if it raises."""
        self.path, self.reads, self.dtype = path, tuple(specs), dtype
        make = find_encoder(path)
        with calls(path):
            self.encoder = make(dict(specs), dtype=dtype, rngs=rngs)
        before = self._variables()
        ones = {name: jnp.asarray(np.ones((ROWS, *spec.shape), spec.dtype)) for name, spec in specs.items()}
        with calls(path):
            features = self.encoder(ones)
        self.features = self._check(features, ROWS)
        after = self._variables()
        unchanged = {name for name in before.keys() & after.keys() if np.array_equal(before[name], after[name])}
        if changed := [name for name in {**before, **after} if name not in unchanged]:
            raise self._error(
                f"its call changes {changed[0]!r}, and changes are lost, as those of nnx.BatchNorm and nnx.Dropout: "
                "use nnx.LayerNorm"
            )
        graph, state = nnx.split(self.encoder)
        more_rows = {name: jax.ShapeDtypeStruct((ROWS + 1, *x.shape[1:]), x.dtype) for name, x in ones.items()}
        with calls(path):  # as training compiles it, and with another number of rows
            features = jax.eval_shape(lambda state, ones: nnx.merge(graph, state)(ones), state, more_rows)
        self._check(features, ROWS + 1)

    def prepare(self) -> None:
        """Returns None: all computations depend on the observations."""

    def __call__(self, observations: Mapping[str, jax.Array], prepared: None = None) -> jax.Array:
        """Observations [N, ...] -> [N, features]"""
        with calls(self.path):
            features = self.encoder({name: observations[name] for name in self.reads})
        return features.astype(self.dtype)

    def _variables(self) -> dict[str, Any]:
        """The arrays of the encoder by name; raises UserError if training cannot keep one of them."""
        variables = {}
        for path, leaf in nnx.to_flat_state(nnx.state(self.encoder)):
            name, array = ".".join(map(str, path)), leaf.get_raw_value()
            if not (isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jnp.number)):
                raise self._error(f"its variable {name!r} is not an array of numbers (jax.Array)")
            floats = jnp.issubdtype(array.dtype, jnp.floating)
            if floats != (array.dtype == jnp.float32) or (isinstance(leaf, nnx.Param) and not floats):
                raise self._error(f"its variable {name!r} has the type {array.dtype}, and parameters need float32")
            variables[name] = array
        return variables

    def _check(self, features: Any, rows: int) -> int:
        shape, dtype = getattr(features, "shape", None), getattr(features, "dtype", type(features).__name__)
        floats = isinstance(features, jax.Array | jax.ShapeDtypeStruct) and jnp.issubdtype(dtype, jnp.floating)
        if not floats or shape is None or len(shape) != 2 or shape[0] != rows or not shape[1]:
            raise self._error(
                f"for {rows} rows of observations it gave shape {shape} and type {dtype}, instead of floating-point "
                f"numbers of shape ({rows}, features)"
            )
        return shape[1]

    def _error(self, why: str) -> UserError:
        return UserError(f"cannot use the network {self.path!r}: {why} ({FLAG})")


def find_encoder(path: str) -> Any:
    """Imports the class of `module:Class`; raises UserError if it is not a Flax NNX module."""
    encoder = load_class(path, "network", FLAG)
    if not (isinstance(encoder, type) and issubclass(encoder, nnx.Module)):
        raise UserError(f"cannot use the network {path!r}: it is not a subclass of flax.nnx.Module ({FLAG})")
    return encoder


def calls(path: str) -> contextlib.AbstractContextManager[None]:
    """A context for calls of the encoder, whose errors become UserCodeError."""
    return guarded(lambda error: None if find_refusal(error) else failure(f"the network {path!r}", FLAG, error))

"""Programs of tests that run once or twice, each a few milliseconds: what takes time is to compile them."""

from __future__ import annotations

from typing import Any

import jax

OPTIONS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class QuickProgram:
    """A jitted function that is compiled in half the time, to programs that are not fast; once for each shape."""

    def __init__(self, jitted: Any):
        self._jitted, self._programs = jitted, {}

    def __call__(self, *arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        key = structure, *((leaf.shape, str(leaf.dtype)) for leaf in leaves)
        if key not in self._programs:
            self._programs[key] = self._jitted.lower(*arguments).compile(compiler_options=OPTIONS)
        return self._programs[key](*arguments)

"""motif_jax: intrinsic motivation from AI feedback on NetHack, in JAX.

Importing this package loads nothing heavy; in particular it never loads jax, so that actor workers can import it.
"""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`from motif_jax import load_reward` loads what it needs, and only then."""
    if name in ("load_reward", "export_reward", "load_policy"):
        from motif_jax import api

        return getattr(api, name)
    raise AttributeError(f"module 'motif_jax' has no attribute {name!r}")

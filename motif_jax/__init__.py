"""motif_jax: intrinsic motivation from AI feedback on NetHack, in JAX.

Importing this package loads nothing heavy; in particular it never loads jax, so that actor workers can import it.
"""

__version__ = "0.1.0"

"""The console script `motif-jax`: the same as `python -m motif_jax.launch`."""

from __future__ import annotations

from motif_jax import startup


def command() -> int:
    """Runs the program; returns the exit status."""
    startup.begin()
    from motif_jax import launch  # after streams and signals are set up

    return launch.command()

"""Makes the tasks known to gymnasium."""

from __future__ import annotations

import gymnasium

from motif_jax.envs.nethack.tasks import TASKS


def register() -> None:
    """Registers `motif_jax/NetHackScore-v1` and its siblings; the environment itself is loaded when it is made."""
    ids = {f"motif_jax/{task.name}": name for name, task in TASKS.items()} | {"motif_jax/Toy-v0": "toy"}
    for identifier, task in ids.items():
        if identifier not in gymnasium.registry:
            gymnasium.register(identifier, entry_point="motif_jax.envs.nethack.gym_game:GymGame", kwargs={"task": task})

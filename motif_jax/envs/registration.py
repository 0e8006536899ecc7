"""Makes the tasks known to gymnasium."""

from __future__ import annotations

import gymnasium

from motif_jax.envs.nethack.tasks import TASKS, extended_ids


def register() -> None:
    """Registers `motif_jax/NetHackScore-v1` and its siblings; the environment itself is loaded when it is made."""
    ids = {task.name: {"task": name} for name, task in TASKS.items()} | {"Toy-v0": {"task": "toy"}}
    ids |= {identifier: {"task": name, "actions": "extended"} for identifier, name in extended_ids().items()}
    for name, values in ids.items():
        identifier = f"motif_jax/{name}"
        if identifier not in gymnasium.registry:
            gymnasium.register(identifier, entry_point="motif_jax.envs.nethack.gym_game:GymGame", kwargs=values)

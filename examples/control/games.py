"""Two games of gymnasium whose actions are numbers: a pendulum to swing up, and a spacecraft to land."""

from __future__ import annotations

from typing import Any

from motif_jax.envs.gym_world import GymWorld


class Pendulum(GymWorld):
    """One number, the torque; each of the 200 steps costs more the further the pendulum is from upright."""

    id = "Pendulum-v1"
    about = "a pendulum that must be swung up and held"
    reads = ("observation",)  # without the caption

    def caption(self, observation: Any, env: Any) -> str:
        """Nothing is said: the game's own reward is all that counts."""
        return ""


class Lander(Pendulum):
    """Two numbers, the main engine and those at the sides; a return of 200 is a landing."""

    id = "LunarLanderContinuous-v3"
    about = "a spacecraft that must land between two flags"

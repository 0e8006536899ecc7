"""Checks a user's world: observations against their specs once, before the first step, and rewards in every step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex

import numpy as np

from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.envs.world import Vector, World
from motif_jax.structs import ArraySpec, UserError


class StrictRows(np.ndarray):
    """An array of observations, one per game; assigning a value that does not fit its spec raises UserError."""

    what: str = "the observation"

    def __setitem__(self, index: Any, value: Any) -> None:
        wanted = np.asarray(self[index]).shape
        try:
            given = np.asarray(value)
        except ValueError:  # lists of different lengths
            given = np.asarray(value, object)
        fits = given.dtype.kind in ("biuf" if self.dtype.kind == "f" else "biu")
        if fits and self.dtype.kind != "f":
            fits = np.array_equal(given.astype(self.dtype), given)  # values that the type can represent
        if given.shape != wanted or not fits:
            raise UserError(
                f"{self.what} must be of shape {wanted} and type {self.dtype}, as its spec says, but shape "
                f"{given.shape} and type {given.dtype} were written ({WORLD_FLAG})"
            )
        super().__setitem__(index, value)

    def __getitem__(self, index: SupportsIndex | slice | Any) -> Any:
        return np.asarray(super().__getitem__(index))


def check_rewards(rewards: np.ndarray, named: tuple[str, str]) -> None:
    """Raises UserError if recorded rewards are not finite.

    Args:
      rewards: one per game. [E] float32
      named: their source and its flag, see `own_code.owner`.
    """
    if not np.isfinite(rewards).all():
        reward = rewards[~np.isfinite(rewards)][0]
        raise UserError(f"{named[0]} gave the reward {reward}, which is not a finite number of float32 ({named[1]})")


def check_observations(world: World, vector: Vector, specs: Iterable[tuple[str, ArraySpec]], num_games: int) -> None:
    """Lets the vector write its observations; raises UserError if one does not match its spec."""
    rows: dict[str, np.ndarray] = {}
    for key, spec in specs:
        if not key.startswith("event_"):
            row = np.zeros((num_games, *spec.shape), spec.dtype).view(StrictRows)
            row.what = f"the observation {key!r} of the world {world.name!r}"
            rows[key] = row
    vector.observe(vector.open_rows(rows))

"""Loads minigrid without a word, or says in one sentence why that cannot be done."""

from __future__ import annotations

import importlib
import os

from motif_jax.envs.gym_games import quiet
from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.structs import UserError

VARIABLE = "BABYAI_DONE_ACTIONS"  # with it, minigrid waits for an action that players do not have


def need_minigrid() -> None:
    """Raises UserError if minigrid is not installed, or cannot be used as it is; to be called before it is imported."""
    if os.environ.get(VARIABLE):
        raise UserError(
            f"the world 'babyai' cannot be played where the environment variable {VARIABLE} is set: unset it "
            f"({WORLD_FLAG})"
        )
    try:
        with quiet():  # pygame, which comes with it, greets
            importlib.import_module("minigrid")
    except ImportError as error:
        raise UserError(
            f"the world 'babyai' needs minigrid, which the extra [babyai] installs: pip install 'motif_jax[babyai]' "
            f"({error}; {WORLD_FLAG})"
        ) from error

"""The nine NetHack tasks: their rewards and ends.

    score        change of the in-game score, and a small penalty for a step in which no game time passed
    staircase*   50 when "You descend the stairs" is seen together with the new level number 2, 3 or 4
    oracle*      50 when the Oracle is displayed next to the hero

Names are those of Motif (arXiv 2310.00166). Level numbers are relative to the current branch of the dungeon, so level 3
of the Gnomish Mines counts. Falling through a trap door does not, because it does not show the message.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import gymnasium

from motif_jax.envs.world import suggest
from motif_jax.structs import UserError

SUCCESS_REWARD = 50.0
MOST_DOUBLINGS = 100  # of the penalty in mode "exp", to stay finite in float32
# Penalties of a step in the task `score`, by mode, from the number of consecutive steps without game time, and a unit.
PENALTIES: dict[str, Callable[[int, float], float]] = {
    "constant": lambda frozen, unit: unit if frozen > 0 else 0.0,
    "exp": lambda frozen, unit: 2.0 ** min(frozen, MOST_DOUBLINGS) * unit,
    "square": lambda frozen, unit: frozen**2 * unit,
    "linear": lambda frozen, unit: frozen * unit,
    "always": lambda frozen, unit: unit,
}


class Task(NamedTuple):
    """The rewards and end of a task."""

    name: str
    stairs_level: int = 0  # > 0: reward the descent to this level of a branch
    oracle: bool = False  # reward standing next to the Oracle
    sober: bool = False  # ... while not hallucinating (hallucination can draw an Oracle anywhere)
    continual: bool = False  # reward success once and continue the episode

    @property
    def is_score(self) -> bool:
        return not (self.stairs_level or self.oracle)


TASKS = {
    "score": Task("NetHackScore-v1"),
    "staircase": Task("NetHackStaircase-v1", stairs_level=2),
    "staircase_lvl3": Task("NetHackStaircaseLvl3-v1", stairs_level=3),
    "staircase_lvl4": Task("NetHackStaircaseLvl4-v1", stairs_level=4),
    "staircase_continual": Task("NetHackStaircaseContinual-v1", stairs_level=2, continual=True),
    "staircase_lvl3_continual": Task("NetHackStaircaseLvl3Continual-v1", stairs_level=3, continual=True),
    "staircase_lvl4_continual": Task("NetHackStaircaseLvl4Continual-v1", stairs_level=4, continual=True),
    "oracle": Task("NetHackOracle-v1", oracle=True),
    "oracle_sober": Task("NetHackOracleSober-v1", oracle=True, sober=True),
}


def extended_ids() -> dict[str, str]:
    """Returns the short names of tasks by ONI's names with the extended actions (`game.ExtendedGame`)."""
    single = {name: task for name, task in TASKS.items() if not task.continual}
    return {task.name.replace("-v1", "ExtendedActions-v1"): name for name, task in single.items()}


def get_task(name: str) -> Task:
    """Returns a task by its short ("score") or published name ("NetHackScore-v1")."""
    by_id = {task.name: task for task in TASKS.values()}
    if task := TASKS.get(name) or by_id.get(name):
        return task
    hint = suggest(name, [*TASKS, *by_id, "toy"], f"choose one of {', '.join(TASKS)}, toy")
    raise UserError(f"unknown task {name!r} (--config.env.task): {hint}")


# Role, race, alignment and gender, as NetHack abbreviates them.
CHARACTERS = (
    ("arc", "bar", "cav", "hea", "kni", "mon", "pri", "rog", "ran", "sam", "tou", "val", "wiz"),
    ("hum", "elf", "dwa", "gno", "orc"),
    ("law", "neu", "cha"),
    ("mal", "fem"),
)
ANY_CHARACTER = "@"  # NetHack chooses, by the seed of the episode


def check_character(character: str) -> None:
    """Raises UserError for names that NetHack would silently replace with a random character."""
    if character == ANY_CHARACTER:
        return
    options = ["|".join(names) for names in CHARACTERS]
    if not re.fullmatch("-".join(f"({names})" for names in options), character):
        hint = f"join one of each with dashes: {', '.join(options)}; or {ANY_CHARACTER!r} for any of them"
        raise UserError(f"unknown character {character!r} (--config.env.character): {hint}")


def register() -> None:
    """Registers `motif_jax/NetHackScore-v1` and its siblings with gymnasium; NLE is imported on first use."""
    ids = {task.name: {"task": name} for name, task in TASKS.items()} | {"Toy-v0": {"task": "toy"}}
    ids |= {identifier: {"task": name, "actions": "extended"} for identifier, name in extended_ids().items()}
    for name, values in ids.items():
        identifier = f"motif_jax/{name}"
        if identifier not in gymnasium.registry:
            gymnasium.register(identifier, entry_point="motif_jax.envs.nethack.gym_game:GymGame", kwargs=values)

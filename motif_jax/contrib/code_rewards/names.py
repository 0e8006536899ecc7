"""Finds the names that a reward program may read in a world.

They are, the first of equal names counts: numbers that the world has given names (its attribute `numbers`); its
observations that are numbers, flags, grids and texts; and readings of each step, `event_NAME`, also as NAME.

A value of a moment is known before and after each step. If the world records the result of a step as `event_NAME`, of
the same shape, this is the value after it. Otherwise it is the next observation; that of an episode's last step shows
another episode, so the value before the step stands for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from motif_jax.config.table import shown
from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.envs.world import CAPTIONS, TEXT, Viewpoint
from motif_jax.rewards.registry import PREFIX, readings
from motif_jax.structs import ArraySpec, UserError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WORDS = ("and", "or", "not")  # names that are operators
NUMBER, FLAG, GRID, TEXTS = "number", "flag", "grid", "text"  # types of values
MOMENT, STEP = "moment", "step"  # what values are of
MOST_AXES = 3  # of a grid


class Entry(NamedTuple):
    """A value that a program can read."""

    type: str
    of: str  # MOMENT or STEP
    observation: str  # a name of the world's specs
    shape: tuple[int, ...] = ()  # of the observation
    cell: tuple[int, ...] = ()  # of a number in the observation; (): all of it
    after: str = ""  # the observation `event_NAME` that is the result of a step; "": there is none

    @property
    def observations(self) -> tuple[str, ...]:
        """The names that rollouts must record."""
        return tuple(filter(None, (self.observation, self.after)))


class Readable(NamedTuple):
    """All that a program can read in a world."""

    entries: Mapping[str, Entry]
    viewpoints: Mapping[str, Viewpoint]
    still: tuple[str, ...]  # the names that `still()` compares

    def record(self) -> dict[str, Any]:
        """The names as JSON, for a checkpoint."""
        return json.loads(json.dumps(self._asdict()))

    def checked(self) -> Readable:
        """Itself; raises ValueError if its parts do not fit each other, as worlds and checkpoints are foreign."""
        moments = {name: entry for name, entry in self.entries.items() if _is_sound(name, entry) and entry.of == MOMENT}
        wrong: list[tuple[object, object]]
        wrong = [(name, entry) for name, entry in self.entries.items() if not _is_sound(name, entry)]
        wrong += [(name, one) for name, one in self.viewpoints.items() if not _fits(moments, name, one)]
        wrong += [(name, "no value of a moment") for name in self.still if name not in moments]
        for name, what in wrong:
            raise ValueError(f"{shown(name)} is {shown(what)}")
        return self


CAPTION = "event_message"  # the caption of a step, read by says("...")
SAID = Entry(TEXTS, STEP, CAPTION, CAPTIONS[CAPTION].shape)


def find_readable(world: Any) -> Readable:
    """The names of a world; raises UserError if it declares other than `world.Viewpoint` describes."""
    specs: Mapping[str, ArraySpec] = world.specs
    entries: dict[str, Entry] = {}
    for reading in readings(specs):
        entries[reading] = entries[reading.removeprefix(PREFIX)] = Entry(
            FLAG if specs[reading].dtype == "bool" else NUMBER, STEP, reading
        )
    for name, spec in specs.items():
        if not name.startswith(PREFIX) and (found := _type(spec)):
            entries[name] = Entry(found, MOMENT, name, tuple(map(int, spec.shape)), (), _after(name, specs))
        elif name.startswith(PREFIX) and not spec.shape and name not in entries:
            entries[name] = Entry(NUMBER, STEP, name)
    entries = {name: entry for name, entry in entries.items() if NAME.fullmatch(name) and name not in WORDS}
    try:
        for name, (observation, index) in getattr(world, "numbers", {}).items():
            shape = tuple(map(int, specs[observation].shape))
            entries[name] = Entry(NUMBER, MOMENT, observation, shape, (index,), _after(observation, specs))
        still = getattr(world, "still", ()) or (one for one in world.reads if one in entries and one not in CAPTIONS)
        return Readable(entries, getattr(world, "viewpoints", {}), tuple(still)).checked()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"`numbers`, `viewpoints` or `still` of the world {world.name!r} do not fit its observations: "
            f"{error!r:.200} ({WORLD_FLAG})"
        ) from error


def readable_from(record: Any) -> Readable:
    """The inverse of `Readable.record`; for a damaged one, it raises one of Python's errors of wrong values."""
    entries = {}
    for name, (kind, of, observation, shape, cell, after) in record["entries"].items():
        entries[name] = Entry(kind, of, observation, tuple(shape), tuple(cell), after)
    viewpoints = {name: Viewpoint(*parts) for name, parts in record["viewpoints"].items()}
    return Readable(entries, viewpoints, tuple(record["still"])).checked()


def _is_sound(name: str, entry: Entry) -> bool:
    """Whether the parts of an entry fit each other."""
    shape, cell = entry.shape, entry.cell
    axes = {NUMBER: range(MOST_AXES + 1), FLAG: range(1), GRID: range(1, MOST_AXES + 1), TEXTS: range(1, 2)}
    return (
        NAME.fullmatch(name) is not None
        and name not in WORDS
        and entry.of == (STEP if entry.observation.startswith(PREFIX) else MOMENT)
        and all(type(number) is int for number in (*shape, *cell))
        and len(shape) in axes.get(entry.type, ())
        and len(cell) == (0 if entry.type in (GRID, TEXTS) else len(shape))
        and all(0 <= at < size for at, size in zip(cell, shape, strict=False))
    )


def _type(spec: ArraySpec) -> str:
    if spec.kind == TEXT or spec == CAPTIONS["message"]:
        return TEXTS if len(spec.shape) == 1 else ""
    if not spec.shape:
        return FLAG if spec.dtype == "bool" else NUMBER
    return GRID if len(spec.shape) <= MOST_AXES else ""


def _after(name: str, specs: Mapping[str, ArraySpec]) -> str:
    result = specs.get(f"{PREFIX}{name}")
    return f"{PREFIX}{name}" if result and result[:2] == specs[name][:2] else ""


def _fits(moments: Mapping[str, Entry], name: str, viewpoint: object) -> bool:
    """Whether a grid has two axes of cells and the plane that its viewpoint names."""
    entry = moments.get(name)
    if not isinstance(viewpoint, Viewpoint) or entry is None or entry.type != GRID:
        return False
    plane, planes = viewpoint.plane, entry.shape[0 if viewpoint.planes_first else -1]
    return (
        len(entry.shape) == (2 if plane is None else 3)
        and (plane is None or (type(plane) is int and 0 <= plane < planes))
        and all(
            type(one) is int or (one in moments and moments[str(one)].type == NUMBER)
            for one in (viewpoint.row, viewpoint.column)
        )
    )

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


CAPTION = "event_message"  # the caption of a step, read by says("...")
SAID = Entry(TEXTS, STEP, CAPTION, CAPTIONS[CAPTION].shape)


def find_readable(world: Any) -> Readable:
    """The names of a world; raises UserError if it declares other than `world.Viewpoint` describes."""
    specs: Mapping[str, ArraySpec] = world.specs

    def declared(attribute: str, kind: type, must_be: str) -> Any:
        value = getattr(world, attribute, kind())
        if not isinstance(value, Mapping if kind is dict else kind):
            raise wrong(attribute, must_be, value)
        return value

    def wrong(attribute: str, must_be: str, value: object) -> UserError:
        return UserError(
            f"{attribute!r} of the world {world.name!r} must be {must_be}, not {shown(value)} ({WORLD_FLAG})"
        )

    entries: dict[str, Entry] = {}
    for reading in readings(specs):
        entries[reading] = entries[reading.removeprefix(PREFIX)] = Entry(
            FLAG if specs[reading].dtype == "bool" else NUMBER, STEP, reading
        )
    for name, spec in specs.items():
        if not name.startswith(PREFIX) and (found := _type(spec)):
            entries[name] = Entry(found, MOMENT, name, spec.shape, (), _after(name, specs))
        elif name.startswith(PREFIX) and not spec.shape and name not in entries:
            entries[name] = Entry(NUMBER, STEP, name)
    for name, place in declared("numbers", dict, "a dictionary").items():
        if not (number := _number(specs, name, place)):
            what = 'names with an observation of one axis and an index, as in {"gold": ("blstats", 13)}'
            raise wrong("numbers", what, {name: place})
        entries[name] = number
    entries = {name: entry for name, entry in entries.items() if NAME.fullmatch(name) and name not in WORDS}
    viewpoints = declared("viewpoints", dict, "a dictionary")
    for name, viewpoint in viewpoints.items():
        if not _fits(entries, name, viewpoint):
            what = "the agent's cells in grids, as in {'image': Viewpoint(3, 6, plane=0)}"
            raise wrong("viewpoints", what, {name: viewpoint})
    still = declared("still", tuple, "a tuple") or tuple(
        name for name in world.reads if name in entries and name not in CAPTIONS
    )
    if unknown := [name for name in still if not _is_of_moment(entries, name)]:
        raise wrong("still", "names of values of a moment", unknown[0])
    return Readable(entries, viewpoints, still)


def readable_from(record: Any) -> Readable:
    """The inverse of `Readable.record`; raises ValueError if it is not such a record, as in a damaged checkpoint."""
    try:
        entries = {}
        for name, (kind, of, observation, shape, cell, after) in record["entries"].items():
            entries[name] = entry = Entry(kind, of, observation, tuple(shape), tuple(cell), after)
            if not (NAME.fullmatch(name) and of in (MOMENT, STEP) and _is_sound(entry)):
                raise ValueError(f"{name!r} is {entry}")
        viewpoints = {name: Viewpoint(*parts) for name, parts in record["viewpoints"].items()}
        wrong = [name for name, viewpoint in viewpoints.items() if not _fits(entries, name, viewpoint)]
        if wrong := wrong + [name for name in record["still"] if not _is_of_moment(entries, name)]:
            raise ValueError(f"the viewpoint of {wrong[0]!r}, or what still compares")
        return Readable(entries, viewpoints, tuple(record["still"]))
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(f"the names of a program are damaged: {error!r:.200}") from error


def _is_sound(entry: Entry) -> bool:
    """Whether the parts of an entry fit each other."""
    shape, cell = entry.shape, entry.cell
    axes = {NUMBER: range(MOST_AXES + 1), FLAG: range(1), GRID: range(1, MOST_AXES + 1), TEXTS: range(1, 2)}
    return (
        isinstance(entry.observation, str)
        and isinstance(entry.after, str)
        and all(type(number) is int for number in (*shape, *cell))
        and len(shape) in axes.get(entry.type, ())
        and len(cell) == (0 if entry.type in (GRID, TEXTS) else len(shape))
        and all(0 <= at < size for at, size in zip(cell, shape, strict=False))
    )


def _type(spec: ArraySpec) -> str:
    if spec.kind == TEXT or spec == CAPTIONS["message"]:
        return TEXTS
    if not spec.shape:
        return FLAG if spec.dtype == "bool" else NUMBER
    return GRID if len(spec.shape) <= MOST_AXES else ""


def _after(name: str, specs: Mapping[str, ArraySpec]) -> str:
    result = specs.get(f"{PREFIX}{name}")
    return f"{PREFIX}{name}" if result and result[:2] == specs[name][:2] else ""


def _number(specs: Mapping[str, ArraySpec], name: object, place: object) -> Entry | None:
    """The entry of a number that the world has named; None if the observation does not have it."""
    match place:
        case (str(observation), int(index)) if isinstance(name, str) and NAME.fullmatch(name) and observation in specs:
            spec = specs[observation]
            if len(spec.shape) == 1 and 0 <= index < spec.shape[0] and not observation.startswith(PREFIX):
                return Entry(NUMBER, MOMENT, observation, spec.shape, (index,), _after(observation, specs))
    return None


def _is_of_moment(entries: Mapping[str, Entry], name: object) -> bool:
    return isinstance(name, str) and name in entries and entries[name].of == MOMENT


def _fits(entries: Mapping[str, Entry], name: object, viewpoint: object) -> bool:
    """Whether a grid has two axes of cells and the plane that its viewpoint names."""
    entry = entries.get(name) if isinstance(name, str) else None
    if not isinstance(viewpoint, Viewpoint) or entry is None or entry.type != GRID:
        return False
    plane, planes = viewpoint.plane, entry.shape[0 if viewpoint.planes_first else -1]
    return (
        len(entry.shape) == (2 if plane is None else 3)
        and (plane is None or (type(plane) is int and 0 <= plane < planes))
        and all(
            type(one) is int or (_is_of_moment(entries, one) and entries[str(one)].type == NUMBER)
            for one in (viewpoint.row, viewpoint.column)
        )
    )

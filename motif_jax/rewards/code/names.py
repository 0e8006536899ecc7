"""Finds the names that a reward program may read in a world.

They are, the first of equal names counts: numbers that the world has given names (its attribute `numbers`); its
observations that are numbers, flags, grids and texts; and readings of each step, `event_NAME`, also as NAME.

A value of a moment is known before and after each step. If the world records the result of a step as `event_NAME`, of
the same shape, this is the value after it. Otherwise it is the next observation; that of an episode's last step shows
another episode, so the value before the step stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from motif_jax.config.table import shown
from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.envs.world import CAPTIONS, TEXT, Viewpoint
from motif_jax.rewards.choice import PREFIX
from motif_jax.rewards.code.tokens import NAME, WORDS
from motif_jax.rewards.reading import readings
from motif_jax.structs import ArraySpec, UserError

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

    def record(self) -> list[Any]:
        """As JSON, for a checkpoint."""
        return [list(part) if isinstance(part, tuple) else part for part in self]


class Readable(NamedTuple):
    """All that a program can read in a world."""

    entries: Mapping[str, Entry]
    viewpoints: Mapping[str, Viewpoint]
    still: tuple[str, ...]  # the names that `still()` compares

    def record(self) -> dict[str, Any]:
        """As JSON, for a checkpoint."""
        return {
            "entries": {name: entry.record() for name, entry in self.entries.items()},
            "viewpoints": {name: list(viewpoint) for name, viewpoint in self.viewpoints.items()},
            "still": list(self.still),
        }


CAPTION = "event_message"  # the caption of a step, read by says("...")
CAPTION_ENTRY = Entry(TEXTS, STEP, CAPTION, CAPTIONS[CAPTION].shape)


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
            entries[name] = Entry(found, MOMENT, name, spec.shape, (), _after(name, specs))
        elif name.startswith(PREFIX) and not spec.shape and name not in entries:
            entries[name] = Entry(NUMBER, STEP, name)
    own = {name: _number(world, name, place) for name, place in _declared(world, "numbers", Mapping).items()}
    entries |= own
    entries = {name: entry for name, entry in entries.items() if NAME.fullmatch(name) and name not in WORDS}
    viewpoints = _declared(world, "viewpoints", Mapping)
    for name, viewpoint in viewpoints.items():
        _check_viewpoint(world, entries, name, viewpoint)
    still = tuple(_declared(world, "still", tuple)) or tuple(
        name for name in world.reads if name in entries and name not in CAPTIONS
    )
    if unknown := [name for name in still if not _is_of_moment(entries, name)]:
        raise UserError(f"{_wrong(world, 'still')} names of values of a moment, not {shown(unknown[0])} ({WORLD_FLAG})")
    return Readable(entries, viewpoints, still)


def readable_from(record: Any) -> Readable:
    """The inverse of `Readable.record`; raises ValueError if it is not such a record."""
    try:
        entries = {}
        for name, (kind, of, observation, shape, cell, after) in record["entries"].items():
            entry = Entry(kind, of, observation, tuple(shape), tuple(cell), after)
            known = kind in (NUMBER, FLAG, GRID, TEXTS) and of in (MOMENT, STEP)
            fits = len(cell) in (0, len(shape)) and all(0 <= at < size for at, size in zip(cell, shape, strict=False))
            sizes = all(type(number) is int for number in (*shape, *cell))
            if not (known and sizes and fits and isinstance(observation, str) and isinstance(after, str)):
                raise ValueError(f"entry {name!r}")
            entries[name] = entry
        viewpoints = {name: Viewpoint(*parts) for name, parts in record["viewpoints"].items()}
        return Readable(entries, viewpoints, tuple(record["still"]))
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"names of a program: {error}") from error


def _type(spec: ArraySpec) -> str:
    """The type of an observation; "" if programs cannot read it."""
    if spec.kind == TEXT or spec == CAPTIONS["message"]:
        return TEXTS
    if not spec.shape:
        return FLAG if spec.dtype == "bool" else NUMBER
    return GRID if len(spec.shape) <= MOST_AXES else ""


def _after(name: str, specs: Mapping[str, ArraySpec]) -> str:
    result = specs.get(f"{PREFIX}{name}")
    return f"{PREFIX}{name}" if result and result[:2] == specs[name][:2] else ""


def _declared(world: Any, attribute: str, kind: type) -> Any:
    value: Any = getattr(world, attribute, kind() if kind is tuple else {})
    if not isinstance(value, kind):
        what = "a tuple" if kind is tuple else "a dictionary"
        raise UserError(f"{_wrong(world, attribute)} {what}, not {shown(value)} ({WORLD_FLAG})")
    return value


def _wrong(world: Any, attribute: str) -> str:
    return f"{attribute!r} of the world {world.name!r} must be"


def _number(world: Any, name: object, place: object) -> Entry:
    """The entry of a number that the world has named; raises UserError if the observation does not have it."""
    specs: Mapping[str, ArraySpec] = world.specs
    match place:
        case (str(observation), int(index)) if isinstance(name, str) and NAME.fullmatch(name) and observation in specs:
            spec = specs[observation]
            if len(spec.shape) == 1 and 0 <= index < spec.shape[0] and not observation.startswith(PREFIX):
                return Entry(NUMBER, MOMENT, observation, spec.shape, (index,), _after(observation, specs))
    raise UserError(
        f"{_wrong(world, 'numbers')} names with an observation of one axis and an index, as in "
        f'{{"gold": ("blstats", 13)}}, not {shown({name: place})} ({WORLD_FLAG})'
    )


def _is_of_moment(entries: Mapping[str, Entry], name: object) -> bool:
    return isinstance(name, str) and name in entries and entries[name].of == MOMENT


def _check_viewpoint(world: Any, entries: Mapping[str, Entry], name: object, viewpoint: object) -> None:
    """Raises UserError if a viewpoint does not fit its grid."""
    entry = entries.get(name) if isinstance(name, str) else None
    fits = isinstance(viewpoint, Viewpoint) and entry is not None and entry.type == GRID
    if isinstance(viewpoint, Viewpoint) and entry is not None and fits:
        axes = len(entry.shape) - (viewpoint.plane is not None)
        planes = entry.shape[0 if viewpoint.planes_first else -1]
        fits = axes == 2 and (
            viewpoint.plane is None or (type(viewpoint.plane) is int and 0 <= viewpoint.plane < planes)
        )
        for place in (viewpoint.row, viewpoint.column):
            named = _is_of_moment(entries, place) and entries[str(place)].type == NUMBER
            fits = fits and (type(place) is int or named)
    if not fits:
        raise UserError(
            f"{_wrong(world, 'viewpoints')} the agent's cells in grids, as in {{'image': Viewpoint(3, 6, plane=0)}}, "
            f"not {shown({name: viewpoint})} ({WORLD_FLAG})"
        )

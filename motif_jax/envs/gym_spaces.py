"""Converts gymnasium's spaces and values to specs and arrays, and recorded actions to its actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from motif_jax.captions import WIDTH, encode
from motif_jax.envs.action_space import ActionSpace
from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.envs.world import CAPTIONS, step_specs
from motif_jax.structs import BYTE_VALUES, IMAGE_CHANNELS, MOST_CATEGORIES, ArraySpec, UserError

ALONE = "observation"  # the name of an observation outside a Dict


class Field(NamedTuple):
    """One array of the observations."""

    path: tuple[str, ...]  # keys of the nested dictionaries
    spec: ArraySpec
    convert: Callable[[Any], Any]  # the environment's value -> an array-like that fits the spec


def fields_of(space: spaces.Space, kinds: Mapping[str, str], world: str) -> dict[str, Field]:
    """Returns the fields of an observation space by name; raises UserError for spaces that cannot be recorded.

    `kinds`: the user's kinds of some observations, by name (networks/kinds.py).
    """
    found: dict[str, Field] = {}
    _collect(space, (), kinds, world, found)
    for name in kinds:
        if name not in found:
            raise UserError(
                f"the world {world!r} declares the kind of the observation {name!r}, which its environment does not "
                f"give: it gives {', '.join(found)} ({WORLD_FLAG})"
            )
    return found


class Parts(NamedTuple):
    """How a space of actions with several parts is recorded."""

    space: ActionSpace
    convert: Callable[[Any], Any]  # a recorded action -> the environment's


def parts_of(space: spaces.Space, world: str) -> Parts | None:
    """Returns the parts of a space of actions; None if it is Discrete. Raises UserError for other spaces."""
    if isinstance(space, spaces.Discrete) and space.start == 0:
        _check_choices(int(space.n), space, world)
        return None
    count = int(np.prod(space.shape)) if space.shape else 0
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary) and count:
        sizes = getattr(space, "nvec", np.full(count, 2))  # without it: a MultiBinary
        _check_choices(sum(sizes.ravel().tolist()), space, world)
        start, whole = getattr(space, "start", 0), space

        def chosen(action: Any) -> np.ndarray:
            return (np.reshape(action, whole.shape) + start).astype(whole.dtype)

        return Parts(ActionSpace(tuple(sizes.ravel().tolist())), chosen)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and count:
        low, high, box = space.low, space.high, space
        with np.errstate(over="ignore", invalid="ignore"):
            bounds = np.float32(low), np.float32(high)
            width = bounds[1] - bounds[0]
        if not (np.isfinite(width) & (width > 0)).all():
            raise UserError(
                f"the actions of the world {world!r} must have bounds whose differences are positive and finite in "
                f"float32, not {space}: set them with a wrapper, such as gymnasium.wrappers.RescaleAction "
                f"({WORLD_FLAG})"
            )

        def scaled(action: Any) -> np.ndarray:
            return np.clip(np.reshape(action, box.shape).astype(box.dtype), low, high)  # float32 may round up

        return Parts(ActionSpace((), *(tuple(one.ravel().tolist()) for one in bounds)), scaled)
    raise UserError(
        f"the action space of the world {world!r} must be Discrete from 0 on, MultiDiscrete, MultiBinary or a Box of "
        f"fractions, not {space}: convert it with a wrapper ({WORLD_FLAG})"
    )


def _check_choices(count: int, space: spaces.Space, world: str) -> None:
    if count > MOST_CATEGORIES:
        raise UserError(
            f"the action space {space} of the world {world!r} has {count:,} values, but may have at most "
            f"{MOST_CATEGORIES:,}: choose fewer with a wrapper ({WORLD_FLAG})"
        )


def _collect(
    space: spaces.Space, path: tuple[str, ...], kinds: Mapping[str, str], world: str, found: dict[str, Field]
) -> None:
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            _collect(inner, (*path, str(key)), kinds, world, found)
        return
    name = "_".join(path) or ALONE
    if name in (CAPTIONS | step_specs()) or name.startswith("event_") or name in found:
        raise UserError(
            f"the environment of the world {world!r} gives an observation called {name!r}, a name that is taken: "
            f"rename it with a wrapper ({WORLD_FLAG})"
        )
    made = _field(space, path, kinds.get(name, ""))
    if made is None:
        raise UserError(
            f"the world {world!r} cannot record the observation {name!r}, whose space is {type(space).__name__}: make "
            f"it a Box, a text, discrete values or a Dict of these with a wrapper ({WORLD_FLAG})"
        )
    found[name] = made


def _field(space: spaces.Space, path: tuple[str, ...], kind: str) -> Field | None:
    """Returns the field of a space other than Dict; None if unsupported. An empty `kind` is inferred."""
    if isinstance(space, spaces.Text) or isinstance(space.sample(), str):
        return Field(path, ArraySpec((WIDTH,), "uint8", kind or "text"), encode)
    if isinstance(space, spaces.Discrete):
        start, values = int(space.start), int(space.n)
        return Field(path, ArraySpec((), "int32", kind or "category", values), lambda value: value - start)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        values = 2 if isinstance(space, spaces.MultiBinary) else int(np.max(space.nvec))
        several = "category" if len(space.shape) <= 1 else "grid"
        return Field(path, ArraySpec(space.shape, "int32", kind or several, values), np.asarray)
    if isinstance(space, spaces.Box):
        kind, dtype = kind or _kind_of_box(space), np.dtype(space.dtype)
        chosen = kind in ("category", "grid") and dtype.kind in "iu"
        if not np.can_cast(dtype, np.int32):
            dtype = np.dtype(np.int32 if chosen else np.float32)  # types that devices compute with
        return Field(path, ArraySpec(space.shape, str(dtype), kind, _values(space) if chosen else 0), np.asarray)
    return None


def _kind_of_box(space: spaces.Box) -> str:
    """Infers the kind of a Box from its type, shape and bounds; "" if they do not decide it."""
    rank = len(space.shape)
    if rank <= 1 or (rank == 2 and np.issubdtype(space.dtype, np.floating)):
        return "vector"
    if (
        space.dtype == np.uint8
        and rank == 3
        and space.shape[2] <= IMAGE_CHANNELS
        and space.high.max() == BYTE_VALUES - 1
    ):
        return "image"
    if np.issubdtype(space.dtype, np.integer) and rank in (2, 3) and 0 < _values(space) < BYTE_VALUES:
        return "grid"
    return ""


def _values(space: spaces.Box) -> int:
    """Returns the number of values of a Box from 0 on; 0 if it is unbounded or can be negative."""
    low, high = int(space.low.min()), int(space.high.max())
    return high + 1 if low >= 0 and high < MOST_CATEGORIES else 0

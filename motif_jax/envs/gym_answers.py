"""Validates the return values of a gymnasium environment and of the user's world around it.

An error names the world, the method and the value. The checks run in every step of every game, so each begins with a
fast test that nearly all values pass.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from motif_jax.config.table import shown
from motif_jax.envs.drawing import GREY, Pieces
from motif_jax.envs.gym_spaces import Field
from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.structs import UserError

STEP = "(observation, reward, terminated, truncated, info)"
RESET = "(observation, info)"
LARGEST = float(np.finfo(np.float32).max)  # rewards are recorded as float32
MOST_PIXELS = 8192  # per side of a picture
COLOURS = 16  # of a world's screen
CHOICES = {np.dtype(np.bool_): 2, np.dtype(np.uint8): 256}  # number of values of small types
UNSIGNED = {number.itemsize: number for number in map(np.dtype, ("u1", "u2", "u4", "u8"))}  # by size in bytes
dtype_of = functools.cache(np.dtype)
ENVIRONMENT = ("reset", "step", "close", "unwrapped", "observation_space", "action_space")


class AnswerChecks:
    """The checks of one world, or of one `game`; each returns the validated value."""

    def __init__(self, name: str, what: str = "world"):
        self._who = f"the {what} {name!r}"

    def refusal(self, method: str, wanted: str, value: Any) -> UserError:
        return UserError(f"{method} of {self._who} must return {wanted}, not {_spelled(value)} ({WORLD_FLAG})")

    def environment(self, env: Any) -> Any:
        """Checks the return value of `make`."""
        if not all(hasattr(env, name) for name in ENVIRONMENT):
            raise self.refusal("make()", "an environment of gymnasium", env)
        for name in ("observation_space", "action_space"):
            if not isinstance(getattr(env, name), spaces.Space):
                raise self.refusal("make()", f"an environment whose {name} is a space of gymnasium", getattr(env, name))
        return env

    def parts(self, method: str, wanted: str, value: Any) -> Sequence[Any]:
        """Checks the tuple that `reset` or `step` returns; `wanted` names its parts."""
        if not isinstance(value, tuple | list) or len(value) != wanted.count(",") + 1:
            raise self.refusal(method, wanted, value)
        return value

    def number(self, method: str, wanted: str, value: Any, largest: float = sys.float_info.max) -> float:
        if not isinstance(value, str | bytes):
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                number = math.nan
            if -largest <= number <= largest:
                return number
        raise self.refusal(method, wanted, value)

    def reward(self, value: Any, method: str = "step()") -> float:
        return self.number(method, "a reward that is a finite number of float32", value, LARGEST)

    def flag(self, method: str, what: str, value: Any) -> bool:
        """Checks True or False; a number is converted."""
        if value is True or value is False:
            return value
        if isinstance(value, int | float | np.generic | np.ndarray) and np.size(value) == 1:
            return bool(value)
        raise self.refusal(method, f"True or False as {what!r}", value)

    def array(self, method: str, name: str, field: Field, observation: Any) -> np.ndarray:
        """Checks one array of an observation."""
        value, spec = observation, field.spec
        try:
            for key in field.path:
                value = value[key]
        except (KeyError, IndexError, TypeError) as error:
            raise self.refusal(method, f"an observation with {name!r}", observation) from error
        try:
            given = np.asarray(field.convert(value))
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise self.refusal(method, f"the observation {name!r} as its space says", value) from error
        if given.shape != spec.shape:
            wanted = f"the observation {name!r} of shape {spec.shape}, as its space says"
            raise self.refusal(method, wanted, _Words(f"of shape {given.shape}"))
        dtype, kind = dtype_of(spec.dtype), given.dtype.kind
        if kind == "f":
            # A fast test: the sum of squares exceeds LARGEST, or is NaN, if a number is huge or not finite.
            if not np.vdot(given, given) <= LARGEST:
                self._check_finite(method, name, given)
        elif kind not in "biu":
            raise self.refusal(method, f"numbers in the observation {name!r}", value)
        if spec.categories and kind != "f":
            if spec.categories < CHOICES.get(given.dtype, math.inf) and not _in_range(given, spec.categories):
                wanted = f"numbers from 0 to {spec.categories - 1} in the observation {name!r}, as its space says"
                raise self.refusal(method, wanted, value)
            return given.astype(dtype, copy=False)
        if given.dtype == dtype:
            return given
        with np.errstate(invalid="ignore"):  # a float that is too large for an integer
            array = given.astype(dtype)
        if dtype.kind != "f" and not (array == given).all():
            raise self.refusal(method, f"numbers of the type {spec.dtype} in the observation {name!r}", value)
        return array

    def _check_finite(self, method: str, name: str, given: np.ndarray) -> None:
        with np.errstate(over="ignore"):
            bad = np.argwhere(~np.isfinite(given.astype(np.float32)))
        if len(bad):
            at = tuple(bad[0].tolist())
            where = f" at index {at[0] if len(at) == 1 else at}" if at else ""
            wanted = f"finite numbers of float32 in the observation {name!r}"
            raise self.refusal(method, wanted, _Words(f"{given[at]}{where}"))

    def text(self, method: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.refusal(method, "text", value)
        return value

    def pixels(self, value: Any) -> np.ndarray:
        """Checks a picture. [height, width, 3] uint8"""
        if not (
            isinstance(value, np.ndarray)
            and value.dtype == np.uint8
            and value.ndim == 3
            and value.shape[2] == 3
            and 0 < min(value.shape) <= max(value.shape) <= MOST_PIXELS
        ):
            wanted = f"a picture of shape (height, width, 3) and type uint8, up to {MOST_PIXELS:,} on a side"
            raise self.refusal("render()", f"{wanted} (or set picture = '' in its class)", value)
        return value

    def names(self, what: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, tuple | list) or not all(isinstance(name, str) for name in value):
            raise self.refusal(what, "a tuple of texts", value)
        return tuple(value)

    def figures(self, figures: Mapping[str, type], value: Any) -> tuple[float, ...]:
        wanted = f"a finite number for each of {', '.join(figures)}"
        several = isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim > 0)
        if not several or len(value) != len(figures):
            raise self.refusal("measure()", wanted, value)
        found = [self.number("measure()", wanted, number) for number in value]
        return tuple(kind(number) for kind, number in zip(figures.values(), found, strict=True))

    def rows(self, value: Any) -> list[Pieces]:
        """Checks the rows of a screen; returns them as pieces of text with their colours."""
        wanted = f"rows of text, or of pieces of text with colours from 0 to {COLOURS - 1}"
        lines = value.splitlines() if isinstance(value, str) else value
        if not isinstance(lines, Sequence):
            raise self.refusal("screen()", wanted, value)
        found = []
        for line in lines:
            pieces = [(line, GREY)] if isinstance(line, str) else line
            if not isinstance(pieces, Sequence):
                raise self.refusal("screen()", wanted, line)
            for piece in pieces:
                match piece:
                    case (str(), int() | np.integer() as color) if 0 <= color < COLOURS:
                        continue
                raise self.refusal("screen()", wanted, piece)
            found.append([(text, int(color)) for text, color in pieces])
        return found


def _in_range(given: np.ndarray, categories: int) -> bool:
    """Whether all integers are in [0, categories)."""
    if not given.ndim:
        return 0 <= int(given) < categories
    if given.dtype.kind == "i":
        given = given.view(UNSIGNED[given.itemsize])  # negative numbers become huge
    return bool(np.maximum.reduce(given, axis=None) < categories)


class _Words(str):
    """A description of a value, which a message quotes unchanged."""


def _spelled(value: Any) -> str:
    """Describes a value in a few words."""
    if isinstance(value, _Words):
        return value
    if isinstance(value, np.ndarray) and value.size > 9:
        return f"an array of shape {value.shape} and type {value.dtype}"
    try:
        return shown(value)
    except Exception:  # whatever the value's own __repr__ raises
        return f"a value of type {type(value).__name__}"

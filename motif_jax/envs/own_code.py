"""Loads the user's code, named `module:Class`, attributes its errors, and checks the data of a user's world.

An error of the user's code is reported in one sentence with the class and the flag, followed by its traceback. This
includes exceptions outside `Exception`: a game that calls `sys.exit(0)` must not end the program silently.
Observations are checked against their specs once, before the first step; rewards in every step.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from motif_jax.envs.world import Vector, World, suggest
from motif_jax.names import WORLDS, find
from motif_jax.structs import ArraySpec, Interrupted, Stopped, UserCodeError, UserError
from motif_jax.system.errors import find_refusal

PACKAGE = f"{Path(__file__).parent.parent}/"
CALLERS = tuple(  # of user code
    f"{PACKAGE}envs/{name}.py" for name in ("gym_world", "arena_world", "text_game", "sequential", "nethack/world")
)
WORLD_FLAG, TASK_FLAG, OPTIONS_FLAG = "--config.env.world", "--config.env.task", "--config.env.options"
LIBRARIES = {"importlib", "numpy", "jax", "jaxlib", "flax", "optax"}  # called by this package
dtype_of = functools.cache(np.dtype)
LONGEST = 10_000  # characters of a traceback, from its end
LONGEST_SENTENCE = 500  # characters of an error's message, in one line


def owner(env: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns the name and flag of the user's class in the config section `env`; None for a built-in game."""
    world = env.get("world", "nethack")
    if ":" in world:
        return f"the world {world!r}", WORLD_FLAG
    made = find(WORLDS, world)
    return made.own_game(env) if hasattr(made, "own_game") else None


def load_class(text: str, what: str, flag: str) -> Any:
    """Imports a class; raises UserError if it does not exist, UserCodeError if its module raises.

    `text`: `module:Class`. `what`: "world", "game" or "reward source", for messages.
    """
    module, _, name = text.partition(":")
    if not module or not name:
        raise UserError(f"cannot use the {what} {text!r}: write module:Class ({flag})")

    def explain(error: BaseException) -> UserError:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            return UserError(f"cannot use the {what} {text!r} ({flag}): {error}")
        return failure(f"the {what} {text!r}", flag, error)

    with guarded(explain):
        imported = importlib.import_module(module)
    if not callable(getattr(imported, name, None)):
        hint = f"module {module!r} has no class {name!r}: {suggest(name, vars(imported), 'define it')}"
        raise UserError(f"cannot use the {what} {text!r} ({flag}): {hint}")
    return getattr(imported, name)


def failure(who: str, flag: str, error: BaseException, suffix: str = "") -> UserCodeError:
    """Makes a UserCodeError from an error of the user's code; `suffix` is appended to the sentence."""
    lines = traceback.format_exception(type(error), error, _own_frames(error) or error.__traceback__)
    return UserCodeError(f"{who} failed with {message_of(error)} ({flag}){suffix}", "".join(lines)[-LONGEST:])


def message_of(error: BaseException) -> str:
    """Returns the type and the message of an exception in one line."""
    parts = traceback.format_exception_only(error)  # the message, then notes, such as JAX's
    message = parts[-1 if isinstance(error, SyntaxError) else 0].strip()
    return " ".join(line.strip() for line in message.splitlines() if line.strip(" *"))[:LONGEST_SENTENCE]


@contextlib.contextmanager
def guarded(explain: Callable[[BaseException], UserError | None]) -> Iterator[None]:
    """Wraps calls of the user's code: an exception becomes the error that `explain(exception)` returns.

    The program's own errors and a real Ctrl-C pass unchanged, as does an exception for which `explain` returns None.
    Do not wrap a `yield`: GeneratorExit would be explained too.
    """
    try:
        yield
    except (UserError, Stopped, Interrupted):
        raise
    except BaseException as error:
        if interrupt := _interrupt_of(error):  # the user's code has replaced it by another exception
            raise interrupt from None
        # Outside the program, as in a notebook, Python itself raises KeyboardInterrupt.
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            raise
        explained = explain(error)
        if explained is None:
            raise
        raise explained from error


def reported(env: Mapping[str, Any], suffix: str = "") -> contextlib.AbstractContextManager[None]:
    """Converts exceptions of the user's game in the block to UserCodeError; see `guarded`."""
    return guarded(lambda error: as_failure(env, error, suffix))


def as_failure(env: Mapping[str, Any], error: BaseException, suffix: str = "") -> UserCodeError | None:
    """Makes a UserCodeError; None if the error was not raised in or below the user's code, or is the system's."""
    named = owner(env)
    if named is None or find_refusal(error) or not _own_frames(error):
        return None
    return failure(*named, error, suffix)


def _interrupt_of(error: BaseException) -> Interrupted | None:
    """Returns the signal during whose handling the exception was raised, or None."""
    link: BaseException | None = error
    while link is not None and not isinstance(link, Interrupted):
        link = link.__context__
    return link


def _own_frames(error: BaseException) -> Any:
    """Returns the traceback from the first frame outside this package and LIBRARIES; None without such a frame.

    A call that fails before it starts, such as one with wrong arguments, has only the caller's frame.
    """
    frame, last = error.__traceback__, None
    while frame is not None:
        file, module = frame.tb_frame.f_code.co_filename, str(frame.tb_frame.f_globals.get("__name__"))
        if not file.startswith((PACKAGE, "<frozen")) and module.partition(".")[0] not in LIBRARIES:
            return frame
        frame, last = frame.tb_next, frame
    return last if last is not None and last.tb_frame.f_code.co_filename in CALLERS else None


def fitted(value: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Returns a value as an array of this shape and type; raises ValueError if that would change its values."""
    given, wanted = np.asarray(value), dtype_of(dtype)
    if given.shape == shape and given.dtype.kind in "biuf":
        if given.dtype == wanted:
            return given
        with np.errstate(over="ignore", invalid="ignore"):  # a number that is too large for the type
            array = given.astype(wanted)
        if wanted.kind == "f" or (array == given).all():
            return array
    raise ValueError(f"shape {given.shape} and type {given.dtype}")


class StrictRows(np.ndarray):
    """An array of observations, one per game; assigning a value that does not fit its spec raises UserError."""

    what: str = "the observation"

    def __setitem__(self, index: Any, value: Any) -> None:
        shape = np.asarray(self[index]).shape
        try:
            super().__setitem__(index, fitted(value, shape, str(self.dtype)))
        except ValueError as error:
            raise UserError(
                f"{self.what} must be of shape {shape} and type {self.dtype}, as its spec says, not {error} "
                f"({WORLD_FLAG})"
            ) from error

    def __getitem__(self, index: SupportsIndex | slice | Any) -> Any:
        return np.asarray(super().__getitem__(index))


def check_rewards(rewards: Any, named: tuple[str, str]) -> None:
    """Raises UserError if recorded rewards are not finite. `rewards`: one per game, an array or a view. [E] float32"""
    if not (finite := np.isfinite(rewards)).all():
        reward = np.asarray(rewards)[~finite][0]
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

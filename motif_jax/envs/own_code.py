"""Code of the user's, named `module:Class`: loading it, and telling its errors apart from ours.

An error in it reaches the user as one sentence, which names the class and the flag, and the traceback below it. That
includes what is no `Exception`: a game that calls `sys.exit(0)` would otherwise end the program without a result.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from motif_jax.structs import Interrupted, Stopped, UserCodeError, UserError
from motif_jax.system.errors import find_refusal

PACKAGE = str(Path(__file__).parent.parent)
CALLERS = tuple(str(Path(__file__).with_name(name)) for name in ("gym_games.py", "gym_world.py"))  # of the user's code
WORLD_FLAG, TASK_FLAG = "--config.env.world", "--config.env.task"
LIBRARIES = {"importlib", "numpy", "jax", "jaxlib", "flax", "optax"}  # which the package calls itself
LONGEST = 10_000  # characters of a traceback; its end says most


def owner(env: Mapping[str, Any]) -> tuple[str, str] | None:
    """The name of the user's class that the config's section `env` plays, with its flag; None if there is none."""
    world = env.get("world", "nethack")
    if ":" in world:
        return f"the world {world!r}", WORLD_FLAG
    if world == "nethack" and ":" in env.get("task", ""):
        return f"the game {env['task']!r}", TASK_FLAG
    return None


def load_class(text: str, what: str, flag: str) -> Any:
    """The class that `module:Class` names; raises UserError if there is none, UserCodeError if its module raises.

    Args:
      text: `module:Class`.
      what: "world", "game" or "reward source", for messages.
      flag: the value of the config that names it, for messages.
    """
    module, _, name = text.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise UserError(f"a {what} of your own is named module:Class, not {text!r} ({flag})")

    def explain(error: BaseException) -> UserError:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            return UserError(f"cannot use the {what} {text!r} ({flag}): {error}")
        return failure(f"the {what} {text!r}", flag, error)

    with guarded(explain):
        found = importlib.import_module(module)
    if not callable(getattr(found, name, None)):
        near = difflib.get_close_matches(name, [key for key in vars(found) if not key.startswith("_")], n=1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        raise UserError(f"cannot use the {what} {text!r} ({flag}): module {module!r} has no class {name!r}{hint}")
    return getattr(found, name)


def failure(who: str, flag: str, error: BaseException, more: str = "") -> UserCodeError:
    """The error of the user's code as UserCodeError; `more` is added to the sentence."""
    lines = traceback.format_exception(type(error), error, _own_frames(error) or error.__traceback__)
    said = traceback.format_exception_only(error)  # with notes, as JAX adds them, after what it says
    what = said[-1 if isinstance(error, SyntaxError) else 0].strip()
    return UserCodeError(f"{who} failed with {what} ({flag}){more}", "".join(lines)[-LONGEST:])


@contextlib.contextmanager
def guarded(explain: Callable[[BaseException], UserError | None]) -> Iterator[None]:
    """Around calls of the user's code: an exception becomes the error that `explain(exception)` returns.

    The program's own errors and a real Ctrl-C pass as they are, and so does an exception that is explained by None.
    Never around a `yield`, as GeneratorExit would be explained too.
    """
    try:
        yield
    except (UserError, Stopped, Interrupted):
        raise
    except BaseException as error:
        if interrupt := _interrupt_of(error):  # the user's code has made another exception of it
            raise interrupt from None
        # Outside the program, as in a notebook, it is Python itself that raises KeyboardInterrupt.
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            raise
        found = explain(error)
        if found is None:
            raise
        raise found from error


def reported(env: Mapping[str, Any], more: str = "") -> contextlib.AbstractContextManager[None]:
    """Raises what the code of the user's game raises within as UserCodeError; see `guarded`."""
    return guarded(lambda error: as_failure(env, error, more))


def as_failure(env: Mapping[str, Any], error: BaseException, more: str = "") -> UserCodeError | None:
    """The error as UserCodeError; None if it was not raised in the user's code or below it, or by the system."""
    named = owner(env)
    if named is None or find_refusal(error) or not _own_frames(error):
        return None
    return failure(*named, error, more)


def _interrupt_of(error: BaseException) -> Interrupted | None:
    """The signal that was being handled when the exception was raised, if there was one."""
    link: BaseException | None = error
    while link is not None and not isinstance(link, Interrupted):
        link = link.__context__
    return link


def _own_frames(error: BaseException) -> Any:
    """The traceback from the first frame on that is neither of this package nor of what it calls itself.

    A call that fails at once, as one with wrong arguments does, has no frame but that of the caller.
    """
    frame, last = error.__traceback__, None
    while frame is not None:
        file, module = frame.tb_frame.f_code.co_filename, str(frame.tb_frame.f_globals.get("__name__"))
        if not file.startswith((PACKAGE, "<frozen")) and module.partition(".")[0] not in LIBRARIES:
            return frame
        frame, last = frame.tb_next, frame
    return last if last is not None and last.tb_frame.f_code.co_filename in CALLERS else None

"""motif_jax: from games to preferences to a reward to an agent, one stage after another.

  python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score
  python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score --config.collect.num_workers=24
  python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/quickstart --stage=collect
  python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score --stage=train_policy
  python -m motif_jax.launch --config=configs/motif.py --workdir=/tmp/speed --stage=benchmark

The word after the colon goes to the config: a task (score, staircase, staircase_lvl3, oracle, ...), and `,reference` to
reproduce the published system with its defects. Any value of the config can be set with --config.SECTION.NAME=VALUE;
the config file says what each means. Stages that are complete in the workdir are skipped, unfinished ones go on where
they were stopped: to resume, give the same command again.
"""

from __future__ import annotations

from motif_jax import startup

if __name__ == "__main__":
    startup.begin()  # before the imports that take long

import contextlib
import difflib
import os
import re
import runpy
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from absl import flags
from ml_collections import config_flags

from motif_jax.experiment import flatten, run
from motif_jax.stages import NAMES
from motif_jax.startup import STOPPED, say
from motif_jax.structs import Interrupted, Stopped, UserError
from motif_jax.system_errors import explained

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The command line."""
    config_flags.DEFINE_config_file("config", None, "Config file, with its argument after a colon.", lock_config=True)
    flags.DEFINE_string("workdir", None, "Directory of this experiment: everything is written here.")
    flags.DEFINE_list("stage", None, f"Stages to run, of {', '.join(NAMES)}. By default those the config lists.")


def main(argv: list[str] | None = None) -> int:
    """Runs the stages; the exit status."""
    argv = sys.argv if argv is None else argv
    try:
        parse(argv)
        workdir = Path(FLAGS.workdir)
        with stopped_by_signals(), explained(workdir):
            run(FLAGS.config, workdir, FLAGS.stage)
    except UserError as error:
        say(error)
        return 2
    except Stopped as stopped:
        say(stopped)
    except Interrupted as stop:
        say(STOPPED)
        return 128 + int(stop.args[0])
    return 0


def parse(argv: list[str]) -> None:
    """Reads the command line into FLAGS, or says in one sentence what is wrong with it."""
    if {"--help", "-h", "-help"} & set(argv[1:]):
        print(__doc__)
        print(f"stages: {', '.join(NAMES)}\nflags: --config=FILE[:ARGUMENT] --workdir=DIR --stage=NAME[,NAME]")
        sys.exit(0)
    file = config_file(argv)
    if file is None:
        raise UserError("say which experiment: --config=configs/motif.py:score (or --help)")
    if not os.path.isfile(file):  # a `Path` would raise at a name that is too long
        raise UserError(f"there is no config file {str(file)[:200]!r} (--config)")
    try:
        rest = FLAGS(argv)
    except (AttributeError, KeyError) as error:  # an override of a value that the config does not have
        raise UserError(unknown_key(argv, str(error))) from error
    except (flags.Error, ValueError, TypeError) as error:
        raise UserError(" ".join(str(error).split())) from error
    if len(rest) > 1:
        raise UserError(f"unexpected argument {rest[1]!r}: flags are written --name=value")
    if not FLAGS.workdir:
        raise UserError("say where to work: --workdir=runs/NAME (or --help)")


def config_file(argv: list[str]) -> Path | None:
    """The file that --config names; of several, the last."""
    found = None
    for argument, after in zip(argv[1:], [*argv[2:], ""], strict=False):
        match = re.fullmatch(r"--?config(?:=(.*))?", argument, re.DOTALL)
        if match:
            found = Path((after if match[1] is None else match[1]).partition(":")[0])
    return found


def unknown_key(argv: list[str], error: str) -> str:
    """One sentence about an override that names nothing, with the nearest name."""
    known = flatten(runpy.run_path(str(config_file(argv)))["get_config"]().to_dict())
    for argument in argv[1:]:
        match = re.match(r"--?config\.([\w.]+)", argument)
        if match and match[1] not in known:
            near = difflib.get_close_matches(match[1], known, n=1, cutoff=0.3)
            hint = f"; did you mean --config.{near[0]}?" if near else ""
            return f"the config has no {match[1]!r} (--config.{match[1]}){hint}"
    return " ".join(error.split())


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """SIGTERM and SIGINT alike unwind the program, so that workers and memory are given back."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    waiting: list[threading.Timer] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if is_importing(frame):
            return ask_again(number)
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)  # once is enough: cleaning up takes two seconds at most
        raise Interrupted(number)

    def ask_again(number: int) -> None:
        waiting.append(threading.Timer(0.05, os.kill, (os.getpid(), number)))
        waiting[-1].start()

    def nobody_heard(ignored: Any) -> None:
        """What is raised while a finaliser happens to run is only reported by Python; then it is raised again."""
        if not isinstance(ignored.exc_value, Interrupted):
            return report(ignored)
        for number in numbers:
            signal.signal(number, stop)
        return ask_again(ignored.exc_value.args[0])  # when the finaliser is over

    before = {number: signal.signal(number, stop) for number in numbers}
    report, sys.unraisablehook = sys.unraisablehook, nobody_heard
    try:
        yield
    except Stopped:  # all is saved, and the status of this process shall say so, however often it is asked
        before = dict.fromkeys(before, signal.SIG_IGN)
        raise
    except Interrupted:  # an import, say: what it leaves half made has finalisers that fail
        report = be_silent
        raise
    finally:
        for timer in waiting:  # it has ended by itself
            timer.cancel()
        sys.unraisablehook = report
        for number, handler in before.items():
            signal.signal(number, handler)


def is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being loaded: libraries in C++ end the process at an exception that comes up meanwhile."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def be_silent(ignored: Any) -> None:
    """Reports nothing of what could not be raised."""


if __name__ == "__main__":
    define_flags()
    sys.exit(startup.run_program(main))

"""motif_jax: from games to preferences to a reward to an agent, one stage after another.

  python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score
  python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score --config.collect.num_workers=24
  python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/quickstart --stage=collect
  python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score --stage=train_policy
  python -m motif_jax.launch --config=configs/motif.py --workdir=/tmp/speed --stage=benchmark
  motif-jax --config=quickstart --workdir=runs/quickstart

`motif-jax` is the same program as `python -m motif_jax.launch`. A config is a file, or the name of one that comes with
the program (motif, quickstart). The word after the colon goes to the config: a task (score, staircase, staircase_lvl3,
oracle, ...), and `,reference` to reproduce the published system with its defects. Any value of the config can be set
with --config.SECTION.NAME=VALUE; the config file says what each means, and --help=SECTION what it must be
(--help=reference: what that switch changes). Stages that are complete in the workdir are skipped, unfinished ones go on
where they were stopped: to resume, give the same command again.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import config_flags

from motif_jax.compiled import keep_compiled_programs
from motif_jax.config_file import comments, find_config, load
from motif_jax.config_help import describe
from motif_jax.config_table import flatten, shown
from motif_jax.console import clean
from motif_jax.experiment import run, tables
from motif_jax.stages import NAMES
from motif_jax.structs import Stopped, UserError

FLAGS = flags.FLAGS
FLAGGED = {  # what the system may refuse, and what to change then
    errno.EACCES: "--workdir",
    errno.EPERM: "--workdir",
    errno.EROFS: "--workdir",
    errno.ENOSPC: "--workdir, --config.collect.num_pairs",
    errno.EDQUOT: "--workdir, --config.collect.num_pairs",
    errno.ENOMEM: "--config.collect.num_workers, .games_per_worker, .rollout_length",
    errno.EMFILE: "--config.collect.games_per_worker, or `ulimit -n`",
}


def define_flags() -> None:
    """The command line, without the config: which values there are, its file says."""
    flags.DEFINE_string("workdir", None, "Directory of this experiment: everything is written here.")
    flags.DEFINE_list("stage", None, f"Stages to run, of {', '.join(NAMES)}. By default those the config lists.")


def command() -> int:
    """The console script `motif-jax`, and `python -m motif_jax.launch`; the exit status."""
    define_flags()
    return main()


def main(argv: list[str] | None = None) -> int:
    """Runs the stages; the exit status."""
    argv = sys.argv if argv is None else argv
    try:
        parse(argv)
        keep_compiled_programs(os.environ)
        with stopped_by_signals():
            run(FLAGS.config, Path(FLAGS.workdir), FLAGS.stage)
    except UserError as error:
        print(f"motif_jax: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in FLAGGED:
            raise
        where = f"{error.filename!r}" if error.filename else "this machine"
        print(f"motif_jax: {error.strerror} for {where} ({FLAGGED[error.errno]})", file=sys.stderr)
        return 2
    except Stopped as stopped:
        print(f"motif_jax: {stopped}", file=sys.stderr)
    except KeyboardInterrupt as stop:
        number = stop.args[0] if stop.args else signal.SIGINT
        print("\nmotif_jax: stopped; give the same command again to go on", file=sys.stderr)
        return 128 + number
    return 0


def parse(argv: list[str]) -> None:
    """Reads the command line into FLAGS, or says in one sentence what is wrong with it."""
    if {"--help", "-h", "-help"} & set(argv[1:]):
        print(__doc__)
        print(f"stages: {', '.join(NAMES)}\nflags: --config=FILE[:ARGUMENT] --workdir=DIR --stage=NAME[,NAME]")
        sys.exit(0)
    found, argv = split_config(argv)
    section = next((match[1] for text in argv[1:] if (match := re.fullmatch(r"--?help=(.*)", text, re.DOTALL))), None)
    if section is not None:
        defaults = flatten(load(*found, tables()).to_dict()) if found else {}
        print(describe(section, tables(), defaults, comments(found[0]) if found else {}))
        sys.exit(0)
    if found is None:
        raise UserError("say which experiment: --config=motif:score (or --help)")
    config = load(*found, tables())
    check_overrides(argv, set(flatten(config.to_dict())))
    try:
        config_flags.DEFINE_config_dict("config", config, sys_argv=argv)
        rest = FLAGS(argv)
    except (RecursionError, MemoryError) as error:  # what Python raises at lists in lists in lists
        deepest = max((word for word in argv if word.startswith("--config.")), key=len, default="--config")
        raise UserError(f"{clean(deepest, 80)} is nested too deeply") from error
    except (flags.Error, ValueError, TypeError) as error:
        raise UserError(clean(" ".join(str(error).split()))) from error
    if len(rest) > 1:
        raise UserError(f"unexpected argument {shown(rest[1])}: flags are written --name=value")
    if not FLAGS.workdir:
        raise UserError("say where to work: --workdir=runs/NAME (or --help)")


def split_config(argv: list[str]) -> tuple[tuple[str, str | None] | None, list[str]]:
    """The file that --config names, with its argument (of several, the last); and the command line without it."""
    found, rest, words = None, argv[:1], iter(argv[1:])
    for word in words:
        match = re.fullmatch(r"--?config(?:=(.*))?", word, re.DOTALL)
        if match:
            file, colon, argument = (next(words, "") if match[1] is None else match[1]).partition(":")
            found = find_config(file), argument if colon else None
        else:
            rest.append(word)
    return found, rest


def check_overrides(argv: list[str], known: set[str]) -> None:
    """Refuses --config.NAME where that is no value of the config."""
    for argument in argv[1:]:
        match = re.match(r"--?(?:no)?config\.([^=]*)", argument)
        if match and match[1] not in known:
            key = clean(match[1], 80)
            if any(name.startswith(f"{match[1]}.") for name in known):
                raise UserError(f"{key!r} is a section of the config: set one of its values (--config.{key})")
            near = difflib.get_close_matches(match[1][:80], known, n=1, cutoff=0.3)
            hint = f"; did you mean --config.{near[0]}?" if near else ""
            raise UserError(f"the config has no {key!r} (--config.{key}){hint}")


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """SIGTERM and SIGINT alike unwind the program, so that workers and memory are given back."""
    numbers = (signal.SIGTERM, signal.SIGINT)

    def stop(number: int, _: object) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)  # once is enough: cleaning up takes two seconds at most
        raise KeyboardInterrupt(number)

    def nobody_heard(ignored: Any) -> None:
        """What is raised while a finaliser happens to run is only reported by Python; then it is raised again."""
        if not isinstance(ignored.exc_value, KeyboardInterrupt):
            return report(ignored)
        for number in numbers:
            signal.signal(number, stop)
        again = (os.getpid(), ignored.exc_value.args[0] if ignored.exc_value.args else signal.SIGINT)
        return threading.Timer(0.05, os.kill, again).start()  # when the finaliser is over

    before = {number: signal.signal(number, stop) for number in numbers}
    report, sys.unraisablehook = sys.unraisablehook, nobody_heard
    try:
        yield
    except Stopped:  # all is saved, and the status of this process shall say so, however often it is asked
        before = dict.fromkeys(before, signal.SIG_IGN)
        raise
    finally:
        sys.unraisablehook = report
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(command())

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

import contextlib
import difflib
import errno
import fcntl
import importlib
import json
import os
import re
import runpy
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from motif_jax.files import write_config
from motif_jax.stages import NAMES
from motif_jax.structs import Stopped, UserError

FLAGS = flags.FLAGS
MISSING = "(not there)"
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
    """The command line."""
    config_flags.DEFINE_config_file("config", None, "Config file, with its argument after a colon.", lock_config=True)
    flags.DEFINE_string("workdir", None, "Directory of this experiment: everything is written here.")
    flags.DEFINE_list("stage", None, f"Stages to run, of {', '.join(NAMES)}. By default those the config lists.")


def main(argv: list[str] | None = None) -> int:
    """Runs the stages; the exit status."""
    argv = sys.argv if argv is None else argv
    try:
        parse(argv)
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


def run(config: ConfigDict, workdir: Path, names: list[str] | None) -> None:
    """Runs the named stages, or those that the config lists."""
    names = names or list(config.stages)
    for name in names:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(NAMES)}"
            raise UserError(f"unknown stage {name!r} (--stage): {hint}")
    stages = [importlib.import_module(f"motif_jax.stages.{name}") for name in names]
    for stage in stages:
        stage.check(config)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the directory {str(workdir)!r}: {error.strerror} (--workdir)") from error
    sharing = {stage.shared(config) for stage in stages}
    lock = locked(workdir, shared=False not in sharing) if sharing != {None} else contextlib.nullcontext()
    with lock:
        for stage in stages:  # what cannot go together is told before the first of them has worked for hours
            for made in stage.artefacts(workdir):
                check_same_experiment(config, workdir, made / "config.json", stage.MATERIAL)
            stage.is_complete(config, workdir)
        for name, stage in zip(names, stages, strict=True):
            for made in stage.artefacts(workdir):
                check_same_experiment(config, workdir, made / "config.json", stage.MATERIAL)
            if not config.distributed.process_id:  # of several hosts, the first
                write_config(workdir, config)
            if stage.is_complete(config, workdir):
                print(f"{name}: complete in {str(workdir)!r}, skipped")
            else:
                stage.run(config, workdir)


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


@contextlib.contextmanager
def locked(workdir: Path, shared: bool) -> Iterator[None]:
    """Keeps a second run out of the workdir, or out of a `shared` one a run that is not.

    The kernel takes the lock back however this process ends.
    """
    with open(workdir / ".lock", "a+") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UserError(f"another run (process {file.read()}) is using {str(workdir)!r} (--workdir)") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def check_same_experiment(config: ConfigDict, workdir: Path, recorded: Path, material: tuple[str, ...]) -> None:
    """Refuses to go on with another experiment than the one that `recorded` tells of."""
    try:
        before = flatten(json.loads(recorded.read_text()))
    except FileNotFoundError:
        return
    except (OSError, ValueError, AttributeError, RecursionError) as error:  # AttributeError: it is no dictionary
        raise UserError(f"{str(recorded)!r} is damaged: {error} (--workdir)") from error
    now = flatten(json.loads(config.to_json()))
    for key in sorted(before.keys() | now.keys()):
        if any(key == name or key.startswith(f"{name}.") for name in material):
            old, new = before.get(key, MISSING), now.get(key, MISSING)
            if old != new:
                raise UserError(
                    f"workdir {str(workdir)!r} belongs to an experiment with {key} = {old!r}, not {new!r}: "
                    f"choose another --workdir, or --config.{key}={old}"
                )


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}"""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


if __name__ == "__main__":
    define_flags()
    sys.exit(main())

"""motif_jax: trains game-playing agents with language models, one stage after another, by one of four methods.

  configs/motif.py   a language model compares moments, a reward is learnt from its answers and trains the agent
  configs/oni.py     a language model labels what the agent meets, during training
  configs/glam.py    a language model is the policy, trained by PPO
  configs/ilql.py    a language model learns Q and V from recorded conversations

  python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score
  python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score --config.collect.num_workers=24
  python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score --stage=train_policy
  python -m motif_jax.launch --config=configs/glam_quickstart.py --workdir=runs/glam
  motif-jax --config=quickstart --workdir=runs/quickstart

`motif-jax` is the same program as `python -m motif_jax.launch`. A config is a file, or the name of a config that comes
with the program (motif, oni, glam, ilql; quickstart, oni_quickstart, ...). The word after the colon goes to the config:
a task, a level or a world, and `,reference` to reproduce the published system with its defects. Any value of the config
can be set with --config.SECTION.NAME=VALUE; --help=SECTION describes the values of a section (--help=reference: the
effect of that switch). Complete stages are skipped, unfinished ones are resumed: give the same command again.
"""

from __future__ import annotations

from motif_jax.files import require_locks, to_plain
from motif_jax.system import startup

if __name__ == "__main__":
    startup.set_up_process()  # before the imports that take long

import contextlib
import json
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from motif_jax import __version__
from motif_jax.config.file import find_config, load, nearest, shipped
from motif_jax.config.renamed import current_config, current_flag
from motif_jax.config.table import describe, flatten, shown
from motif_jax.console import clean, print_line, print_lines, write
from motif_jax.experiment import check, dry_run, experiment_of, plugin_sections, run, tables
from motif_jax.names import PLUGINS, import_named
from motif_jax.run import CONFIG, read_record
from motif_jax.stages import NAMES, find_runner
from motif_jax.structs import DetailedError, Interrupted, Stopped, UserError
from motif_jax.system.errors import explained
from motif_jax.system.runs import PlannedRun, arguments_of, gpus_of_each, plan
from motif_jax.system.sizing import find_gpu
from motif_jax.system.startup import CPU_DEVICES, STOPPED, keep_compiled_programs, say

FLAGS = flags.FLAGS
OF_FLAGS = """flags: --config=FILE[:ARGUMENT] --workdir=DIR --stage=NAME[,NAME] --sweep=NAME=VALUE,VALUE --version
--print_config: print all values of the config, in the form of the workdir's config.json, and exit
--dry_run: validate the config, print what each stage would do (run, resume or skip), and exit
--nolocks: run without locks, on a file system that has none; make sure that no other run uses this workdir, or the \
directories that it shares with others, at the same time"""


def define_flags(into: flags.FlagValues = FLAGS) -> None:
    """Defines the flags of the command line, except --config and the values of the config; OF_FLAGS describes them."""
    flags.DEFINE_string("workdir", None, "", flag_values=into)
    flags.DEFINE_list("stage", None, "", flag_values=into)
    flags.DEFINE_multi_string("sweep", [], "", flag_values=into)
    for name, default in (("print_config", False), ("dry_run", False), ("locks", True)):
        flags.DEFINE_bool(name, default, "", flag_values=into)


def command() -> int:
    """Runs `motif-jax` (system/startup.py) or `python -m motif_jax.launch`; returns the exit status."""
    define_flags()
    return startup.run_program(main)


def main(argv: list[str] | None = None, other: Callable[[dict[str, Any], Path], None] | None = None) -> int:
    """Runs the stages that a command line asks for, or `other` work on its config and workdir; returns the status."""
    argv = sys.argv if argv is None else argv
    try:
        parse(argv)
        if FLAGS.print_config:
            write(json.dumps(to_plain(FLAGS.config.to_dict()), indent=2, sort_keys=True) + "\n")
            return 0
        if not FLAGS.dry_run:
            keep_compiled_programs(os.environ)
        require_locks(FLAGS.locks)
        workdir = Path(FLAGS.workdir)
        with stopped_by_signals(), explained(workdir):
            if other:
                other(FLAGS.config.to_dict(), workdir)
            elif FLAGS.config.seeds or FLAGS.sweep:
                run_many(argv[1:], workdir)
            else:
                (dry_run if FLAGS.dry_run else run)(FLAGS.config.to_dict(), workdir, FLAGS.stage)
    except DetailedError as error:
        say(error.sentence)
        print_lines(error.details, sys.stderr)
        return 2
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
    """Reads the command line into FLAGS; raises UserError, with one sentence, if something is wrong with it."""
    if {"--version", "-version"} & set(argv[1:]):
        write(f"motif_jax {__version__}\n")
        sys.exit(0)
    if {"--help", "-h", "-help"} & set(argv[1:]):
        write(f"{__doc__}\nstages: {', '.join(NAMES)}\n")
        print_lines(describe("", tables(), {}))
        write(f"{OF_FLAGS}\n")
        sys.exit(0)
    for sentence in PLUGINS.broken:
        say(sentence)
    file_and_argument, argv = split_config(argv)
    section = next((match[1] for text in argv[1:] if (match := re.fullmatch(r"--?help=(.*)", text, re.DOTALL))), None)
    if section is not None:
        given = flatten(load(*file_and_argument, tables()).to_dict()) if file_and_argument else {}
        print_lines(describe(section, tables(), given, plugin_sections()))
        sys.exit(0)
    if file_and_argument is None:
        raise UserError("--config is required, for example --config=motif:score (or --help)")
    read_flags(*file_and_argument, argv, FLAGS)
    if not FLAGS.workdir and not FLAGS.print_config:
        raise UserError("--workdir is required, for example --workdir=runs/NAME (or --help)")
    if FLAGS.workdir:
        keep_batch_size(FLAGS.config, argv, Path(FLAGS.workdir) / CONFIG)


def has_batch_size(argv: list[str]) -> bool:
    """Whether a flag gives the batch."""
    return any(re.match(r"--?config\.policy\.batch_size\b", word) for word in argv)


def keep_batch_size(config: ConfigDict, argv: list[str], record: Path) -> None:
    """Gives the config the batch of the workdir's `record`, which another machine may have chosen; flags come first."""
    if config.sized and not has_batch_size(argv) and record.exists() and (values := read_record(record)).get("sized"):
        config.policy.batch_size = values["policy.batch_size"]


def read_flags(file: str, argument: str | None, argv: list[str], into: flags.FlagValues) -> None:
    """Reads a config file and the flags that override its values; `into.config` is the config then."""
    argv = join_values(argv)
    for word in argv[1:]:
        if (new := current_flag(word)) != word:
            print_line(f"{clean(word)} is {clean(new)} now; the next version does not know the old one")
    argv = [argv[0], *map(current_flag, argv[1:])]
    config = load(file, argument, tables())
    known = sorted(flatten(config.to_dict()))
    for word in argv[1:]:
        match = re.match(r"--?(?:no)?config\.([^=]*)", word)
        if match and match[1] not in known:
            own = (name for name in known if name.startswith(f"{match[1]}."))
            key, near = clean(match[1], 80), next(own, None) or nearest(match[1], known)
            raise UserError(f"the config has no value {key!r} (--config.{key}); did you mean --config.{near}?")
    try:
        config_flags.DEFINE_config_dict("config", config, flag_values=into, sys_argv=argv)
        rest = into(argv)
    except (flags.Error, ValueError, TypeError) as error:
        raise UserError(clean(" ".join(str(error).split()))) from error
    if len(rest) > 1:
        raise UserError(f"unexpected argument {shown(rest[1])}: flags are written --name=value")


def join_values(argv: list[str]) -> list[str]:
    """The words `--config.NAME VALUE` as one, `--config.NAME=VALUE`, where the value is an old choice."""
    joined: list[str] = []
    for word in argv:
        before = joined[-1] if joined else ""
        whole = f"{before}={word}"
        if re.fullmatch(r"--?config\.[\w.]+", before) and current_flag(whole) != f"{current_flag(before)}={word}":
            joined[-1] = whole
        else:
            joined.append(word)
    return joined


def run_many(argv: list[str], workdir: Path) -> None:
    """Runs the experiment with all its seeds and swept values, and writes a page about all of them."""
    runs = plan(FLAGS.config.seeds, FLAGS.sweep, FLAGS.config.seed)
    runner = find_runner(experiment_of(FLAGS.config.to_dict()))
    if FLAGS.config.sized:  # once for all runs, each of which sees a part of the machine
        if (gpu := find_gpu()[0]) and runner.is_here and not has_batch_size(argv):
            each = gpus_of_each(gpu.number, min(FLAGS.config.seeds_at_once, len(runs)))
            FLAGS.config.policy.batch_size = FLAGS.config.policy.batch_size // gpu.number * each
        for one in runs:
            keep_batch_size(FLAGS.config, argv, workdir / one.folder / CONFIG)
        argv = [*argv, f"--config.policy.batch_size={FLAGS.config.policy.batch_size}"]
    stages = FLAGS.stage or list(FLAGS.config.stages)
    said = os.environ.get(CPU_DEVICES)
    for one in {one.variant: one for one in runs}.values():  # before the first has worked for hours
        check(config_of(one, argv, workdir), stages, workdir / one.folder, [workdir])
        if said is None:
            os.environ.pop(CPU_DEVICES, None)  # each run divides the CPU by its own config
    if FLAGS.dry_run:
        for one in runs:
            print_line(f"{one.folder}:")
            dry_run(config_of(one, argv, workdir), workdir / one.folder, FLAGS.stage, [workdir])
        return
    runner.run_all(runs, argv, workdir)
    if "report" in stages:
        written = import_named("motif_jax.stages.report:write_page_over_seeds")(runs, workdir, argv)
        print_line(f"report of {len(runs)} runs: {written}")


def config_of(run: PlannedRun, argv: list[str], workdir: Path) -> dict[str, Any]:
    """The values of the config of one of the runs of a command line."""
    values = flags.FlagValues()
    define_flags(values)
    file_and_argument, rest = split_config(["motif_jax", *arguments_of(run, argv, workdir)])
    assert file_and_argument is not None  # `parse` has read it
    read_flags(*file_and_argument, rest, values)
    return values.config.to_dict()


def split_config(argv: list[str]) -> tuple[tuple[str, str | None] | None, list[str]]:
    """Returns the file of --config and its argument, None without --config; and the rest. The last --config counts."""
    file_and_argument, rest, words = None, argv[:1], iter(argv[1:])
    for word in words:
        match = re.fullmatch(r"--?config(?:=(.*))?", word, re.DOTALL)
        if match:
            file, colon, argument = (next(words, "") if match[1] is None else match[1]).partition(":")
            file_and_argument = find_current(file, argument) if colon else (find_config(file), None)
        else:
            rest.append(word)
    return file_and_argument, rest


def find_current(file: str, argument: str) -> tuple[str, str]:
    """The path and the argument of a config, which may have had another name in the last minor version."""
    path = Path(find_config(file))
    new, word = current_config(path.stem, argument)
    if new == path.stem or not (path.exists() and path.samefile(shipped()[path.stem])):
        return str(path), argument
    old = f"--config={clean(file)}:{clean(argument)}"
    print_line(f"{old} is --config={new}:{clean(word)} now; the next version does not know the old one")
    return find_config(new), word


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Inside this context SIGTERM and SIGINT raise Interrupted, so that workers and shared memory are freed."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    waiting: list[threading.Timer] = []

    def stop(number: int, frame: FrameType | None) -> None:
        frames = (frame for frame, _ in traceback.walk_stack(frame))
        if any(frame.f_globals.get("__name__") == "importlib._bootstrap" for frame in frames):
            return ask_again(number)  # some C++ libraries end the process if an import is interrupted by an exception
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)  # once is enough: stages save what they have, which may take a while
        raise Interrupted(number)

    def ask_again(number: int) -> None:
        waiting.append(threading.Timer(0.05, os.kill, (os.getpid(), number)))
        waiting[-1].start()

    def reraise_ignored(ignored: Any) -> None:
        """Sends the signal again if Interrupted came up in a finaliser, as Python only reports what is raised there."""
        if not isinstance(ignored.exc_value, Interrupted):
            return report(ignored)
        for number in numbers:
            signal.signal(number, stop)
        return ask_again(ignored.exc_value.args[0])  # arrives when the finaliser is over

    before = {number: signal.signal(number, stop) for number in numbers}
    report, sys.unraisablehook = sys.unraisablehook, reraise_ignored
    try:
        yield
    except Stopped:  # all is saved, and further signals must not change the exit status
        before = dict.fromkeys(before, signal.SIG_IGN)
        raise
    except Interrupted:  # it may have ended an import, whose half-made objects have finalisers that fail
        report = lambda ignored: None  # noqa: E731
        raise
    finally:
        for timer in waiting:  # the program ended before they were due
            timer.cancel()
        sys.unraisablehook = report
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(command())

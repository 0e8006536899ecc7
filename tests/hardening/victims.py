"""Runs of `motif_jax.launch` that are killed on purpose, many of them, without a start of Python and JAX for each.

This file is also a program: a process that has imported everything (JAX included, but no device of it) and forks one
victim after another. A victim sends itself a signal just before its n-th change of a file in the workdir (found by
Python's audit events), which hits the moments in which it saves as no clock would.
"""

import importlib
import json
import mmap
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

MODULES = (  # what a victim shall not have to load first
    "stages.collect", "stages.annotate", "stages.train_reward", "stages.train_reward.fitting", "stages.train_policy",
    "stages.train_policy.loop", "stages.train_values", "stages.train_values.learning", "stages.evaluate",
    "stages.evaluate.play", "stages.report", "policies.choice",
)  # fmt: skip
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.rmtree"}
LINES = "lines"  # our own event: lines are appended to an open file
WRITING = os.O_WRONLY | os.O_RDWR


class Outcome(NamedTuple):
    """How a victim ended."""

    process: int  # its id
    status: int  # exit status; negative: killed by that signal
    changes: int  # of files in its workdir
    output: str  # standard output and standard error


class Victims:
    """Starts victims, one at a time; use as a context manager."""

    def __init__(self, root: Path):
        """`root` is the repository: relative paths in arguments are from there."""
        self._process = subprocess.Popen(
            [sys.executable, __file__], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"JAX_PLATFORMS": "cpu"} | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path])},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, workdir: Path, arguments: Sequence[str], at_change: int, number: int, constants: dict) -> Outcome:
        """Runs `launch` until it ends or, just before this change in the workdir, sends itself the signal `number`.

        `at_change` 0: never. `constants`: other values for constants, by "module.NAME" below `motif_jax`.
        """
        log = workdir.with_name(f"{workdir.name}.log")
        log.touch()
        order = {"arguments": [f"--workdir={workdir}", *arguments], "workdir": str(workdir.resolve())}
        order |= {"at_change": at_change, "number": number, "log": str(log), "constants": constants}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process that forks victims has ended"
        return Outcome(*json.loads(line), log.read_text())


# ---- the program


def serve(orders: IO[str], answers: IO[str]) -> None:
    """Forks a victim per order."""
    from motif_jax import launch

    for module in MODULES:
        importlib.import_module(f"motif_jax.{module}")
    changes = mmap.mmap(-1, 8)  # shared with the victim
    for line in orders:
        order = json.loads(line)
        changes[:] = bytes(8)
        process = os.fork()
        if process == 0:
            die_as_told(order, changes, launch)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        print(json.dumps([process, status, int.from_bytes(changes[:], "little")]), file=answers, flush=True)


def die_as_told(order: dict[str, Any], changes: mmap.mmap, launch: Any) -> None:
    """What a victim does; it never returns."""
    status = 70
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        count_changes(order["workdir"], order["at_change"], order["number"], changes)
        for path, value in order["constants"].items():
            module, _, name = path.rpartition(".")
            setattr(importlib.import_module(f"motif_jax.{module}"), name, value)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - the one it has goes to the tests
        launch.define_flags()
        sys.argv = ["motif_jax", *order["arguments"]]  # which overrides of the config are looked for in
        status = launch.main()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def count_changes(workdir: str, last: int, number: int, changes: mmap.mmap) -> None:
    """Counts changes of files in the workdir, and sends this process the signal at the `last`."""
    from motif_jax.files import LineFile

    def add(self: LineFile, *rows: Any, real: Any = LineFile.add, **options: Any) -> None:
        sys.audit(LINES, self._file.name)
        real(self, *rows, **options)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            concerned = bool(arguments[2] & WRITING)
        else:
            concerned = event in CHANGES or event == LINES
        if concerned and str(arguments[0]).startswith(workdir):
            count = int.from_bytes(changes[:], "little") + 1
            changes[:] = count.to_bytes(8, "little")
            if count == last:
                os.kill(os.getpid(), number)

    LineFile.add = add  # type: ignore[method-assign]
    sys.addaudithook(hook)


if __name__ == "__main__":
    with open(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        serve(sys.stdin, answers)

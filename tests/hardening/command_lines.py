"""A program that reads command lines, one list of JSON per line, and tells what `launch` makes of each.

Flags are defined once per process, so each line is read by a fork: of this program, which has no JAX and no threads.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from motif_jax import launch
from motif_jax.stages import NAMES, find_stage
from motif_jax.structs import UserError

NOWHERE = "/tmp/nowhere"  # where the command lines work, if nobody says otherwise
STAGES = [find_stage(name) for name in NAMES]  # here, not in every fork


def parse(arguments: list[str]) -> None:
    """As `launch` begins, with the stages' own checks."""
    sys.argv = arguments
    launch.define_flags()
    launch.parse(arguments)
    if Path(launch.FLAGS.workdir) == Path(NOWHERE):
        for stage in STAGES:
            stage.check(stage.view(launch.FLAGS.config))


def told_by_a_fork(arguments: list[str]) -> tuple[int, str]:
    """Exit status and what it tells: 0, 2 and a sentence, or 1 and a traceback."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        os.dup2(2, 1)  # --help prints
        status, told = 1, ""
        try:
            parse(arguments)
            status = 0
        except UserError as error:
            status, told = 2, f"{error}\n"
        except SystemExit as done:
            status = done.code or 0
        except BaseException:
            told = traceback.format_exc()
        finally:
            os.write(writer, told.encode("utf-8", "replace")[-4000:])
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as file:
        told = file.read().decode("utf-8", "replace")
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), told


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(told_by_a_fork(json.loads(line))), flush=True)

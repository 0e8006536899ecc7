"""The command `motif-audit`: audits a file of trajectories, without JAX and without games (docs/trajectories.md)."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from motif_jax.contrib.audit.findings import FILE, print_record, write_page
from motif_jax.contrib.audit.trajectories import NAMES, audit_file
from motif_jax.files import write_json
from motif_jax.structs import UserError
from motif_jax.system.startup import run_program, say, set_up_process

ANY = "any"


def command() -> int:
    """The console script; returns the exit status."""
    set_up_process()
    return run_program(main)


def main(argv: list[str] | None = None) -> int:
    """Writes and prints the findings; returns 1 if one of `--fail-on` is among them, 2 for a user's error."""
    parser = argparse.ArgumentParser("motif-audit", description="Is the reward right? Audits recorded trajectories.")
    parser.add_argument(
        "file",
        type=Path,
        help="JSON lines, one row per step or episode; a monitor.csv; or "
        "completions of TRL (.parquet, or their folder) or results.jsonl of verifiers",
    )
    parser.add_argument("--outcome", default="", metavar="NAME", help="a reward, metric or column: the task's result")
    parser.add_argument("--out", type=Path, help="directory of audit.json and index.html (default: FILE-audit)")
    names = ", ".join(name.replace(" ", "-") for name in NAMES)
    parser.add_argument("--fail-on", default="", metavar="FINDING,...", help=f"exit status 1 for these: any, {names}")
    chosen = parser.parse_args(argv)
    file = Path(os.path.abspath(chosen.file))  # "." has no name; a link stays what it is: its target may be another's
    folder = chosen.out or file.parent / f"{file.stem}-audit"
    try:
        failing = {name.strip().replace("-", " ") for name in chosen.fail_on.split(",") if name.strip()}
        if unknown := sorted(failing - {ANY, *NAMES}):
            raise UserError(f"there is no finding {unknown[0]!r}: choose any, {names} (--fail-on)")
        record = audit_file(chosen.file, chosen.outcome)
        write_page(folder, record)
        write_json(folder / f"{FILE}.json", record)
    except (UserError, OSError) as error:  # OSError: the folder cannot be written
        say(error)
        return 2
    print_record(record, folder / f"{FILE}.json")
    found = {one["check"] for one in record["findings"]}
    return int(bool(found if ANY in failing else found & failing))


if __name__ == "__main__":
    sys.exit(command())

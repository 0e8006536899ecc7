"""The peers' environments and processes: both have time limits, and only the end of their output is kept."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.console import clean

SCRIPTS = Path(__file__).parent
PINNED = SCRIPTS.parents[1] / "launch" / "peers"
INSTALL_S, RUN_S = 1800.0, 600.0  # time limits
KEPT = 2**16  # bytes of output
ERROR = re.compile(r"^\s*([\w.]*(Error|Exception)|ERROR)\b.*:")
# Build variables: PufferLib without its own games, whose build downloads raylib, and without its trainer's extension.
BUILD = {"NO_OCEAN": "1", "NO_TRAIN": "1", "PYTHONPATH": str(SCRIPTS / "for_build")}


class PeerError(Exception):
    """A peer cannot be installed, or its run failed; the text says why."""


def install(name: str, folder: Path) -> Path:
    """Makes the environment `folder/NAME` from launch/peers/NAME.txt, unless it exists; returns it.

    A second file NAME.source.txt has packages that are built with those of the first.
    """
    environment, files = folder.absolute() / name, [PINNED / f"{name}.txt", PINNED / f"{name}.source.txt"]
    python, stamp = environment / "bin" / "python", environment / ".motif_jax"
    wanted = "".join(file.read_text() for file in files if file.exists())
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return environment
    run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(environment)], INSTALL_S)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--no-input"]
    pip += ["install", "--progress-bar", "off", "--no-deps", "-r"]
    run([*pip, str(files[0])], INSTALL_S)
    if files[1].exists():
        run([*pip, str(files[1]), "--no-build-isolation"], INSTALL_S, BUILD)
    stamp.write_text(wanted)
    return environment


def versions_of(environment: Path) -> dict[str, str]:
    """The versions of the packages in an environment, by names such as sb3-contrib."""
    found = importlib.metadata.distributions(path=[str(path) for path in environment.glob("lib/*/site-packages")])
    return {one.name.lower().replace("_", "-"): one.version for one in found}


def measure_rate(name: str, environment: Path, task: Mapping[str, Any]) -> float:
    """Runs run_NAME.py in the peer's environment; returns the rate from its line {"rate": number}."""
    with tempfile.TemporaryDirectory() as made:  # PufferLib puts a link where it runs
        command = [str(environment / "bin" / "python"), str(SCRIPTS / f"run_{name}.py"), json.dumps(task)]
        output = run(command, RUN_S, folder=made)
    rates = [line for line in output.splitlines() if line.startswith('{"rate": ')]
    if not rates:
        raise PeerError(f"it printed no rate; its last line: {explain(output)}")
    return float(json.loads(rates[-1])["rate"])


def variables(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of a peer's process: those of this one, without those that name its Python."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return kept | dict(more or {})


def run(
    command: Sequence[str], limit_s: float, more: Mapping[str, str] | None = None, folder: str | None = None
) -> str:
    """Runs a command in a process group of its own, which is killed at the end; `folder`: where, or here.

    Returns:
      The last KEPT bytes of its output.

    Raises:
      PeerError: it fails, or does not end within `limit_s` seconds.
    """
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=variables(more),
                start_new_session=True, cwd=folder,
            )  # fmt: skip
        except OSError as error:
            raise PeerError(clean(error, 200)) from error
        status = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(max(output.seek(0, os.SEEK_END) - KEPT, 0))
        text = output.read().decode(errors="replace")
    if status is None:
        raise PeerError(f"it did not end within {limit_s:g} seconds; its last line: {explain(text)}")
    if status:
        raise PeerError(f"{explain(text)} (status {status})")
    return text


def explain(output: str) -> str:
    """The last line of output that names an error, or the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no output"]
    return clean(next((line for line in reversed(lines) if ERROR.match(line)), lines[-1]), 200)

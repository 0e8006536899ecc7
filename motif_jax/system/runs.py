"""Runs an experiment several times: with several seeds, and with several values of the config.

    --config.seeds=5                                W/seed-0 ... W/seed-4
    --config.seeds=3,7                              W/seed-3 and W/seed-7
    --sweep=policy.learning_rate=1e-4,3e-4          W/policy.learning_rate=1e-4/seed-0 ...

Each run is a separate process with its own workdir, and so resumes, is skipped and is locked as usual. The tasks of a
SLURM job array divide the runs among themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from motif_jax.console import clean, print_line
from motif_jax.files import LONGEST
from motif_jax.structs import UserError
from motif_jax.system import sizing
from motif_jax.system.meeting import whole_number

MOST_SEEDS = 1000
SEEDS_FLAG, SWEEP_FLAG = "--config.seeds", "--sweep"
LOG = "log.txt"  # the output of concurrent runs
MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"  # of a GPU's, that JAX takes
PR_SET_PDEATHSIG = 1
PATIENCE_S = 300.0  # for a run to save after a signal on a busy machine, before it is killed
T = TypeVar("T")


class PlannedRun(NamedTuple):
    """One run of the experiment."""

    variant: str  # name of the folder for the swept values; "" without a sweep
    seed: int
    overrides: tuple[str, ...]  # flags of the swept values

    @property
    def folder(self) -> str:
        """The run's workdir, relative to the experiment's."""
        return f"{self.variant}/seed-{self.seed}".lstrip("/")


def parse_seeds(text: str) -> list[int]:
    """Parses seeds: `5` -> [0, 1, 2, 3, 4]; `3,7` -> [3, 7]; "" -> []."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    numbers = [int(word) for word in words if re.fullmatch(r"[0-9]{1,18}", word)]
    if len(numbers) < len(words) or (len(words) == 1 and not 1 <= numbers[0] <= MOST_SEEDS):
        raise UserError(
            f"give a number of seeds from 1 to {MOST_SEEDS:,}, or seeds, as in 3,7; not {clean(text, 40)!r} "
            f"({SEEDS_FLAG})"
        )
    return list(range(numbers[0])) if len(numbers) == 1 else list(dict.fromkeys(numbers))


def parse_sweep(text: str) -> tuple[str, list[str]]:
    """Parses `policy.learning_rate=1e-4,3e-4` into name and values; semicolons separate values that contain commas."""
    name, equals, rest = text.partition("=")
    values = [value.strip() for value in rest.split(";" if ";" in rest else ",")]
    if not name or not equals or not all(values) or "/" in rest:  # values name folders
        raise UserError(
            "write NAME=VALUE,VALUE, as in policy.learning_rate=1e-4,3e-4, without a slash, not "
            f"{clean(text, 80)!r} ({SWEEP_FLAG})"
        )
    return name, list(dict.fromkeys(values))


def plan(seeds: str, sweeps: Sequence[str], seed: int) -> list[PlannedRun]:
    """All runs: each combination of the swept values, with each of the config's `seeds`, or with `seed` alone."""
    axes = [parse_sweep(text) for text in sweeps]
    names = [name for name, _ in axes]
    if len(set(names)) < len(names):
        raise UserError(f"{clean(max(names, key=names.count), 80)} is swept twice ({SWEEP_FLAG})")
    if {"seed", "seeds"} & set(names):
        raise UserError(f"several seeds are asked for by {SEEDS_FLAG}=5, not by {SWEEP_FLAG}")
    numbers = parse_seeds(seeds) or [seed]
    runs = []
    for values in itertools.product(*(values for _, values in axes)):
        pairs = [f"{name}={value}" for name, value in zip(names, values, strict=True)]
        flags = tuple(f"--config.{pair}" for pair in pairs)
        runs += [PlannedRun(",".join(pairs), number, flags) for number in numbers]
    if max(len(os.fsencode(run.variant)) for run in runs) > LONGEST:
        raise UserError(f"the folders of these runs would have names of more than {LONGEST} bytes ({SWEEP_FLAG})")
    return runs


def share_of_job(runs: Sequence[PlannedRun], environment: Mapping[str, str]) -> list[PlannedRun]:
    """The runs of this task of a SLURM job array, every n-th one; raises UserError if the array has gaps."""

    def number_of(part: str, otherwise: str = "") -> int:
        name = f"SLURM_ARRAY_TASK_{part}"
        return whole_number(name, environment.get(name) or otherwise, f"{SEEDS_FLAG}, {SWEEP_FLAG}")

    count = number_of("COUNT", "1")
    if count <= 1:
        return list(runs)
    number, first, step = map(number_of, ("ID", "MIN", "STEP"))
    place, rest = divmod(number - first, max(step, 1))
    if rest or not 0 <= place < count:
        raise UserError(
            f"give the job array numbers in a row, as in --array=0-{count - 1}, without SLURM_ARRAY_TASK_ID={number} "
            f"({SEEDS_FLAG}, {SWEEP_FLAG})"
        )
    return list(runs)[place::count]


def arguments_of(run: PlannedRun, argv: Sequence[str], workdir: Path) -> list[str]:
    """The command line of one run, derived from the experiment's."""
    words, kept = iter(argv), []
    for word in words:
        match = re.match(r"--?(?:sweep|workdir|config\.seeds)(=|$)", word)
        if match is None:
            kept.append(word)
        elif not match[1]:
            next(words, "")  # its value
    own = [f"--workdir={workdir / run.folder}", f"--config.seed={run.seed}", f"{SEEDS_FLAG}="]
    return [*kept, *run.overrides, *own]


class Runner:
    """Plays the runs of an experiment on this machine. Those of plugins (`Plugin.runners`) play them elsewhere."""

    is_here = True  # on the devices of this machine

    def __init__(self, at_once: int):
        self._at_once = at_once

    def run_all(self, runs: Sequence[PlannedRun], argv: Sequence[str], workdir: Path) -> None:
        """Plays all runs; raises UserError at the end if some failed. `argv`: as in the function `run_all`."""
        run_all(share_of_job(runs, os.environ), argv, workdir, self._at_once)


def run_all(runs: Sequence[PlannedRun], argv: Sequence[str], workdir: Path, at_once: int) -> None:
    """Runs the experiment's runs as processes; raises UserError at the end if some failed.

    `argv`: the command line of the experiment, without the program's name. `at_once`: number of concurrent runs, each
    on its part of the cores and of the GPUs. With several, each writes its output to LOG.
    """
    cores = sorted(os.sched_getaffinity(0))
    at_once = min(at_once, len(runs), len(cores))
    parts, variables = divide(cores, at_once), divide_gpus(sizing.list_gpus(), at_once)
    waiting, failed = list(enumerate(runs, 1)), []
    playing: dict[int, tuple[PlannedRun, subprocess.Popen[bytes]]] = {}  # by the part of the cores
    try:
        while waiting or playing:
            for place in range(at_once):
                if place not in playing and waiting:
                    number, run = waiting.pop(0)
                    print_line(f"run {number} of {len(runs)}: {run.folder}")
                    playing[place] = run, start(run, argv, workdir, parts[place], variables[place], at_once > 1)
            for place, (run, process) in list(playing.items()):
                status = process.poll()
                if status is not None:
                    del playing[place]
                    if status:
                        log = f", see {str(workdir / run.folder / LOG)!r}" if at_once > 1 else ""
                        failed.append(f"{run.folder} (status {status}{log})")
            time.sleep(0.1)
    finally:
        end([process for _, process in playing.values()])
    check_all(runs, failed)


def check_all(runs: Sequence[PlannedRun], failed: Sequence[str]) -> None:
    """Raises UserError if some of the runs have failed, with their names and reasons."""
    if failed:
        raise UserError(
            f"{len(failed)} of {len(runs)} runs failed: {', '.join(failed)}; run the same command again to resume"
        )


def divide(things: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Divides things among `parts`, in order; parts share a thing where there are fewer things than parts."""
    bounds = [at * len(things) // parts for at in range(parts + 1)]
    return [things[first : max(end, first + 1)] for first, end in itertools.pairwise(bounds)]


def divide_gpus(gpus: Sequence[str], runs: int) -> list[dict[str, str]]:
    """The environment variables that give each of some concurrent runs its GPUs, or its share of one's memory."""
    if len(gpus) < 2 or runs == 1:
        return [memory_share(1 / runs)] * runs
    share, each = memory_share(1 / -(-runs // len(gpus))), gpus_of_each(len(gpus), runs)
    parts = divide(gpus[: each * runs], runs)  # all runs get the same number
    # What a script has found out about all of the GPUs does not hold for a part of them.
    return [share | {"CUDA_VISIBLE_DEVICES": ",".join(own), sizing.KNOWN: ""} for own in parts]


def gpus_of_each(gpus: int, runs: int) -> int:
    """The number of GPUs of each of some concurrent runs; 1 if some share one."""
    return max(gpus // runs, 1)


def memory_share(share: float) -> dict[str, str]:
    """The environment variable that gives a run a share of the memory that JAX takes of a GPU: 75 % of all."""
    return {MEMORY: os.environ.get(MEMORY) or f"{0.75 * share:.3f}"}


def start(
    run: PlannedRun, argv: Sequence[str], workdir: Path, cores: Sequence[int], variables: Mapping[str, str], log: bool
) -> subprocess.Popen[bytes]:
    """Starts a run on some cores, with these environment variables; with `log`, its output goes to LOG."""
    folder = workdir / run.folder
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "motif_jax.launch", *arguments_of(run, argv, workdir)]
    environment = os.environ | variables

    def prepare() -> None:
        os.sched_setaffinity(0, cores)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # which the kernel sends when the parent ends

    with open(folder / LOG, "a") if log else contextlib.nullcontext() as file:
        # In a new session, so that a signal from the terminal arrives once, through this process.
        streams = {"stdout": file, "stderr": subprocess.STDOUT if log else None}
        return subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=prepare, **streams)  # type: ignore[call-overload]


def end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Asks processes to save and end; after PATIENCE_S kills them."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

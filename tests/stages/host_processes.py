"""Processes that are the hosts of one run, on loopback."""

import subprocess
import sys
from pathlib import Path

from conftest import ROOT, free_port, wait_for

from motif_jax.files import read_lines

ONE_HOST = Path(__file__).with_name("one_host.py")
TINY = {
    "network": "small", "intrinsic_coefficient": 0.0, "num_workers": 1, "games_per_worker": 4, "rollout_length": 8,
    "batch_size": 64, "warmup_steps": 0, "tensorboard": False, "log_every_s": 0.2,
    "sources": "rnd:0.1,online:0.1",  # which learn on all hosts, too
}  # fmt: skip


def address() -> str:
    return f"127.0.0.1:{free_port()}"


def start(*arguments) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(ONE_HOST), *map(str, arguments)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def flags(workdir, **values) -> list[str]:
    policy = [f"--config.policy.{name}={value}" for name, value in (TINY | values).items()]
    return ["--config=configs/motif.py:toy", f"--workdir={workdir}", *policy]


def ended(processes: list[subprocess.Popen]) -> list[tuple[int, str, str]]:
    try:
        outputs = [process.communicate() for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *words) for process, words in zip(processes, outputs, strict=True)]


def finished(process: subprocess.Popen, wanted: int = 0) -> tuple[str, str]:
    """Its output and errors; its status must be this."""
    ((status, output, errors),) = ended([process])
    assert status == wanted, errors
    return output, errors


def rows_of(workdir) -> list[dict]:
    file = workdir / "policy/metrics.jsonl"
    return list(read_lines(file)) if file.exists() else []


def wait_for_rows(workdir, count: int, processes=()) -> None:
    def have_come() -> bool:
        ended_early = [process for process in processes if process.poll() is not None]
        enough = len(rows_of(workdir)) >= count  # also if they have ended since
        assert enough or not ended_early, ended_early[0].communicate()
        return enough

    wait_for(have_come)

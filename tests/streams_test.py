"""Standard streams that are closed, full, gone or ASCII, and signals from the first moment on."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT

PROGRAM = (sys.executable, "-m", "motif_jax.launch")
SMALL = (
    "--config=configs/quickstart.py:toy", "--config.collect.num_pairs=20", "--config.collect.collector=random",
    "--config.collect.num_workers=0",
)  # fmt: skip
STAGES = "--stage=collect,annotate,report"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def start(*arguments, redirected="", env=None, **streams) -> subprocess.Popen:
    command = ["bash", "-c", f'exec "$@" {redirected}', "bash", *PROGRAM, *map(str, arguments)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | (env or {}), text=True, **streams)


def test_closed_streams_become_nobodys_files(tmp_path):
    process = start(*SMALL, STAGES, f"--workdir={tmp_path / 'run'}", redirected="<&- >&- 2>&-")
    assert process.wait() == 0
    files = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert len(files) > 10
    assert not [file for file in files if b"collect: " in file.read_bytes()]


@pytest.mark.parametrize("asked", ["--help", STAGES])
def test_a_reader_that_is_gone_is_a_quiet_end(tmp_path, asked):
    process = start(*SMALL, f"--workdir={tmp_path}", asked)
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait() == 128 + signal.SIGPIPE
    assert not [line for line in errors.splitlines() if not re.search(r": [\d,]+ of [\d,]+ \w+", line)], errors


def test_a_full_output_is_one_sentence(tmp_path):
    process = start(*SMALL, STAGES, f"--workdir={tmp_path}", redirected="> /dev/full")
    _, errors = process.communicate()
    assert process.returncode == 2
    sentence = "motif_jax: No space left on device for standard output (redirect it to another place)"
    assert errors.splitlines()[-1] == sentence
    assert "Traceback" not in errors


def test_ascii_output_takes_every_name(tmp_path):
    workdir = tmp_path / "Übung-日本"
    process = start(*SMALL, STAGES, f"--workdir={workdir}", env=ASCII)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert (workdir / "report/index.html").is_file()
    assert "report: " in output
    assert (output + errors).isascii()
    process = start(*SMALL, "--stage=collect,Übung", f"--workdir={workdir}", env=ASCII)
    _, errors = process.communicate()
    assert process.returncode == 2
    assert errors.startswith("motif_jax: unknown stage ")
    assert errors.count("\n") == 1


def test_signals_during_the_start(tmp_path):
    """Most of it is imports, of JAX too, which make of an exception whatever they like."""
    rng = random.Random(0)
    arguments = (*SMALL, "--stage=visualize", f"--workdir={tmp_path / 'run'}")
    for _ in range(3):
        number = rng.choice([signal.SIGINT, signal.SIGTERM])
        process = subprocess.Popen([*PROGRAM, *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not listens(process.pid):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 1.0))
        process.send_signal(number)
        _, errors = process.communicate()
        lines = errors.splitlines()
        if lines and "there is no policy in " in lines[0]:  # it was there before the signal
            assert process.returncode in (2, 128 + number, -number)
            del lines[0]
        else:
            assert process.returncode == 128 + number, errors
            assert lines
        assert lines in ([], ["motif_jax: stopped; run the same command again to resume"])


def listens(process: int) -> bool:
    """Whether it has a handler for SIGTERM: from then on it is the program's own."""
    found = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    return bool(found and int(found[1], 16) >> (signal.SIGTERM - 1) & 1)

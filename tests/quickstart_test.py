"""The script for one machine, with a stand-in for Python."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYTHON = """#!/usr/bin/env bash
echo "$*" >> {log}
for argument in "$@"; do
  case $argument in --workdir=*) mkdir -p "${{argument#*=}}/report"; {deed} ;; esac
done
"""
REPORTS = 'touch "${argument#*=}/report/index.html"'
STAMP = 'printf "dev $PWD $(cat setup.cfg pyproject.toml launch/constraints.txt | cksum)"'  # as environment.sh has it


def quickstart(tmp_path, *arguments, deed=REPORTS, workdir="a b"):
    """Runs it in `tmp_path`; gives what has run, and how `python` was called."""
    venv, log = tmp_path / "venv", tmp_path / "log"
    (venv / "bin").mkdir(parents=True)
    python = venv / "bin/python"
    python.write_text(PYTHON.format(log=shlex.quote(str(log)), deed=deed))
    python.chmod(0o755)
    (venv / ".motif_jax").write_bytes(subprocess.run(["bash", "-c", STAMP], cwd=ROOT, stdout=-1, check=True).stdout)
    env = {name: value for name, value in os.environ.items() if name != "VENV"}
    env |= {"VIRTUAL_ENV": str(venv), "WORKDIR": workdir, "PATH": f"{venv / 'bin'}:{env['PATH']}"}
    command = ["env", "--default-signal=INT", "bash"]  # a shell cannot trap what was ignored when it began
    command += [str(ROOT / "launch/quickstart.sh"), *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    return done, log.read_text().splitlines() if log.exists() else []


@pytest.mark.quick
def test_it_runs_one_goal_after_the_other(tmp_path):
    done, calls = quickstart(tmp_path, "--goal=gold,combat", "--config.seed=3")
    assert done.returncode == 0, done.stderr
    for call, goal in zip(calls, ("gold", "combat"), strict=True):
        assert f"--workdir={tmp_path / 'a b'}-{goal} --config.annotate.goal={goal} --config.seed=3" in call
    assert f"--workdir={tmp_path}/a\\ b-combat " in done.stdout  # fit for a shell
    assert f"WORKDIR={tmp_path}/a\\ b bash launch/quickstart.sh" in done.stdout
    assert f"The report: file://{tmp_path}/a%20b-combat/report/index.html" in done.stdout


@pytest.mark.quick
@pytest.mark.parametrize(("deed", "status"), [("kill -INT $PPID", 130), ("kill -TERM $PPID", 143), (":", 1)])
def test_when_it_is_stopped_no_other_goal_begins(tmp_path, deed, status):
    """The program itself ends with status 0 then."""
    done, calls = quickstart(tmp_path, "--goal=gold,combat", deed=deed)
    assert done.returncode == status
    assert len(calls) == 1
    assert "The report:" not in done.stdout
    assert ("stopped; give the same command again to go on" in done.stderr) == (status == 1)


@pytest.mark.quick
def test_stages_that_are_asked_for_need_no_report(tmp_path):
    done, calls = quickstart(tmp_path, "--goal=gold,combat", "--stage=collect", deed=":")
    assert done.returncode == 0
    assert len(calls) == 2
    assert "The report" not in done.stdout


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "workdir", "said"),
    [
        (["--goal=golf"], "w", "unknown goal 'golf'"),
        (["--goal=gold,"], "w", "an empty goal"),
        (["--goal=find the princess"], "w", "in your own words needs a real language model"),
        (["--goal=gold", "--goal=combat"], "w", "--goal was given twice"),
        (["--workdir=x"], "w", "WORKDIR=elsewhere"),
        (["--config=configs/motif.py"], "w", "is not for this script"),
        ([], "a,b", "has a comma"),
    ],
)
def test_it_refuses_what_it_cannot_do_before_anything_runs(tmp_path, arguments, workdir, said):
    done, calls = quickstart(tmp_path, *arguments, workdir=workdir)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not calls

"""The script that trains for long and evaluates by published rules, with a stand-in for Python."""

import shlex

import pytest
from conftest import ROOT, write_programs
from scripts_test import run

pytestmark = pytest.mark.quick
LONG = """
case "$*" in *motif_jax.system.sizing) echo {device}; exit ;; esac
echo "$*" >> {log}
exit {status}
"""


@pytest.mark.parametrize(("device", "status", "arguments", "launched", "ends"), [
    ("gpu", 0, (), 3, 0),
    ("cpu", 0, ("--dry_run",), 3, 0),
    ("cpu", 0, (), 0, 2),
    ("gpu", 124, (), 1, 0),  # the time of a part is over
    ("gpu", 2, (), 1, 2),
])  # fmt: skip
def test_a_long_training_and_its_evaluations_run_in_parts(tmp_path, device, status, arguments, launched, ends):
    log = shlex.quote(str(tmp_path / "log"))
    write_programs(tmp_path / "bin", {"python": LONG.format(device=device, status=status, log=log)})
    command = ["bash", ROOT / "motif_jax/contrib/protocols/launch/long.sh", "--config.seed=3", *arguments]
    done, calls = run(command, tmp_path, ends, PYTHON=tmp_path / "bin/python", WORKDIR="run")
    assert len(calls) == launched
    for call, rules in zip(calls, ("train_policy,evaluate", "balrog_nethack", "challenge"), strict=False):
        assert f"--workdir={tmp_path}/run --config=configs/quickstart.py:score,gpu " in call
        assert rules in call
        assert "--config.seed=3" in call
    assert ("this part is over: the same command goes on" in done.stdout) == (status == 124)

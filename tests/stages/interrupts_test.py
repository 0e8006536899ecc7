import contextlib
import signal
import subprocess
import sys

import pytest
from conftest import ROOT
from train_policy_test import TINY

from motif_jax.files import checkpoint_steps

# The program, but its checkpoints after the first wait for a line of input. They ask for it ten times a second, because
# Python handles a signal that comes just before a blocking read only after that read.
PROGRAM = """
import os
import select
import sys
from motif_jax.devices import checkpoints
from motif_jax.system import startup
startup.set_up_process()
from motif_jax import launch

def save(self, step, *rest, real=checkpoints.Checkpoints.save, **more):
    if step:
        print("saving", step, flush=True)
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            pass
        os.read(0, 1)
    real(self, step, *rest, **more)

checkpoints.Checkpoints.save = save
sys.exit(launch.command())
"""
VALUES = TINY | {"train_for_env_steps": 10**9, "save_every_steps": 128}


class Run:
    def __init__(self, workdir):
        flags = [f"--config.policy.{name}={value}" for name, value in VALUES.items()]
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "--config=configs/motif.py:toy", f"--workdir={workdir}",
             "--stage=train_policy", *flags],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._checkpoints = workdir / "policy/checkpoints"

    def wait_for(self, words):
        """The first line with these words; an end of the output without them fails."""
        for line in self._process.stdout:
            if words in line:
                return line
        raise AssertionError(f"ended without {words!r}")

    def interrupt(self, words):
        self._process.send_signal(signal.SIGINT)
        return self.wait_for(words)

    def go_on(self):
        """Lets all checkpoints be written; returns the exit status, and what else is said."""
        with contextlib.suppress(BrokenPipeError), self._process.stdin as lines:
            lines.write("\n" * 100)
        output = self._process.stdout.read()  # `communicate` would lose lines that were read ahead
        return self._process.wait(), output

    @property
    def saved(self):
        return max(checkpoint_steps(self._checkpoints), default=0)


@pytest.mark.parametrize("waits", [True, False])
def test_a_second_interrupt_waits_for_the_save_and_a_third_says_what_is_lost(tmp_path, waits):
    run = Run(tmp_path)
    number = int(run.wait_for("saving").split()[-1])
    run.interrupt("SIGINT: stopping as soon as the training state is saved")
    run.interrupt(f"waiting until {number - run.saved:,} steps are saved; one more Ctrl-C ends")
    if waits:
        status, output = run.go_on()
        assert status == 0, output
        assert f"stopped by SIGINT after {run.saved:,} steps, which are saved; run the same command" in output
        assert run.saved >= number
        assert "lost" not in output
        return
    run.interrupt(f"{number - run.saved:,} steps were not saved and are lost")
    assert run.go_on() == (128 + signal.SIGINT, "motif_jax: stopped; run the same command again to resume\n")
    assert run.saved < number
    again = Run(tmp_path)  # the same command goes on
    assert int(again.wait_for("saving").split()[-1]) > run.saved
    again.interrupt("stopping as soon as")
    assert again.go_on()[0] == 0

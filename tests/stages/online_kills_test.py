"""Trainer and judge are killed again and again, and the run ends as one that nobody disturbed."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT
from online_test import arrays
from train_policy_test import assert_equal_to_the_bit

from motif_jax.files import read_lines

KILLS = 4
STEPS = 4800
FLAGS = {
    "env.max_episode_steps": 60, "annotate.judge.delay_s": 0.0, "policy.sources": "online:0.5",
    "policy.network": "small", "policy.num_workers": 0, "policy.games_per_worker": 8, "policy.rollout_length": 8,
    "policy.batch_size": 64, "policy.groups": 2, "policy.warmup_steps": 0, "policy.tensorboard": False,
    "policy.synchronous": True, "policy.train_for_env_steps": STEPS, "policy.train_for_seconds": 0.0,
    "policy.save_every_steps": 320, "policy.online.labels_per_1000_steps": 10.0,
}  # fmt: skip


def start(workdir, cache):
    flags = [f"--config.{name}={value}" for name, value in (FLAGS | {"annotate.cache_dir": cache}).items()]
    command = [sys.executable, "-m", "motif_jax.launch", "--config=configs/oni_quickstart.py", f"--workdir={workdir}"]
    return subprocess.Popen([*command, "--stage=train_policy", *flags], cwd=ROOT, stdout=subprocess.DEVNULL)


def judges_of(trainer: int) -> list[int]:
    """The processes of the trainer's judge."""
    found = subprocess.run(["pgrep", "-P", str(trainer), "-f", "judge_server"], capture_output=True, text=True)
    return [int(number) for number in found.stdout.split()]


def opinions(workdir):
    kept = ("env_steps", "caption", "yes", "goal", "by", "attempt")
    return [{name: row[name] for name in kept} for row in read_lines(workdir / "policy/opinions.jsonl")]


def rows(workdir):
    file = workdir / "policy/opinions.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def disturb(workdir, trainer, judge_at, trainer_at):
    """Kills the judge when there are so many answers, and then the trainer; returns whether these were alive."""
    killed = {"trainer": False, "judge": False}
    while trainer.poll() is None and not killed["trainer"]:
        if rows(workdir) >= judge_at and not killed["judge"]:
            for judge in judges_of(trainer.pid):
                os.kill(judge, signal.SIGKILL)
                killed["judge"] = True
        if rows(workdir) >= trainer_at:
            trainer.kill()
            killed["trainer"] = True
        time.sleep(0.02)
    trainer.wait()
    return killed


@pytest.mark.slow
def test_a_run_with_many_kills_ends_as_one_without(tmp_path):
    assert start(tmp_path / "straight", tmp_path / "one").wait() == 0
    chance, kills = random.Random(3), {"trainer": 0, "judge": 0}
    for _ in range(KILLS):
        answers = rows(tmp_path / "killed") + chance.randint(1, 8)
        trainer = start(tmp_path / "killed", tmp_path / "other")
        for name, was in disturb(tmp_path / "killed", trainer, answers, answers + chance.randint(0, 3)).items():
            kills[name] += was
    assert start(tmp_path / "killed", tmp_path / "other").wait() == 0
    assert kills["trainer"] > KILLS / 2
    assert kills["judge"]
    assert_equal_to_the_bit(arrays(tmp_path / "killed"), arrays(tmp_path / "straight"))
    assert opinions(tmp_path / "killed") == opinions(tmp_path / "straight")

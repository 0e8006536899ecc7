"""Trainer and judge are killed again and again, and what is learnt is what runs learn that end where these went on."""

import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT, get_config, run_stage
from online_test import arrays
from train_policy_test import assert_equal_to_the_bit

from motif_jax.files import read_lines
from motif_jax.stages import train_policy

KILLS = int(os.environ.get("KILLS", "2"))  # 20 take some minutes
STEPS = 320 * (3 * KILLS + 1)
VALUES = {
    "env.max_episode_steps": 60, "annotate.judge.delay_s": 0.0, "policy.sources": "online:0.5",
    "policy.network": "small", "policy.num_workers": 0, "policy.games_per_worker": 8, "policy.rollout_length": 8,
    "policy.batch_size": 64, "policy.groups": 2, "policy.warmup_steps": 0, "policy.tensorboard": False,
    "policy.synchronous": True, "policy.train_for_seconds": 0.0, "policy.save_every_steps": 320,
    "policy.online.labels_per_1000_steps": 10.0,
}  # fmt: skip


def start(workdir):
    """The whole training, in a process of its own."""
    values = VALUES | {"annotate.cache_dir": f"{workdir}.answers", "policy.train_for_env_steps": STEPS}
    flags = [f"--config.{name}={value}" for name, value in values.items()]
    command = [sys.executable, "-m", "motif_jax.launch", "--config=configs/oni_quickstart.py", f"--workdir={workdir}"]
    with open(f"{workdir}.log", "ab") as log:
        return subprocess.Popen([*command, "--stage=train_policy", *flags], cwd=ROOT, stdout=log)


def train(workdir, steps):
    """Training to this number of steps, here, which nobody disturbs."""
    config = get_config("oni_quickstart.py", "reward_free,retrieval")
    own = {"annotate.cache_dir": f"{workdir}.answers", "policy.train_for_env_steps": steps}
    config.update_from_flattened_dict(VALUES | own)
    run_stage(train_policy, config, workdir)


def judges_of(trainer: int) -> list[int]:
    """The processes of the trainer's judge."""
    listed = subprocess.run(["pgrep", "-P", str(trainer), "-f", "contrib.judge.server"], capture_output=True, text=True)
    return [int(number) for number in listed.stdout.split()]


def num_answers(workdir):
    file = workdir / "policy/opinions.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def disturb(workdir, trainer, judge_at, trainer_at):
    """Kills the judge when there are so many answers, and then the trainer; returns whether these were alive."""
    killed = {"trainer": False, "judge": False}
    while trainer.poll() is None and not killed["trainer"]:
        answers = num_answers(workdir)
        if answers >= judge_at and not killed["judge"]:
            for judge in judges_of(trainer.pid):
                os.kill(judge, signal.SIGKILL)
                killed["judge"] = True
        if answers >= trainer_at:
            trainer.kill()
            killed["trainer"] = True
        time.sleep(0.02)
    trainer.wait()
    return killed


def opinions(workdir):
    kept = ("env_steps", "caption", "yes", "goal", "by", "attempt")
    return [{name: row[name] for name in kept} for row in read_lines(workdir / "policy/opinions.jsonl")]


@pytest.mark.slow
def test_a_run_with_many_kills_learns_what_runs_do_that_end_where_it_went_on(tmp_path):
    """All games begin anew where a run goes on, so it is compared with runs that end there."""
    workdir, other = tmp_path / "killed", tmp_path / "undisturbed"
    chance, kills = random.Random(3), {"trainer": 0, "judge": 0}
    for _ in range(KILLS):
        answers = num_answers(workdir) + chance.randint(4, 8)
        for name, was in disturb(workdir, start(workdir), answers, answers + chance.randint(0, 3)).items():
            kills[name] += was
    assert start(workdir).wait() == 0
    assert kills["trainer"] >= 2
    assert kills["judge"]
    printed = (tmp_path / "killed.log").read_text()
    begun = {int(steps.replace(",", "")) for steps in re.findall(r"going on after ([\d,]+) steps", printed)}
    assert begun
    for steps in (*sorted(begun), STEPS):
        train(other, steps)
    assert_equal_to_the_bit(arrays(workdir), arrays(other))
    assert opinions(workdir) == opinions(other)

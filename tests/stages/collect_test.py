import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import ROOT, bytes_of, get_config, run_stage, worker_processes

from motif_jax.preferences.store import PairDataset
from motif_jax.stages import collect

SMALL = {"collect__num_pairs": 2000, "env__max_episode_steps": 250}


def collected(workdir, **values):
    run_stage(collect, get_config("quickstart.py", **SMALL | values), workdir)
    return workdir


def facts(workdir) -> dict:
    files = bytes_of(workdir / "dataset")
    return {name: hashlib.sha256(files[name]).hexdigest() for name in files if name.endswith((".npy", "dataset.json"))}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The dataset that every other way of collecting must arrive at."""
    return collected(tmp_path_factory.mktemp("undisturbed"))


def test_the_dataset_does_not_depend_on_who_played(undisturbed, tmp_path):
    collected(tmp_path, collect__num_workers=0, collect__games_per_worker=1, collect__rollout_length=50)
    assert facts(tmp_path) == facts(undisturbed)


@pytest.mark.journey
def test_killed_workers_change_nothing(undisturbed, tmp_path):
    few = SMALL | {"collect__num_workers": 2, "collect__games_per_worker": 2}
    command = [sys.executable, "-m", "motif_jax.launch", "--config=configs/quickstart.py", "--stage=collect"]
    command += [f"--workdir={tmp_path}", *(f"--config.{name.replace('__', '.')}={few[name]}" for name in few)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    rng = np.random.default_rng(0)
    kills = 0
    while process.poll() is None and kills < 5:
        for pid in list(worker_processes(process.pid))[:1]:
            with contextlib.suppress(ProcessLookupError):  # the run has just ended
                os.kill(pid, signal.SIGKILL)
            kills += 1
            time.sleep(float(rng.uniform(0.2, 0.5)))
    assert process.wait() == 0, process.stderr.read()
    assert kills >= 1
    assert facts(tmp_path) == facts(undisturbed)


def test_one_slow_game_does_not_fill_the_memory(tmp_path, monkeypatch):
    """All others wait when too much is finished ahead of it, and go on when it is done."""
    monkeypatch.setattr(collect, "MAX_WAITING_BYTES", 20_000)
    monkeypatch.setenv("SLOW_EPISODE", "5")
    config = get_config(argument="faulty_games:SlowOnce")
    config.collect.update({"num_pairs": 3000, "collector": "random", "num_workers": 2, "rollout_length": 16})
    waiting = most = 0

    def size(episodes):
        return sum(array.nbytes for steps in episodes for array in steps.values())

    class Watched(collect.Pieces):
        def take(self, *rollout):
            nonlocal waiting, most
            finished = super().take(*rollout)
            waiting += size(steps for _, steps in finished)
            most = max(most, waiting)
            return finished

    def watched(*arguments, real=collect.play_in_order):
        nonlocal waiting
        for ready in real(*arguments):
            waiting -= size(episode.steps for episode in ready)
            yield ready

    monkeypatch.setattr(collect, "Pieces", Watched)
    monkeypatch.setattr(collect, "play_in_order", watched)
    run_stage(collect, config, tmp_path)
    assert len(PairDataset(tmp_path / "dataset")) == 3000
    # Of each of 2 * 4 games, an episode of 50 steps may end in one of 2 slots of 16 steps that are on their way, at 368
    # bytes a step. Unbounded, it would be the 2.5 seconds of everybody else that the slow episode takes: some 40 MB.
    assert 0 < most < 20_000 + 2 * 4 * (50 + 2 * 16) * 368


def test_the_screen_can_be_kept(tmp_path):
    collected(tmp_path, collect__num_pairs=50, collect__save_screen=True, collect__segment_length=3)
    dataset = PairDataset(tmp_path / "dataset")
    assert dataset.data["tty_chars"].shape == dataset.data["tty_colors"].shape == (50, 2, 3, 24, 80)
    for pair in range(0, 50, 7):  # the message stands on the screen's first line
        text = bytes(dataset.data["message"][pair, 0, 0]).rstrip(b"\0 ")
        assert bytes(dataset.data["tty_chars"][pair, 0, 0, 0]).startswith(text[:70])

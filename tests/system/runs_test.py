import itertools
import json
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT, write_programs

from motif_jax.system.runs import parse_seeds, parse_sweep, plan


@pytest.mark.quick
def test_seeds_are_a_number_of_them_or_a_list():
    assert parse_seeds("3") == [0, 1, 2]
    assert parse_seeds("7, 3") == [7, 3]
    assert parse_seeds("3, 03") == [3]
    assert parse_seeds("") == []


@pytest.mark.quick
def test_a_sweep_has_a_run_for_each_combination_and_seed():
    runs = plan("2", ["policy.learning_rate=1e-4,3e-4", "env.task=score;oracle"], 9)
    assert [run.folder for run in runs] == [
        f"policy.learning_rate={rate},env.task={task}/seed-{seed}"
        for rate, task, seed in itertools.product(("1e-4", "3e-4"), ("score", "oracle"), (0, 1))
    ]
    assert runs[2].overrides == ("--config.policy.learning_rate=1e-4", "--config.env.task=oracle")
    assert [run.folder for run in plan("", ["seed_name=1"], 9)] == ["seed_name=1/seed-9"]
    assert parse_sweep("stages=('collect',);('report',)") == ("stages", ["('collect',)", "('report',)"])


TOY = ("--config=configs/quickstart.py:toy", "--config.collect.num_workers=0", "--config.collect.num_pairs=50",
       "--stage=collect", "--config.seeds=2")  # fmt: skip


def test_each_seed_has_a_workdir_and_the_same_command_skips_what_is_done(launch, tmp_path):
    command = (*TOY, f"--workdir={tmp_path}", "--sweep=collect.segment_length=2")
    launch(*command, status=0)
    folders = [tmp_path / f"collect.segment_length=2/seed-{seed}" for seed in (0, 1)]
    found = [json.loads((folder / "config.json").read_text()) for folder in folders]
    assert [(one["seed"], one["collect"]["segment_length"]) for one in found] == [(0, 2), (1, 2)]
    assert all((folder / "dataset" / "dataset.json").is_file() for folder in folders)
    launch(*command, "--config.seeds_at_once=2", status=0)
    assert all("skipped" in (folder / "log.txt").read_text() for folder in folders)


RUN_ALL = """
import os, sys
from pathlib import Path
from motif_jax.system.runs import plan, run_all
os.sched_getaffinity, os.sched_setaffinity = lambda _: range(8), lambda *_: None  # this machine may have fewer cores
sys.executable = sys.argv[1]
run_all(plan("4", [], 0), ["--workdir=x"], Path(sys.argv[2]), int(sys.argv[3]))
"""


@pytest.mark.quick
@pytest.mark.parametrize(("gpus", "at_once", "given"), [
    (4, 4, {("G0", 0.75), ("G1", 0.75), ("G2", 0.75), ("G3", 0.75)}),
    (4, 2, {("G0,G1", 0.75), ("G2,G3", 0.75)}),
    (4, 3, {("G0", 0.75), ("G1", 0.75), ("G2", 0.75)}),  # all get the same
    (2, 4, {("G0", 0.375), ("G1", 0.375)}),  # two runs share one
    (1, 2, {("all", 0.375)}),
    (4, 1, {("all", 0.75)}),
])  # fmt: skip
def test_concurrent_runs_divide_the_gpus(tmp_path, monkeypatch, gpus, at_once, given):
    listed = "\n".join(f"G{number}" for number in range(gpus))
    write_programs(tmp_path / "bin", {
        "nvidia-smi": f"echo '{listed}'",
        "python": f'echo "${{CUDA_VISIBLE_DEVICES-all}} $XLA_PYTHON_CLIENT_MEM_FRACTION" >> {tmp_path}/given',
    })  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        monkeypatch.delenv(name, raising=False)
    command = [sys.executable, "-c", RUN_ALL, tmp_path / "bin/python", tmp_path / "runs", str(at_once)]
    subprocess.run(command, cwd=ROOT, check=True)  # in a process without threads, as it forks
    rows = [line.split() for line in (tmp_path / "given").read_text().splitlines()]
    assert len(rows) == 4
    assert {(name, float(share)) for name, share in rows} == given


def test_a_failed_run_is_named_and_the_others_are_run(launch, tmp_path):
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "seed-0" / "dataset").write_text("")
    done = launch(*TOY, f"--workdir={tmp_path}", status=2)
    assert "1 of 2 runs failed: seed-0 (status 2)" in done.stderr
    assert (tmp_path / "seed-1" / "dataset" / "dataset.json").is_file()


def test_a_signal_ends_all_runs(tmp_path):
    command = (*TOY[:-2], "--config.seeds=2", "--config.seeds_at_once=2", f"--workdir={tmp_path}")
    command += ("--config.collect.num_pairs=3000000", "--stage=collect")
    process = subprocess.Popen([sys.executable, "-m", "motif_jax.launch", *command], cwd=ROOT, stderr=subprocess.PIPE)
    while not all((tmp_path / f"seed-{seed}" / "dataset.pieces").is_dir() for seed in (0, 1)):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    assert process.stderr.read().decode().strip().endswith("run the same command again to resume")
    running = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout
    assert not running

"""What the benchmark measures on a machine with a GPU, as far as a machine without one can tell."""

import gzip
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import ROOT, get_config, wait_for

import benchmarks
from benchmarks import device, gpu, numerics
from benchmarks.gpu import busy_share, make_table, read_trace
from benchmarks.numerics import TOLERANCES, Program, add_row, check_agreement, compare
from benchmarks.rows import Row, Rows
from motif_jax.structs import UserError

CPU = jax.devices("cpu")[0]


# ---- numerics


@pytest.mark.quick
def test_the_difference_is_that_of_the_worst_array():
    wanted = {"out": {"a": np.array([3.0, 4.0]), "b": np.array([100.0])}, "loss": np.float32(2.0)}
    found = {"out": {"a": np.array([3.0, 4.5]), "b": np.array([101.0])}, "loss": np.float32(2.02)}
    finding = compare(found, wanted)  # a: 0.5 / 5 = 0.1; b: 0.01; loss: 0.01
    assert finding == (pytest.approx(0.1), "out.a")
    small = {"out": {"a": np.array([0.0, 0.001]), "b": np.array([100.0])}}
    other = {"out": {"a": np.array([0.0, 0.003]), "b": np.array([100.0])}}
    assert compare(other, small)[0] == pytest.approx(0.002, rel=1e-3)  # of |all| / 100 = 1, not of 0.001
    broken = {"out": {"a": np.array([0.0, np.nan]), "b": np.array([100.0])}}
    assert compare(broken, small) == (np.inf, "out.a")


@pytest.mark.quick
@pytest.mark.parametrize("wrong", [
    lambda weights, x: (x @ weights).at[0].multiply(-1),  # one row of 64
    lambda weights, x: x @ weights + 0.5,
    lambda weights, x: x @ weights.T,
    lambda weights, x: jnp.where(x @ weights > 2, jnp.inf, x @ weights),
])  # fmt: skip
def test_a_device_that_computes_something_else_is_found(wrong):
    rng = np.random.default_rng(0)
    arguments = rng.standard_normal((8, 8), np.float32), rng.standard_normal((64, 8), np.float32)

    def result(function):
        program = Program(lambda mesh: jax.jit(lambda *inputs: {"logits": function(*inputs)}), arguments)
        return numerics.run(program, CPU, "highest")

    right = result(lambda weights, x: x @ weights)
    rounded = lambda weights, x: (x.astype("bfloat16") @ weights.astype("bfloat16")).astype("float32")  # noqa: E731
    rows = Rows()
    for function in (rounded, wrong):
        add_row(rows, "bfloat16", "policy_step", *compare(result(function), right))
    assert [row.sizes["agrees"] for row in rows] == [True, False]
    check_agreement(rows[:1])
    with pytest.raises(UserError, match=r"something else than the CPU: policy_step.bfloat16 by .* in logits \(toler"):
        check_agreement(rows)


@pytest.fixture(scope="module")
def small():
    """Config and rollouts of the small network."""
    config = get_config("gpu.py", "score,rehearsal")
    config.benchmark.networks = ("small",)
    return config, numerics.play(numerics.numerics_config(config, "float32"))


@pytest.mark.slow
def test_a_cpu_agrees_with_itself_and_bfloat16_nearly(small, monkeypatch, tmp_path):
    config, rollouts = small
    monkeypatch.setattr(numerics, "play", lambda config: rollouts)
    wanted = {"exact": TOLERANCES["exact"], "bfloat16": {"policy_step": TOLERANCES["bfloat16"]["policy_step"]}}
    monkeypatch.setattr(numerics, "TOLERANCES", wanted)
    rows = {row.name: row for row in numerics.measure(config, tmp_path)}
    assert rows.keys() == {f"numerics.{name}.{precision}" for precision, names in wanted.items() for name in names}
    assert all(rows[f"numerics.{name}.exact"].value == 0 for name in wanted["exact"])
    assert 0 < rows["numerics.policy_step.bfloat16"].value <= wanted["bfloat16"]["policy_step"]
    check_agreement(list(rows.values()))


@pytest.mark.slow
def test_wrong_programs_of_training_are_found(small):
    """In every precision: a learner with another discount, and a policy that forgets where episodes begin."""
    config, rollouts = small
    config = config.copy_and_resolve_references()
    right = numerics.programs(config, "float32", rollouts)
    config.policy.discount = 0.9
    wrong = {"policy_update": numerics.programs(config, "float32", rollouts)["policy_update"]}
    params, frozen, moment, first, core = right["policy_step"].arguments
    for found, begins in ((right, True), (wrong, False)):
        inputs = params, frozen, moment, np.full_like(first, begins), np.ones_like(core)
        found["policy_step"] = right["policy_step"]._replace(arguments=inputs)
    for name in wrong:
        difference, _ = compare(*(numerics.run(found[name], CPU, "highest") for found in (wrong, right)))
        assert difference > max(tolerances.get(name, 0.0) for tolerances in TOLERANCES.values())


@pytest.mark.quick
def test_without_the_cpu_nothing_is_compared(monkeypatch):
    def devices(kind):
        raise RuntimeError("Unknown backend: 'cpu' requested")

    monkeypatch.setattr(jax, "devices", devices)
    with pytest.raises(UserError, match="JAX_PLATFORMS=cuda,cpu"):
        device.find_cpu()


# ---- what the device does


SMI = """#!/usr/bin/env bash
case "$*" in
  *driver_version*) echo "NVIDIA H200, 580.1, 143771 MiB" ;;
  *) echo words; echo 50, 1000, 300.5; echo "[N/A], 1, 2"; echo 100, 3000, 400.5; touch {started}; exec sleep 1000 ;;
esac
"""


@pytest.mark.quick
def test_gpus_are_sampled_during_the_work(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text(SMI.format(started=tmp_path / "started"))
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    rows = Rows()
    with device.gpu_busy(rows, "policy.learner"):
        wait_for((tmp_path / "started").exists)
    (row,) = rows
    assert row == Row(
        "gpu_busy.policy.learner", 75.0, "% of the time", {"power_w": 350, "memory_mib": 3000, "samples": 2}
    )
    assert device.describe_gpus() == [{"name": "NVIDIA H200", "driver": "580.1", "memory": "143771 MiB"}]


@pytest.mark.quick
def test_without_the_drivers_program_nothing_is_sampled(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    rows = Rows()
    with device.gpu_busy(rows, "work"):
        pass
    assert not rows
    assert device.describe_gpus() == []


# ---- traces


@pytest.mark.quick
def test_the_share_of_the_time_in_which_the_device_works():
    work = [(0, 60), (10, 30), (50, 80), (90, 100)]  # 0 to 80 and 90 to 100
    assert busy_share(work) == 90


def test_a_trace_of_a_gpu_is_read(tmp_path):
    events = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 1, "tid": 13, "name": "thread_name", "args": {"name": "Stream #13(Compute)"}},
        {"ph": "M", "pid": 1, "tid": 14, "name": "thread_name", "args": {"name": "XLA Modules"}},
        {"ph": "M", "pid": 7, "name": "process_name", "args": {"name": "/host:CPU"}},
        {"ph": "M", "pid": 7, "tid": 1, "name": "thread_name", "args": {"name": "python"}},
        {"ph": "X", "pid": 1, "tid": 13, "ts": 5, "dur": 2, "name": "gemm", "args": {
            "hlo_module": "jit_update", "hlo_op": "dot.1", "tf_op": "jit(update)/transpose(core)/dot_general"}},
        {"ph": "X", "pid": 1, "tid": 13, "ts": 8, "dur": 1, "name": "MemcpyH2D"},
        {"ph": "X", "pid": 1, "tid": 14, "ts": 5, "dur": 9, "name": "jit_update(123)"},
        {"ph": "X", "pid": 7, "tid": 1, "ts": 0, "dur": 99, "name": "train", "args": {"hlo_module": "jit_update"}},
    ]  # fmt: skip
    file = tmp_path / "perfetto_trace.json.gz"
    with gzip.open(file, "wt") as out:
        json.dump({"traceEvents": events}, out)
    assert read_trace(file) == [(5, 7), (8, 9)]


# ---- what is said of it


RESULT = {
    "machine": "a processor, 16 cores", "rehearsal": False, "network": "reference", "dtype": "bfloat16", "skipped": {},
    "device": {"platform": "gpu", "kind": "NVIDIA H200", "devices": 1, "jax": "0.11.2",
               "gpus": [{"name": "NVIDIA H200", "driver": "580.1", "memory": "143771 MiB"}]},
    "rows": [
        Row("train.steps_per_s", 123456.7, "steps/s", {"seconds": 180})._asdict(),
        Row("policy.learner.reference", 1234567.0, "steps/s", {"batch": 16384})._asdict(),
        Row("numerics.policy_step.exact", 2e-6, "", {"tolerance": 1e-4, "agrees": True, "worst": "core"})._asdict(),
        Row("numerics.policy_update.exact", 2e-3, "", {"tolerance": 1e-3, "agrees": False, "worst": "g"})._asdict(),
    ],
}  # fmt: skip


@pytest.mark.quick
def test_the_table():
    lines = make_table(RESULT).splitlines()
    assert lines[0].startswith("| 1 NVIDIA H200, driver 580.1; a processor, 16 cores; JAX 0.11.2; network reference")
    assert "| training for 180 s, learnt reward on | 123,457 steps/s |" in lines
    assert "| the learner alone, batch 16,384 | 1,234,567 steps/s |" in lines
    wanted = "| float32, exact products, against the CPU: **differs** | 0.002 in policy_update (tolerated: 0.001) |"
    assert wanted in lines
    rehearsal = make_table(RESULT | {"rehearsal": True, "skipped": {"train": "no time was left"}})
    assert rehearsal.startswith("**A rehearsal on a CPU")
    assert rehearsal.endswith("Not measured: train (no time was left).\n")


# ---- the whole


def device_config(*parts):
    config = get_config("gpu.py", "score,rehearsal")
    config.benchmark.parts = parts
    return config


@pytest.mark.quick
def test_no_part_is_begun_that_would_end_too_late(tmp_path, capsys):
    config = device_config("numerics", "train")
    config.benchmark.limit_s = 1.0
    benchmarks.run(config, tmp_path)
    written = json.loads((tmp_path / "benchmark.json").read_text())
    assert written["skipped"]["numerics"] == written["skipped"]["train"] == "no time was left"
    assert written["skipped"]["policy"] == "not asked for"
    assert written["rehearsal"]
    assert "A rehearsal on a CPU" in capsys.readouterr().out
    assert benchmarks.within(config, 5.0).benchmark.train_seconds == 10.0
    assert benchmarks.within(config, 1e9).benchmark.train_seconds == config.benchmark.train_seconds


@pytest.mark.quick
def test_a_part_that_fails_does_not_take_the_others_with_it(tmp_path, monkeypatch):
    def fail(config, workdir):
        raise ValueError("the profiler\nhas no device")

    monkeypatch.setattr(gpu, "measure_profile", fail)
    monkeypatch.setattr(
        numerics, "measure", lambda config, workdir: [Row("numerics.x.exact", 0.0, "", RESULT["rows"][2]["sizes"])]
    )
    with pytest.raises(ValueError, match="the profiler"):
        benchmarks.run(device_config("profile", "numerics"), tmp_path)
    written = json.loads((tmp_path / "benchmark.json").read_text())
    assert written["skipped"]["profile"] == "failed: the profiler\\nhas no device"
    assert [row["name"] for row in written["rows"]] == ["numerics.x.exact"]
    assert (tmp_path / "benchmark.md").is_file()


@pytest.mark.slow
def test_the_script_rehearses_a_trace_and_a_training(tmp_path):
    """The parts that start others' programs or read what they wrote; numerics are tested above, policy elsewhere."""
    brief = ("--config.benchmark.networks=('small',)", "--config.benchmark.train_seconds=1", "--rehearsal")
    brief += ("--config.benchmark.limit_s=1e6",)  # or a busy machine skips what there is no time left for
    brief += ("--config.collect.num_pairs=100", "--skip=numerics,reward,policy", "--config.reward.message=lt_cnn_small")
    brief += ("--config.policy.num_workers=1", "--config.policy.games_per_worker=4", "--config.policy.batch_size=32")
    environment = os.environ | {"WORKDIR": str(tmp_path / "run"), "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", str(ROOT / "launch/gpu.sh"), *brief], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "this is a rehearsal" in done.stdout
    written = json.loads((tmp_path / "run/benchmark.json").read_text())
    assert written["rehearsal"]
    assert written["device"]["platform"] == "cpu"
    assert written["skipped"] == dict.fromkeys(("numerics", "reward", "policy"), "not asked for")
    rows = {row["name"]: row for row in written["rows"]}
    wanted = {
        "profile.device_busy", "train.reward_ready", "train.steps", "train.steps_per_s", "train.lag",
        "train.time.policy", "train.time.wait_for_batch",
    }  # fmt: skip
    assert not wanted - rows.keys()
    assert 0 < rows["profile.device_busy"]["value"] <= 100
    assert rows["train.steps"]["value"] > 0
    table = (tmp_path / "run/benchmark.md").read_text()
    assert table.startswith("**A rehearsal on a CPU")
    assert "Time of each thread: " in table
    assert "| training for" in table
    assert table.splitlines()[0] in done.stdout
    assert (tmp_path / "run/train/policy/summary.json").is_file()

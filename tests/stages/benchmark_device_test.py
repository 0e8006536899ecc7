"""The benchmark's parts for a machine with a GPU, as far as a machine without one can tell."""

import gzip
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import ROOT, get_config, wait_for
from host_processes import QUICKLY

from motif_jax.stages import benchmark, train_policy
from motif_jax.stages.benchmark import check_agreement, device, numerics, profile
from motif_jax.stages.benchmark.numerics import TOLERANCES, Program, compare, make_row
from motif_jax.stages.benchmark.peaks import vendor_peak
from motif_jax.stages.benchmark.profile import Operation, read_trace, summarise
from motif_jax.stages.benchmark.rows import Row
from motif_jax.stages.benchmark.summary import find_limit, make_table
from motif_jax.stages.benchmark.watch import Watch, describe_gpus
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
    assert compare(other, small).difference == pytest.approx(0.002, rel=1e-3)  # of |all| / 100 = 1, not of 0.001
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
    rows = [make_row("bfloat16", "policy_step", compare(result(function), right)) for function in (rounded, wrong)]
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
        finding = compare(*(numerics.run(found[name], CPU, "highest") for found in (wrong, right)))
        assert [make_row(precision, name, finding).sizes["agrees"] for precision in TOLERANCES] == [False] * 3


@pytest.mark.quick
def test_without_the_cpu_nothing_is_compared(monkeypatch):
    def devices(kind):
        raise RuntimeError("Unknown backend: 'cpu' requested")

    monkeypatch.setattr(jax, "devices", devices)
    with pytest.raises(UserError, match="JAX_PLATFORMS=cuda,cpu"):
        numerics.find_cpu()


# ---- what the device does


@pytest.mark.quick
@pytest.mark.parametrize(("kind", "dtype", "tera"), [
    ("NVIDIA H200", "bfloat16", 989),
    ("NVIDIA H100 80GB HBM3", "float32", 494),
    ("NVIDIA H100 PCIe", "bfloat16", 756),
    ("NVIDIA A100-SXM4-80GB", "bfloat16", 312),
    ("NVIDIA L40S", "bfloat16", 362),
    ("NVIDIA L4", "bfloat16", 121),
    ("Tesla V100-SXM2-16GB", "bfloat16", None),
    ("NVIDIA L400", "bfloat16", None),
    ("cpu", "float32", None),
])  # fmt: skip
def test_vendors_figures_go_by_the_kind_of_device(kind, dtype, tera):
    assert vendor_peak(kind, dtype) == (tera and tera * 1e12)


SMI = """#!/usr/bin/env bash
case "$*" in
  *driver_version*) echo "NVIDIA H200, 580.1, 143771 MiB" ;;
  *) echo words; while true; do echo 50, 1000, 300.5; echo "[N/A], 1, 2"; echo 100, 3000, 400.5; sleep 0.02; done ;;
esac
"""


@pytest.mark.quick
def test_what_is_sampled_counts_for_what_ran_meanwhile(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with Watch() as watch:
        assert watch.around("work", lambda: wait_for(lambda: len(watch._samples) > 20) and 7)() == 7
        watch.around("instant", lambda: None)()
    usage = watch.usage("work")
    assert usage.samples > 10
    assert usage.busy == pytest.approx(75, abs=10)
    assert usage.memory_mib == 3000
    assert watch.usage("other") is None
    assert describe_gpus() == [{"name": "NVIDIA H200", "driver": "580.1", "memory": "143771 MiB"}]
    (row,) = device.usage_rows("policy.learner", usage)
    assert row.name == "gpu_busy.policy.learner"


@pytest.mark.quick
def test_without_the_drivers_program_nothing_is_sampled(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with Watch() as watch:
        watch.around("work", lambda: None)()
    assert watch.usage("work") is None
    assert device.usage_rows("work", None) == []
    assert describe_gpus() == []


@pytest.mark.quick
def test_shares_of_the_vendors_figure(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(device_kind="NVIDIA H200", memory_stats=lambda: None)])
    training = SimpleNamespace(dtype="bfloat16", devices=2, update_memory=lambda: 3 * 2**30)
    rates = {"learner": 1e6, "inference": 2e6, "end_to_end": 5e5}
    rows = {row.name: row for row in device.device_rows("reference", training, rates, (10e6, 50e6), Watch())}
    # two devices: 1,978 TFLOP/s; 1e6 * 50e6 = 50 T = 2.53 %; 2e6 * 10e6 = 20 T = 1.01 %; 5e5 * 60e6 = 30 T = 1.52 %
    shares = {name: rows[f"policy.share_of_vendor_peak.{name}.reference"].value for name in rates}
    assert shares == {"learner": 2.53, "inference": 1.01, "end_to_end": 1.52}
    assert rows["policy.update_memory.reference"].value == 3


# ---- traces


def test_own_times_and_shares_of_a_trace():
    found = summarise([
        Operation("update", "while", 0, 60, (1, 1), "core"),
        Operation("update", "dot", 10, 20, (1, 1), "core"),
        Operation("update", "conv", 30, 10, (1, 1), "encoder"),
        Operation("play_step", "conv", 50, 30, (1, 2)),  # at the same time, on another stream
        Operation("update", "adam", 90, 10, (1, 1), "optimizer"),
    ])  # fmt: skip
    assert found.busy == 90  # 0 to 80 and 90 to 100
    # while alone: 30; dot 20; both conv 10 + 30; adam 10: 100 in all
    assert found.programs == {"update": 70, "play_step": 30}
    assert found.operations[0] == ("update", "while", 30)
    assert ("update", "adam", 10) in found.operations
    assert found.scopes == pytest.approx({"core": 100 * 50 / 70, "encoder": 100 * 10 / 70, "optimizer": 100 * 10 / 70})
    assert summarise([]) is None


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
    assert read_trace(file) == [
        Operation("update", "dot.1", 5, 2, (1, 13), "core"),
        Operation(profile.UNKNOWN, "MemcpyH2D", 8, 1, (1, 13)),
    ]


# ---- what is said of it


@pytest.mark.quick
@pytest.mark.parametrize(("shares", "limit", "remedy"), [
    ({"wait_for_batch": 5}, "the learner", "--config.policy.dtype=bfloat16"),
    ({"wait_for_batch": 80, "workers_wait": 5}, "the games", "num_workers"),
    ({"wait_for_batch": 80, "workers_wait": 60, "policy": 70}, "calls of the policy", "games_per_worker"),
    ({"wait_for_batch": 80, "workers_wait": 60, "gather": 50, "policy": 20}, "the host's copies", "parent"),
    ({"wait_for_batch": 80, "workers_wait": 60, "stack": 50, "place": 20}, "the hand-off", "batch_size"),
    ({"wait_for_batch": 80, "workers_wait": 60, "policy": 30}, "nothing alone", "games_per_worker"),
])  # fmt: skip
def test_what_limits_the_speed(shares, limit, remedy):
    found = find_limit(shares, "float32")
    assert limit in found[0]
    assert remedy in found[1]


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
    benchmark.run(config, tmp_path)
    written = json.loads((tmp_path / "benchmark.json").read_text())
    assert written["skipped"]["numerics"] == written["skipped"]["train"] == "no time was left"
    assert written["skipped"]["policy"] == "not asked for"
    assert written["rehearsal"]
    assert "A rehearsal on a CPU" in capsys.readouterr().out
    assert benchmark.within(config, 5.0).benchmark.train_seconds == 10.0
    assert benchmark.within(config, 1e9).benchmark.train_seconds == config.benchmark.train_seconds


@pytest.mark.quick
def test_a_part_that_fails_does_not_take_the_others_with_it(tmp_path, monkeypatch):
    def fail(config, workdir):
        raise ValueError("the profiler\nhas no device")

    monkeypatch.setattr(profile, "measure", fail)
    monkeypatch.setattr(
        numerics, "measure", lambda config, workdir: [Row("numerics.x.exact", 0.0, "", RESULT["rows"][2]["sizes"])]
    )
    with pytest.raises(ValueError, match="the profiler"):
        benchmark.run(device_config("profile", "numerics"), tmp_path)
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
    environment = os.environ | QUICKLY | {"WORKDIR": str(tmp_path / "run"), "PYTHON": sys.executable}
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
        "profile.device_busy", "profile.program.update", "profile.operation.1", "train.reward_ready", "train.steps",
        "train.steps_per_s", "train.lag", "train.time.policy", "train.time.wait_for_batch",
    }  # fmt: skip
    assert not wanted - rows.keys()
    assert rows["profile.program.update"]["value"] > 0
    assert rows["train.steps"]["value"] > 0
    assert sum(row["value"] for name, row in rows.items() if name.startswith("profile.program.")) == pytest.approx(
        100, abs=1
    )
    table = (tmp_path / "run/benchmark.md").read_text()
    assert table.startswith("**A rehearsal on a CPU")
    assert "What limits: " in table
    assert "| training for" in table
    assert table.splitlines()[0] in done.stdout
    assert (tmp_path / "run/train/policy/summary.json").is_file()


@pytest.mark.slow
def test_a_batch_that_the_gpu_has_no_memory_for_is_refused_before_it_is_learnt_from(tmp_path, monkeypatch):
    from motif_jax.devices import memory as device_memory
    from motif_jax.devices.memory import DeviceMemory

    config = get_config("motif.py", "toy")
    config.policy.update(
        {"network": "small", "num_workers": 0, "games_per_worker": 4, "groups": 1, "rollout_length": 8}
    )
    config.policy.update({"batch_size": 64, "intrinsic_coefficient": 0.0, "sources": "", "extrinsic_coefficient": 1.0})
    monkeypatch.setattr(device_memory, "describe_memory", lambda device: DeviceMemory(2**20, 2**19))
    pattern = (
        r"^train_policy cannot go on: an update of 64 steps needs [\d.]+ MiB of the memory of cpu, where 0.5 MiB of "
    )
    pattern += r"1.0 MiB are free \(--config.policy.batch_size, .num_minibatches, .network\)$"
    with pytest.raises(UserError, match=pattern):
        train_policy.run(config, tmp_path)

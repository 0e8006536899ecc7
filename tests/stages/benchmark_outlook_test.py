"""The computed table, by hand, and what the threads of the benchmark are said to do."""

import threading

import pytest
from conftest import wait_for

from motif_jax.stages.benchmark.outlook import GPU_FLOPS, limits_of, outlook
from motif_jax.stages.benchmark.rows import Row
from motif_jax.stages.benchmark.threads import PROCESS, Spent, computed_by, look

pytestmark = pytest.mark.quick


def test_limits_by_hand():
    limits = limits_of(cores=16, gpus=2, game_s=30e-6, parent_s=2e-6, flops=50e6)
    assert limits["games"] == pytest.approx(16 / 32e-6)  # 500,000
    assert limits["parent"] == pytest.approx(1_000_000)
    assert limits["device"] == pytest.approx(2 * GPU_FLOPS / 50e6)


def test_the_smallest_limit_of_the_rows_for_most_games_counts(capsys):
    rows = [
        Row("env.lockstep_stepper.16", 1.0, "steps/s", {}), Row("env.lockstep_stepper.64", 40_000.0, "steps/s", {}),
        Row("pipeline.worker_us_per_step.1024", 5.0, "us", {}), Row("pipeline.host_us_per_step.64", 9.0, "us", {}),
        Row("pipeline.host_us_per_step.1024", 2.0, "us", {}), Row("pipeline.host_us_per_step.4096", 1.0, "us", {}),
        Row("policy.flop_per_step.small", 5.0, "MFLOP", {}), Row("policy.flop_per_step.large", 5000.0, "MFLOP", {}),
    ]  # fmt: skip
    found = {row.name: row for row in outlook(rows)}
    assert found["computed.16_cores.1_gpus.small"].value == 500_000  # 16 cores / (25 + 5 + 2 us)
    assert found["computed.16_cores.1_gpus.small"].sizes["limited by"] == "games"
    assert found["computed.64_cores.8_gpus.large"].sizes["limited by"] == "device"
    assert "computed, not measured" in capsys.readouterr().out


def test_without_the_parts_that_it_needs_nothing_is_computed(capsys):
    assert outlook([Row("env.lockstep_stepper.64", 1.0, "steps/s", {})]) == []
    assert "measure the parts env, policy and pipeline" in capsys.readouterr().out


def test_a_thread_that_waits_and_one_that_computes_are_told_apart():
    end = threading.Event()
    computed = threading.Event()

    def compute() -> None:
        sum(range(5_000_000))
        computed.set()
        end.wait()

    idle = threading.Thread(target=end.wait, name="idle")
    idle.start()
    names = {"busy": "busy", "idle": "idle"}
    process = look(names)[PROCESS]
    busy = threading.Thread(target=compute, name="busy")
    busy.start()
    computed.wait()
    # The kernel brings the clock of a running thread up to date at its ticks only.
    wait_for(lambda: look(names)["idle"].computing < look(names)["busy"].computing)
    assert look(names)[PROCESS].since(process).computing > 0
    end.set()
    busy.join()
    idle.join()


def test_what_no_timer_names_remains():
    assert Spent(10.0, 4.0, 1.0).unnamed({"batch": 2.0, "learner": 0.5}) == 2.5
    assert Spent(1.0, 1.0, 0.5).unnamed({}) == 0.0
    assert computed_by([2**30]) == 0.0

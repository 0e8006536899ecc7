"""The benchmark prints and writes what it measured."""

import json
import math
import subprocess
import sys

import pytest
from conftest import ROOT, get_config

import benchmarks
from benchmarks import peers
from benchmarks.__main__ import arguments
from benchmarks.hosts import HERE, plan
from benchmarks.peers import processes
from motif_jax.stages.benchmark import PARTS
from motif_jax.structs import UserError

GOAL_ROWS = {
    "env.gymnasium_single", "env.stepper_single", "env.engine_limit", "env.gymnasium_async.4", "env.pool.2x4",
    "env.gymnasium_async.8", "env.pool.2x8", "env.pool_policy.2x4", "env.bytes_per_step", "env.memory_per_game",
    "env.memory_growth", "collect.steps_per_s", "annotate.questions_per_pair", "annotate.overhead.lexicon",
    "annotate.overhead.reason", "annotate.overhead.score", "annotate.memory", "reward.epoch_pairs_per_s.random",
    "reward.epoch_pairs_per_s.explorer", "reward.flops.random", "reward.matrix_product", "policy.end_to_end.small",
    "policy.end_to_end_no_reward.small", "policy.reward_cost.small", "policy.reward_lookup.small",
    "policy.learner.small", "policy.inference.small", "policy.flop_per_step.small", "policy.share_of_limit.small",
    "policy.bytes_per_step.small", "policy.program", "policy.program_share.small",
}  # fmt: skip
BRIEFLY = """
import sys
from benchmarks import device, games, reward
from motif_jax import launch

reward.PAIRS, device.MATRIX, games.RESETS, games.PAIRS, games.GAMES = 2_000, 256, 200, 2_000, (4, 8)
launch.define_flags()
sys.exit(launch.main(sys.argv))
"""


@pytest.mark.slow
def test_every_row_is_measured(tmp_path):
    """How fast this is does not matter: fewer pairs, games and resets, and programs that are compiled quickly."""
    brief = ("--config.benchmark.seconds=0.05", "--config.benchmark.repeats=1", "--config.benchmark.pairs=(500,1000)")
    brief += ("--config.benchmark.networks=('small',)", "--config.policy.batch_size=256")
    brief += ("--config.policy.games_per_worker=8", "--config.policy.num_workers=2")
    command = [sys.executable, "-c", BRIEFLY, "--config=configs/motif.py", f"--workdir={tmp_path}", "--stage=benchmark"]
    done = subprocess.run([*command, *brief], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "benchmark.json").read_text())
    rows = {row["name"]: row for row in result["rows"]}
    assert rows.keys() >= GOAL_ROWS
    assert "cores" in result["machine"]
    for row in rows.values():
        assert row.keys() == {"name", "value", "unit", "sizes"}
        assert math.isfinite(row["value"])
        assert row["name"] in done.stdout
    assert rows["env.bytes_per_step"]["value"] <= 1000
    assert rows["policy.bytes_per_step.small"]["value"] <= 1100
    assert 1 < rows["policy.flop_per_step.small"]["value"] < 10  # MFLOP
    assert rows["env.pool.2x4"]["sizes"]["games"] == 4


@pytest.mark.quick
def test_parts_are_named_by_what_they_measure():
    def parts_of(*given):
        return next(word for word in arguments(list(given)) if word.startswith("--config.benchmark.parts="))

    assert parts_of("--parts=games,offline").endswith("=('env', 'texts', 'offline')")
    assert arguments(["--parts=games", "--workdir=w"])[-2:] == ["--workdir=w", "--stage=benchmark"]
    with pytest.raises(UserError, match=r"unknown part 'gams' \(--parts\): choose from games, reward, policy"):
        parts_of("--parts=gams")


@pytest.mark.quick
def test_the_config_takes_the_names_of_all_measurements():
    measured = benchmarks.MEASUREMENTS.keys()
    assert set(PARTS) == measured, "PARTS of stages/benchmark and MEASUREMENTS of benchmarks/__init__.py"
    assert list(get_config().benchmark.parts) == ["env", "annotation", "reward", "policy"]


@pytest.mark.slow
def test_our_side_of_each_comparison_runs(tmp_path):
    for name, peer in peers.PEERS.items():
        subject = peer.prepare(0.01, tmp_path)
        assert subject.run() > 0, name
        assert processes.json.dumps(subject.task), name


# ---- the plan of hosts against trainings that were measured on 16 cores and a GPU (docs/results/speed.md)


@pytest.mark.quick
@pytest.mark.parametrize(("steps", "busy"), [(109_428, 0.71), (100_160, 0.73), (81_200, 0.83)])
def test_the_plan_has_the_rates_of_measured_trainings(steps, busy):
    # 15 workers of 128 games on the learner's host: as hosts of one core, without Ray between
    planned = plan(15, 1, 128, 15 * busy / steps, host=(0.0, 0.0), thread=HERE, latency=0.0)
    assert planned.steps == pytest.approx(steps, rel=0.02)
    assert planned.used["games"] == pytest.approx(busy, abs=0.02)


@pytest.mark.quick
def test_more_hosts_play_more_until_the_acting_thread_is_full():
    rates = [plan(hosts, 16, 128, 1e-4) for hosts in (1, 2, 4, 10, 30, 100)]
    assert sorted(rate.steps for rate in rates) == [rate.steps for rate in rates]
    assert rates[0].binds == "games"
    assert rates[-1].binds == "acting thread"
    assert all(share <= 1 for rate in rates for share in rate.used.values())

"""The benchmark prints and writes what it measured."""

import json
import math
import subprocess
import sys

import pytest
from conftest import ROOT

from benchmarks import DEFAULT, PARTS, peers
from benchmarks.__main__ import read, split
from benchmarks.hosts import HERE, plan
from benchmarks.peers import processes
from motif_jax.names import import_named

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
from benchmarks import __main__, device, games, reward
from motif_jax import launch

reward.PAIRS, device.MATRIX, games.RESETS, games.PAIRS, games.GAMES = 2_000, 256, 200, 2_000, (4, 8)
launch.define_flags()
sys.exit(__main__.main())
"""


@pytest.mark.slow
def test_every_row_is_measured(tmp_path):
    """How fast this is does not matter: fewer pairs, games and resets, and programs that are compiled quickly."""
    brief = ("--parts=env,annotation,reward,policy", "--seconds=0.05", "--repeats=1", "--pairs=500,1000")
    brief += ("--networks=small", "--config.policy.batch_size=256")
    brief += ("--config.policy.games_per_worker=8", "--config.policy.num_workers=2")
    command = [sys.executable, "-c", BRIEFLY, "--config=configs/motif.py", f"--workdir={tmp_path}"]
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
def test_the_flags_of_a_benchmark_are_beside_those_of_the_program():
    own, rest = split(["--parts=env,offline", "--workdir=w", "--seconds=1", "--config.policy.seed=3", "--pairs=5"])
    assert rest == ["--workdir=w", "--config.policy.seed=3"]
    found = read(own)
    assert (found.parts, found.seconds, found.pairs, found.repeats) == (("env", "offline"), 1.0, (5,), 3)
    assert read({}).parts == DEFAULT
    assert all(callable(import_named(path)) for path in PARTS.values())


@pytest.mark.quick
@pytest.mark.parametrize(("arguments", "said"), [
    (["--parts=env,gams"], "unknown part 'gams' (--parts): choose from env, texts"),
    (["--seconds=soon"], "seconds must be a number above 0 to 1e+06, not 'soon' (--seconds)"),
    (["--pairs=10,2.5"], "number of pairs must be a whole number from 1 to 1,000,000,000, not '2.5' (--pairs)"),
    (["--config.policy.unroll=0"], "the config has no value 'policy.unroll'"),
    (["--stage=collect"], "leave out --stage"),
    (["--dry_run"], "leave out --stage, --sweep and --dry_run"),
])  # fmt: skip
def test_a_benchmark_refuses_bad_flags_in_one_sentence(tmp_path, arguments, said):
    command = [sys.executable, "-m", "benchmarks", f"--workdir={tmp_path / 'run'}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


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

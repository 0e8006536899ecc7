"""The benchmark stage prints and writes what it measured."""

import json

GOAL_ROWS = {
    "env.gymnasium_single", "env.stepper_single", "env.engine_limit", "env.gymnasium_async.16", "env.pool.2x16",
    "env.gymnasium_async.64", "env.pool.2x64", "env.pool_policy.2x16", "env.bytes_per_step", "env.memory_per_game",
    "env.memory_growth", "collect.steps_per_s", "annotate.questions_per_pair", "annotate.overhead.lexicon",
    "annotate.overhead.reason", "annotate.overhead.score", "annotate.memory", "reward.epoch_pairs_per_s.random",
    "reward.epoch_pairs_per_s.explorer", "reward.flops.random", "reward.matrix_product",
}  # fmt: skip


def test_every_row_is_measured(launch, tmp_path):
    brief = ("--config.benchmark.seconds=0.05", "--config.benchmark.repeats=1", "--config.benchmark.pairs=(2000,5000)")
    done = launch("--config=configs/motif.py", f"--workdir={tmp_path}", "--stage=benchmark", *brief, timeout=250)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "benchmark.json").read_text())
    rows = {row["name"]: row for row in result["rows"]}
    assert rows.keys() >= GOAL_ROWS
    assert "cores" in result["machine"]
    for row in rows.values():
        assert row.keys() == {"name", "value", "unit", "sizes"}
        assert row["value"] > 0 or row["name"] == "env.memory_growth"
        assert row["name"] in done.stdout
    assert rows["env.bytes_per_step"]["value"] <= 1000
    assert rows["env.pool.2x16"]["sizes"]["games"] == 16
    assert rows["env.pool.1x16"]["sizes"]["workers"] == 1
    assert done.stdout.count("were fastest") == 2

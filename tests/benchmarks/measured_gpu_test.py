import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import ROOT, get_config

from benchmarks import Benchmark, numerics
from benchmarks.numerics import TOLERANCES, Program, add_row, check_agreement, compare
from benchmarks.rows import Rows
from motif_jax.structs import UserError

CPU = jax.devices("cpu")[0]


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


@pytest.mark.slow
def test_a_cpu_agrees_with_itself_and_bfloat16_nearly(monkeypatch, tmp_path):
    config = get_config("gpu.py", "score,rehearsal")
    with config.unlocked():
        config.benchmark = vars(Benchmark(networks=("small",)))
    wanted = {"exact": TOLERANCES["exact"], "bfloat16": {"policy_step": TOLERANCES["bfloat16"]["policy_step"]}}
    monkeypatch.setattr(numerics, "TOLERANCES", wanted)
    rows = {row.name: row for row in numerics.measure(config, tmp_path)}
    assert rows.keys() == {f"numerics.{name}.{precision}" for precision, names in wanted.items() for name in names}
    assert all(rows[f"numerics.{name}.exact"].value == 0 for name in wanted["exact"])
    assert 0 < rows["numerics.policy_step.bfloat16"].value <= wanted["bfloat16"]["policy_step"]
    check_agreement(list(rows.values()))


@pytest.mark.slow
def test_the_script_rehearses_a_trace_and_a_training(tmp_path):
    """The parts that start others' programs or read what they wrote; numerics are tested above, policy elsewhere."""
    brief = ("--networks=small", "--train_seconds=1", "--rehearsal")
    brief += ("--limit_s=1e6",)  # or a busy machine skips what there is no time left for
    brief += ("--config.collect.num_pairs=100", "--skip=numerics,reward,policy", "--config.reward.message=lt_cnn_small")
    brief += ("--config.policy.num_workers=1", "--config.policy.games_per_worker=4", "--config.policy.batch_size=32")
    environment = os.environ | {"WORKDIR": str(tmp_path / "run"), "PYTHON": sys.executable}
    done = subprocess.run(["bash", ROOT / "launch/gpu.sh", *brief], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "this is a rehearsal" in done.stdout
    written = json.loads((tmp_path / "run/benchmark.json").read_text())
    assert written["rehearsal"]
    assert written["device"]["platform"] == "cpu"
    assert written["skipped"] == dict.fromkeys(("numerics", "reward", "policy"), "not asked for")
    rows = {row["name"]: row for row in written["rows"]}
    wanted = {
        "profile.device_busy", "train.reward_ready", "train.steps", "train.steps_per_s", "train.lag",
        "train.time.policy", "train.time.wait_for_batch", "limits.ceiling", "limits.learnt", "limits.unlearnt",
    }  # fmt: skip
    assert not wanted - rows.keys()
    assert 0 < rows["profile.device_busy"]["value"] <= 100
    assert rows["train.steps"]["value"] > 0
    table = (tmp_path / "run/benchmark.md").read_text()
    assert table.startswith("**A rehearsal on a CPU")
    assert table.splitlines()[0] in done.stdout
    assert (tmp_path / "run/train/policy/summary.json").is_file()

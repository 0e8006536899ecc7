"""Training with reward programs in a real game: resumed to the bit, evaluated without the file, shown in the report."""

import shutil

import pytest
from conftest import assert_same_bits, refusal, run_stage
from ml_collections import ConfigDict
from train_policy_test import TINY, arrays

from motif_jax.experiment import defaults
from motif_jax.files import read_lines
from motif_jax.pages.players import read_results
from motif_jax.policies.model import read_policy
from motif_jax.stages import evaluate, report, train_policy

PROGRAM = (
    "# gold, and the way to the stairs\nevent_gold + 5 * once(event_stairs > 0) - 0.01 * gained(stairs_distance)\n"
)
TERMS = ["event_gold", "5 * once(event_stairs > 0)", "-0.01 * gained(stairs_distance)"]


def settings(**values) -> ConfigDict:
    config = defaults()
    config.env.world = "treasure"
    config.policy.update(TINY | {"network": "general", "extrinsic_coefficient": 0.0} | values)
    config.evaluate.update({"baselines": "random", "episodes": 6, "num_workers": 0, "games_per_worker": 6})
    return config


def run(workdir, steps, **values):
    config = settings(train_for_env_steps=steps, **values)
    run_stage(train_policy, config, workdir)
    return config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    (folder / "way.reward").write_text(PROGRAM)
    (folder / "still.reward").write_text("still()")
    sources = f"code:{folder / 'way.reward'}:0.5,code:{folder / 'still.reward'}:-0.01"
    run(folder / "run", 640, sources=sources)
    return folder, sources


def test_training_goes_on_to_the_same_bits(trained, tmp_path):
    folder, sources = trained
    for name in ("one", "other"):
        shutil.copytree(folder / "run", tmp_path / name)
        run(tmp_path / name, 1280, sources=sources)
    assert_same_bits(arrays(tmp_path / "one")[1], arrays(tmp_path / "other")[1])


def test_a_checkpoint_needs_no_file_and_a_changed_file_is_refused(trained, tmp_path, capsys):
    folder, sources = trained
    workdir = shutil.copytree(folder / "run", tmp_path / "run")
    (folder / "still.reward").write_text("still() * 2")
    refusal(lambda: run(workdir, 1280, sources=sources), "still.reward' has changed since this policy's", "--workdir")
    for name in ("way", "still"):
        (folder / f"{name}.reward").unlink()
    refusal(lambda: run(workdir, 1280, sources=sources), "cannot read the reward program", "way.reward': No such file")
    found = read_policy(workdir)[2]
    assert [(one.name, one.coefficient) for one in found] == [("code_way", 0.5), ("code_still", -0.01)]
    config = settings(sources=sources)
    evaluate.STAGE.run(evaluate.STAGE.view(config.to_dict()), workdir)
    assert "\ncode_way return" in capsys.readouterr().out
    for player in ("random", "policy-640"):
        about = read_results(workdir)[player]
        assert about["sources"]["code_way"]["program"] == PROGRAM
        for row in read_lines(workdir / "evaluate" / player / "episodes.jsonl"):
            worth = row["gold"] + 5 * row["stairs"]  # but for the hero's way, which is worth less than 0.5
            assert row["returns"]["code_way"] == pytest.approx(worth, abs=0.5)
            assert list(row["terms"]) == ["code_way"]  # the other program has a single term
            assert list(row["terms"]["code_way"]) == TERMS
            assert sum(row["terms"]["code_way"].values()) == pytest.approx(row["returns"]["code_way"], abs=1e-5)
            assert row["terms"]["code_way"]["event_gold"] == row["gold"]
            assert 0 <= row["returns"]["code_still"] <= row["steps"]

    report.STAGE.run(report.STAGE.view(config.to_dict()), workdir)
    page = (workdir / "report/index.html").read_text()
    assert "once(event_stairs &gt; 0)" in page
    assert "code_way return" in page

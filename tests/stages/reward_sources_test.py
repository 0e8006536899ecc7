import shutil

import numpy as np
import pytest
import train_policy_test
from conftest import is_complete, last_checkpoint, refusal, run_stage

from motif_jax.files import read_lines
from motif_jax.pages.players import read_results
from motif_jax.policies.model import read_policy
from motif_jax.stages import evaluate, report
from motif_jax.structs import UserCodeError

OWN = "own_sources:Stairs"
SOURCES = f"count:0.05,rnd:0.1,{OWN}:0.5"


def settings(**values):
    config = train_policy_test.settings(**{"sources": SOURCES, "train_for_env_steps": 320, "log_every_s": 1e6} | values)
    config.evaluate.update({"baselines": "random", "episodes": 12, "num_workers": 0, "games_per_worker": 6})
    return config


def run(workdir, **values):
    return train_policy_test.train(settings(**values), workdir)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("sources") / "run"
    run(workdir)
    return workdir


def test_each_source_is_told_apart(trained):
    (row,) = read_lines(trained / "policy/metrics.jsonl")  # of all updates: the run is shorter than `log_every_s`
    assert row["reward/rnd_updates"] == row["reward/stairs_batches"] == row["updates"] == 5
    assert row["reward/rnd_loss"] > 0
    assert 0 < row["reward/count_mean"] < 1
    assert row["reward/count_share"] == 1
    assert 0.7 < row["reward/rnd_share"] <= 0.8  # of five batches, the first had nothing to be normalised with
    assert row["episode/count"]
    assert row["episode/Stairs_return"] == pytest.approx(row["episode/success"])
    assert row["episode/count_return"] > 0
    weighted = sum(c * row[f"reward/{name}_mean"] for name, c in (("count", 0.05), ("rnd", 0.1), ("Stairs", 0.5)))
    assert row["train/intrinsic_reward"] == pytest.approx(weighted, rel=1e-4)


def test_a_checkpoint_has_all_that_is_needed(trained):
    _, metadata, sources = read_policy(trained)
    assert [one.name for one in sources] == ["count", "rnd"]  # nobody has said that own code may be imported
    assert metadata["sources"]["Stairs"] == {"class": OWN, "coefficient": 0.5, "facts": {}}
    _, _, sources = read_policy(trained, trusted=[OWN])
    assert [(one.name, one.coefficient) for one in sources] == [("count", 0.05), ("rnd", 0.1), ("Stairs", 0.5)]
    assert (sources.get("Stairs").batches, sources.get("rnd").about()["updates"]) == (5, 5)
    assert sources.learnt is None


def test_returns_are_evaluated_and_reported_apart(trained, tmp_path, capsys):
    workdir = shutil.copytree(trained, tmp_path / "run")
    config = settings()
    run_stage(evaluate, config, workdir)
    printed = capsys.readouterr().out
    for player in ("random", "policy-320"):
        rows = list(read_lines(workdir / "evaluate" / player / "episodes.jsonl"))
        summary = read_results(workdir)[player]
        assert set(summary["returns"]) == set(summary["sources"]) == {"count", "rnd", "Stairs"}
        for name, figure in summary["returns"].items():
            assert figure["mean"] == pytest.approx(np.mean([row["returns"][name] for row in rows]))
        for row in rows:
            assert row["intrinsic_return"] is None
            assert row["returns"]["Stairs"] == row["success"]
            assert 1 <= row["returns"]["count"] <= row["steps"]
    for name in ("count", "rnd", "Stairs"):
        assert f"\n{name} return" in printed
    assert is_complete(evaluate, config, workdir)

    config.policy.sources = "count:0.05,rnd:0.1"  # own code is not named, so it is not run
    assert not is_complete(evaluate, config, workdir)
    run_stage(evaluate, config, workdir)
    assert "trained with Stairs, reward sources that this config does not name" in capsys.readouterr().out
    summary = read_results(workdir)["policy-320"]
    assert set(summary["returns"]) == {"count", "rnd"}

    run_stage(report, config, workdir)
    page = (workdir / "report/index.html").read_text()
    assert "0.05 × the count bonus + 0.1 × random network distillation" in page
    for words in ("count return", "rnd return", "Stairs return", "from this reward source"):
        assert words in page


@pytest.mark.parametrize(
    ("name", "said"),
    [("OfTexts", "'seen' of arrays() is not an array of numbers"), ("OfSets", "set is not JSON serializable")],
)
def test_a_state_that_cannot_be_saved_is_refused_before_games_start(tmp_path, name, said):
    refusal(lambda: run(tmp_path, sources=f"own_sources:{name}:1"), f"saving the reward source 'own_sources:{name}'",
            said, kind=UserCodeError)  # fmt: skip


def test_a_crash_in_own_code_arrives_as_one_sentence_with_its_traceback(tmp_path):
    with pytest.raises(UserCodeError, match="'own_sources:Failing' failed with LookupError: of the third batch") as it:
        run(tmp_path / "later", sources="own_sources:Failing:1")
    assert "own_sources.py" in it.value.details
    assert last_checkpoint(tmp_path / "later")[2]["progress"]["updates"] == 3  # nothing that was learnt is lost

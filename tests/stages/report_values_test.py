"""The page about a policy that writes, made of files as its stages write them; no policy is trained for it."""

import dataclasses

import pytest
from conftest import get_config

from motif_jax import experiment
from motif_jax.files import read_json, write_json
from motif_jax.offline.rankings import Rankings
from motif_jax.policies.decoding import Decoding
from motif_jax.run import Run
from motif_jax.stages.evaluate.page import report_evaluation
from motif_jax.stages.offline import report_learning
from motif_jax.stages.report.seeds import write_page_over_seeds
from motif_jax.stages.train_values.learning import blocks_of_rankings
from motif_jax.system.runs import PlannedRun

pytestmark = pytest.mark.quick
HOSTILE = "<script>alert(1)</script>"
RETURNS = {("sample", 0.0): -3.8, ("sample", 4.0): -2.7, ("sample", 16.0): -3.0, ("greedy", 0.0): -5.1,
           ("greedy", 4.0): -2.9}  # fmt: skip


def interval(mean):
    return {"mean": mean, "median": mean, "low": mean - 0.1, "high": mean + 0.1}


def summary(name, mean, **more):
    figures = {"return": interval(mean), "success": interval(0.5), "steps": interval(4.0), "intrinsic_return": None}
    return {"name": name, "path": "", "step": 0, "greedy": False, "episodes": 512, "task": "wordle", "reward": None,
            "figures": figures, "did": {}, "ends": {"goal reached": 256}, "replays": {"best": 3}} | more  # fmt: skip


def config_for():
    config = get_config("ilql_quickstart.py", "wordle,ilql")
    config.collect.transcripts = 50
    return config


def make_workdir(folder, by=0.0, recipe="ilql", returns=RETURNS, **decoding):
    experiment.run(config_for().to_dict(), folder, ["collect"])
    for name, mean in (("candidate", -1.56), ("optimal", -1.33)):
        write_json(folder / f"evaluate/{name}/summary.json", summary(name, mean + by))
    for (kind, beta), mean in returns.items():
        name = f"values-1500-beta{beta:g}" + ("" if kind == "sample" else f"-{kind}")
        how = dataclasses.asdict(Decoding(kind, beta)) | {"clip": "inf"} | decoding
        more = {"path": ".", "step": 1500, "decoding": how, "recipe": recipe}
        write_json(folder / f"evaluate/{name}/summary.json", summary(name, mean + by, **more))
        token = {"token": "c", "policy": [["c", 0.9], [HOSTILE, 0.1]], "shifted": [["c", 1.0]], "advantage": -0.5}
        tokens = [token] * 5 + [token | {"token": "end"}]
        turns = [{"said": "ccccc", "heard": "<g><y><b><b><b>", "reward": -1.0, "tokens": tokens}]
        write_json(folder / f"evaluate/{name}/letters.json", {"episodes": {"3": turns}})
    rows = [{"steps": steps, "epoch": 0, "valid_loss": 1.0 / (1 + steps), "valid_q": 0.5, "valid_return": -3.0}
            for steps in (0, 400, 800)]  # fmt: skip
    best = [{"text": HOSTILE, "before": "", "advantage": 1.5}]
    rankings = Rankings(best, {"1": {"pairs": 20, "online": [0.5, 0.9], "target": [0.5, 1.0]}})
    with Run(folder).stage("train_values", "values") as stage:
        with stage.metrics("steps", 0) as metrics:
            for row in rows:
                metrics.write(row.pop("steps"), row)
        done = {"steps": 800, "parameters": 10_000, "episodes": 47}
        report_learning(stage, "The values", done, *blocks_of_rankings(rankings))
    report_evaluation(folder, "candidate", read_json(folder / "evaluate/candidate/summary.json"))
    return folder


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return make_workdir(tmp_path_factory.mktemp("report") / "run")


def page_of(workdir):
    experiment.run(config_for().to_dict(), workdir, ["report"])
    return (workdir / "report/index.html").read_text()


def test_the_page_of_a_policy_that_writes(workdir):
    """First screen, return against beta, letters, escaped text."""
    page = page_of(workdir)
    assert "A language model that learnt from recorded games of wordle" in page
    assert "(beta 4, sampled), its return is <b>-2.70</b> [-2.80, -2.60]; the same policy without them" in page
    assert "at its best, gets <b>-3.80</b> [-3.90, -3.70]. These are means over 512 games." in page

    assert "Return against beta" in page
    for name in ("sampled", "greedy", "candidate: -1.56", "optimal: -1.33", "cloned, sampled: -3.80", "cloned, greedy"):
        assert name in page
    assert "<b>beta 4, sampled</b>" in page
    assert "<span>beta 16, sampled</span>" in page

    assert "beta 4, sampled: game 3, return -1.00" in page
    assert "beta 0, sampled: game 3" in page
    assert '<b style="color:var(--good)">c</b>' in page
    assert '<b style="color:var(--second)">c</b>' in page
    assert "-0.50" in page

    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_page_over_seeds_compares_the_decodings(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("motif_jax.pages.over_seeds.RESAMPLES", 50)
    for seed, by in ((0, 0.0), (1, 0.2)):
        make_workdir(tmp_path / f"seed-{seed}", by)
    runs = [PlannedRun("", seed, ()) for seed in (0, 1)]
    page = write_page_over_seeds(runs, tmp_path).read_text()
    assert "<b>beta 4, sample</b> against beta 0, sample" in page
    printed = capsys.readouterr().out
    assert "beta 4, sample: return -2.60 [-2.70, -2.50]" in printed
    assert "optimal: return -1.23" in printed

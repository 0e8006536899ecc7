import shutil

import numpy as np
import pytest
from conftest import get_config, is_complete, run_stage, viewed
from toy_policies import TASK, policies, stopped_after

from motif_jax.envs.nethack.game import FIGURES
from motif_jax.files import read_json, write_json, write_lines
from motif_jax.pages import players
from motif_jax.pages.blocks import Interval, drawn
from motif_jax.pages.players import read_players, read_results
from motif_jax.run import Run, from_plain
from motif_jax.stages import evaluate
from motif_jax.stages.evaluate import FLAG, find_all, find_contenders, results
from motif_jax.stages.evaluate import play as policy_play


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return shutil.copytree(policies().good, tmp_path_factory.mktemp("evaluated") / "run")


def settings(policy: str = "", **values):
    config = get_config(argument=TASK)
    few = {"policy": policy, "baselines": "", "episodes": 40, "num_workers": 0, "games_per_worker": 8}
    config.evaluate.update(few | values)
    return config


def run(workdir, policy: str = "", **values):
    config = settings(policy, **values)
    if not is_complete(evaluate, config, workdir):
        run_stage(evaluate, config, workdir)
    (contender,) = find_all(viewed(config, "evaluate"), workdir, policy, FLAG)
    folder = workdir / "evaluate" / contender.name
    return evaluate.read_rows(folder / "episodes.jsonl"), read_results(workdir)[contender.name]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Rows and summary of random play."""
    return run(tmp_path_factory.mktemp("played"), "random")


@pytest.mark.journey
def test_a_trained_policy_stands_beside_chance(workdir, capsys):
    rows, summary = run(workdir)
    assert [row["episode"] for row in rows] == list(range(40))
    assert {row["end_status"] for row in rows} <= {"task_successful", "aborted"}
    figures = summary["figures"]
    assert figures["return"]["mean"] == pytest.approx(np.mean([row["episode_return"] for row in rows]))
    assert figures["return"]["mean"] > 0.5  # the best is 0.985 or so
    assert figures["return"]["low"] <= figures["return"]["mean"] <= figures["return"]["high"]
    assert figures["success"]["mean"] > 0.7
    assert set(figures["scout"].values()) == {25.0}
    assert (summary["name"], summary["path"], summary["step"]) == ("policy-7680", ".", 7680)
    # The reward from the checkpoint pays for the stairs alone, the first time that they are taken.
    for row in rows:
        assert row["intrinsic_return"] == pytest.approx(policies().worth_of_stairs * row["success"], rel=1e-5)

    chance, random = run(workdir, "random")
    assert [row["episode"] for row in chance] == list(range(40))
    assert random["figures"]["return"]["high"] < figures["return"]["low"]
    assert random["reward"] == summary["reward"]  # its own workdir's
    assert chance[0]["intrinsic_return"] == pytest.approx(policies().worth_of_stairs * chance[0]["success"], rel=1e-5)
    table = capsys.readouterr().out.splitlines()
    head = next(line for line in table if "random" in line and "policy-7680" in line)
    assert head.split() == ["random", "policy-7680"]
    figures = [*players.keys_of(FIGURES)]
    assert [line.split()[0] for line in table[table.index(head) + 2 :][: len(figures)]] == figures


def test_all_have_the_same_games_and_short_ones_are_not_favoured(played, tmp_path):
    """Whoever plays how many games at a time: what counts are the first episodes, each as it is when played alone."""
    rows, summary = played
    with_workers, _ = run(tmp_path, "random", num_workers=2, games_per_worker=3)
    assert rows == with_workers
    assert summary["figures"]["intrinsic_return"] is None
    assert summary["episodes_given_up"] == []
    for row in rows:
        assert row["episode_return"] == pytest.approx(row["success"] - 0.01 * row["steps"])
    assert max(row["steps"] for row in rows) == 50  # cut ones are among them


@pytest.mark.journey
def test_what_was_played_is_not_played_again(played, tmp_path, monkeypatch, capsys):
    whole, summary = played
    with stopped_after(15, monkeypatch):
        run(tmp_path, "random", num_workers=1)
    assert not is_complete(evaluate, settings("random"), tmp_path)
    rows, resumed = run(tmp_path, "random")
    assert "episodes of random were played before" in capsys.readouterr().out
    assert rows == whole
    assert resumed["figures"] == summary["figures"]
    # More episodes: those that are missing. Fewer: nothing is played, nor forgotten. As many: complete.
    more, summary_of_more = run(tmp_path, "random", episodes=50)
    assert more[:40] == rows
    assert len(more) == 50
    monkeypatch.setattr(policy_play.Pools, "open", None)
    fewer, summary_of_fewer = run(tmp_path, "random", episodes=10)
    assert fewer == more
    assert summary_of_fewer["figures"]["steps"]["mean"] == np.mean([row["steps"] for row in rows[:10]])
    assert is_complete(evaluate, settings("random", episodes=10), tmp_path)
    assert run(tmp_path, "random", episodes=50)[1]["figures"] == summary_of_more["figures"]


@pytest.mark.journey
def test_an_evaluation_is_completed_again_for_what_has_changed_and_figures_are_of_its_episodes(tmp_path, capsys):
    rows, results = run(tmp_path, "random")
    file = tmp_path / "evaluate/random/summary.json"
    summary = read_json(file)
    assert not {"figures", "did", "ends", "returns"} & summary.keys()
    doubled = [row | {"episode_return": 2 * row["episode_return"]} for row in rows]
    write_lines(file.with_name("episodes.jsonl"), doubled)
    doubles = read_results(tmp_path)["random"]["figures"]["return"]["mean"]
    assert doubles == pytest.approx(2 * results["figures"]["return"]["mean"])
    write_lines(file.with_name("episodes.jsonl"), rows)
    # Nothing is played again, and what has changed is named.
    config = settings("random")
    config.policy.count_exponent = 2.5
    assert not is_complete(evaluate, config, tmp_path)
    capsys.readouterr()
    run_stage(evaluate, config, tmp_path)
    told = capsys.readouterr().out
    assert "random is completed again, as these have changed: policy.count_exponent\n" in told
    assert "40 episodes, 0 new steps" in told
    assert is_complete(evaluate, config, tmp_path)
    # A summary of the last release has its figures, and a checksum for a stamp: it is shown, and completed again.
    write_json(file, results | {"stamp": "0123"})
    before = read_players(tmp_path)["random"]
    assert before.figures["return"].mean == results["figures"]["return"]["mean"]
    run_stage(evaluate, config, tmp_path)
    told = capsys.readouterr().out
    assert "random is completed again, as these have changed: the version\n" in told
    assert "40 episodes, 0 new steps" in told
    assert read_players(tmp_path)["random"] == before


@pytest.mark.quick
def test_medians_stand_beside_means_with_intervals_of_their_own():
    """Of few rich episodes and many poor ones the median says what is usual. Beside a slow twin."""
    scores = [*range(90), *[10_000.0] * 11]
    intervals = players.intervals({"score": scores, "gold": [7.0] * 101}, 5, 101)
    assert intervals["gold"] == dict.fromkeys(("mean", "median", "low", "high", "median_low", "median_high"), 7.0)
    score, rng = intervals["score"], np.random.default_rng(5)
    drawn = [sorted(scores[at] for at in rng.integers(101, size=101)) for _ in range(players.RESAMPLES)]
    assert score["median"] == 50
    ends = np.quantile([draw[50] for draw in drawn], (0.025, 0.975))
    assert [score["median_low"], score["median_high"]] == ends.tolist()
    means = np.quantile([sum(draw) / 101 for draw in drawn], (0.025, 0.975))
    assert [score["low"], score["high"]] == pytest.approx(means.tolist())
    assert results.show(from_plain(Interval, score), median=True) == "1,129 [539.2, 1,816] median 50.00"
    assert results.show(Interval(1.0), median=True) == "1.00"


@pytest.mark.quick
def test_the_report_has_the_best_decodings_of_each_policy_with_and_without_values(tmp_path):
    returns = {("values", "sample", 0): 3.0, ("values", "greedy", 0): 2.0, ("values", "sample", 4): 1.0,
               ("values", "sample", 8): 0.5, ("other", "sample", 4): 0.75}  # fmt: skip
    for (policy, kind, beta), value in returns.items():
        summary = {
            "path": "." if policy == "values" else "/other", "step": 10, "greedy": False, "episodes": 4, "task": "toy",
            "figures": {"return": {"mean": value}}, "decoding": {"kind": kind, "beta": beta},
        }  # fmt: skip
        write_json(tmp_path / f"evaluate/{policy}-10-beta{beta}-{kind}/summary.json", summary)
    results.report_evaluation(tmp_path, read_players(tmp_path))
    body = next(drawn(one.blocks) for one in Run(tmp_path).sections() if one.title == "Evaluation")
    shown = ["the policy, beta 0<", "the policy, beta 4<", "other-10, beta 4<"]
    assert [name in body for name in (*shown, "greedy", "beta 8")] == [True, True, True, False, False]


@pytest.mark.quick
def test_checkpoints_are_named_by_their_step_in_a_sweep_of_two_values(tmp_path):
    workdir = tmp_path / "policy.discount=0.9,policy.clip_c=2/seed-0"
    for step in (0, 3840, 7680):
        (workdir / f"policy/checkpoints/{step}").mkdir(parents=True)
    config = viewed(settings(baselines="@3840", controls="grounding"), "evaluate")
    assert [one.step for one, _ in find_contenders(config, workdir)] == [0, 3840, 7680]

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import report_workdir
from annotate_test import Stops
from conftest import check_stage, get_config, is_complete, refusal
from small_dataset import EVENTS, MANY, random_pairs, write_dataset

from motif_jax import experiment
from motif_jax.annotation.annotator import Incomplete, QuestionAnswer
from motif_jax.annotation.backends import Prompted, opened
from motif_jax.captions import encode
from motif_jax.contrib.audit import job
from motif_jax.contrib.audit import stage as audit
from motif_jax.devices.checkpoints import Checkpoints
from motif_jax.envs.worlds import make_world
from motif_jax.episodes.playback import Track, begin, figures_of, write_tracks
from motif_jax.files import read_json, read_lines, write_json, write_lines
from motif_jax.pages.blocks import drawn
from motif_jax.pages.figures import arranged, own_of
from motif_jax.pages.players import read_players
from motif_jax.rewards.preference import make_reward_model
from motif_jax.run import Run
from motif_jax.stages import evaluate
from motif_jax.structs import UserError

EPISODES = 30
HERE = str(Path(__file__).parent)
PLAYER = {"path": "", "step": 0, "greedy": False, "episodes": EPISODES, "task": "toy", "figures": {}}
# Walls are worse than nothing to the rules.
REWARDS = {b"": -0.3, b"It's a wall.": 2.0, b"You descend the stairs.": 1.0}
WEST = 4


def settings(**values):
    return get_config("quickstart.py", "toy", **{f"audit.{name}": value for name, value in values.items()})


def write_player(workdir, name: str, path: str, walls: float) -> None:
    """An evaluated player that plays at random, and walks west with the probability `walls`."""
    config, rng = settings(), np.random.default_rng(len(name))
    world = make_world(config.env)
    game, rows, tracks = world.game(), [], {}
    for episode in range(EPISODES):
        begin(game, config.seed, episode)
        actions, z = [], []
        while not game.end:
            actions.append(WEST if rng.random() < walls else int(rng.integers(9)))
            game.step(actions[-1])
            z.append(REWARDS[game.message])
        z = np.array(z, np.float32)
        nothing = np.full(len(z), np.nan, np.float32)
        tracks[episode] = Track(np.array(actions, np.int32), nothing, nothing, z, np.maximum(z, 0))
        more = {"intrinsic_return": float(tracks[episode].intrinsic.sum()), "did": None, "cause": ""}
        rows.append(figures_of(game.info(), world.figures) | more)
    folder = workdir / "evaluate" / name
    folder.mkdir(parents=True)
    write_tracks(folder / "tracks.npz", tracks)
    write_lines(folder / "episodes.jsonl", rows)
    write_json(folder / "summary.json", PLAYER | {"path": path, "step": 100 if path else 0})


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("played") / "run"
    write_player(workdir, "policy-100", ".", 0.8)
    write_player(workdir, "random", "", 0.0)
    return workdir


@pytest.fixture
def workdir(played, tmp_path):
    return shutil.copytree(played, tmp_path / "run")


def test_the_whole_policy_is_the_agent_and_the_released_one(tmp_path):
    for name, change in {
        "policy-64": {}, "policy-64-gold": {"variant": "gold"}, "policy-64-greedy": {"greedy": True},
    }.items():  # fmt: skip
        report_workdir.write_player(tmp_path, name, 64, 1.0, ("You die...",), "a newt")
        file = tmp_path / "evaluate" / name / "summary.json"
        write_json(file, read_json(file) | change)
    assert audit.find_players(tmp_path)["agent"].name == "policy-64"
    write_json(tmp_path / "evaluate/policy-64-gold/summary.json", read_json(file) | {"variant": "gold", "step": 96})
    players = read_players(tmp_path)
    assert own_of(arranged(players)[""]).name == "policy-64"


def test_another_scripted_player_is_audited_rather_than_random_play(tmp_path):
    for name in ("explorer", "random"):
        write_player(tmp_path, name, "", 0.5)
    players = audit.find_players(tmp_path)
    assert {name: player.name for name, player in players.items()} == {"agent": "explorer", "random": "random"}


def test_findings_are_printed_and_reported(workdir, capsys):
    experiment.run(settings().to_dict(), workdir, ["audit"])
    printed = capsys.readouterr().out
    assert "audit: 1. " in printed
    assert "judged by lexicon_msg_defaultgoal" in printed
    record = read_json(workdir / "audit/audit.json")
    checks = {one["check"]: one["sentence"] for one in record["findings"]}
    assert checks.keys() >= {"pay for neutral captions", "loops"}
    assert 'the repeats of "It\'s a wall." get more than 20 % of the pay' in checks["loops"]
    assert [one["captions"] for one in record["paid"]] == ["gets nowhere", "goes down"]
    assert record["paid"][0]["reward"] == 2.0
    skipped = {one["check"]: one["why"] for one in record["not_looked_at"]}
    assert skipped["triples"].startswith("0 triples of captions have two verdicts")

    page = drawn([part.blocks for part in Run(workdir).sections() if part.stage == "audit"])
    assert "gets nowhere" in page
    assert "--config.policy.threshold_quantile" in page
    experiment.run(settings().to_dict(), workdir, ["audit"])
    assert "audit: complete in" in capsys.readouterr().out
    assert not is_complete(audit, settings(wholes=3), workdir)
    write_json(workdir / "evaluate/random/summary.json", PLAYER | {"seconds": 1})
    assert not is_complete(audit, settings(), workdir)


def test_an_interrupted_audit_resumes_with_its_answers(workdir):
    config, gone = settings(), Incomplete("the judge is gone")
    view = audit.STAGE.view(config.to_dict())
    with pytest.raises(
        UserError, match=r"is gone; 7 of [\d,]+ questions are answered, and the same command"
    ) as stopped:
        job.run(view, workdir, lambda rules: Stops(opened(rules), 7, gone))
    assert not is_complete(audit, config, workdir)
    asked = int(str(stopped.value).split(" of ")[1].split()[0].replace(",", ""))
    answers = workdir / "audit/answers.jsonl"
    assert [spot for line in read_lines(answers) for spot in line.get("asked", ())] == [*range(0, 14, 2)]
    job.run(view, workdir, lambda rules: Stops(opened(rules), asked - 7, gone))  # not one more
    broken = read_json(workdir / "audit/audit.json")
    shutil.rmtree(workdir / "audit")
    job.run(view, workdir)
    assert read_json(workdir / "audit/audit.json") == broken


class Coin(Prompted):
    """Rates each message by a coin, or always good ones higher."""

    model, weights, rng = "coin", "", np.random.default_rng(0)

    def _open(self):
        return self

    def answers(self, questions):
        for question in filter(None, questions):
            yield question, QuestionAnswer(float(self.rng.random() < 0.5) if self.section.model else 0.5)

    def close(self):
        pass


@pytest.mark.parametrize("model", ["tossed", ""])
def test_a_judge_that_rates_is_asked_anew_about_repeats_and_not_about_orders(workdir, capsys, model):
    config = settings()
    config.annotate.update(backend="audit_test:Coin", mode="rate", model=model, custom_name="coin")
    write_dataset(workdir / "dataset", random_pairs(100, events=MANY))
    (workdir / "dataset/preference").mkdir()
    np.save(workdir / "dataset/preference/coin.npy", np.zeros(100, np.int8))
    job.run(audit.STAGE.view(config.to_dict()), workdir)
    record = read_json(workdir / "audit/audit.json")
    assert ("repeated questions" in {one["check"] for one in record["findings"]}) == (model == "tossed")
    why = {one["check"]: one["why"] for one in record["not_looked_at"]}
    for check in ("both orders", "triples"):
        assert why[check].startswith("the judge rates single messages"), why
    asked = r"asks about (\d+) messages, and again about (\d+), whose ratings answer \S+ questions"
    first, again = re.search(asked, capsys.readouterr().out).groups()
    assert 10 < int(again) <= int(first) <= 61  # captions of the pool, and no message


def test_a_judge_whose_files_were_replaced_is_asked_anew(workdir, monkeypatch, capsys):
    config = settings()
    config.annotate.update(backend="audit_test:Coin")
    for weights in ("one", "two"):
        monkeypatch.setattr(Coin, "weights", weights)
        assert not is_complete(audit, config, workdir)
        job.run(audit.STAGE.view(config.to_dict()), workdir)
        assert " 0 are answered" in capsys.readouterr().out
        assert is_complete(audit, config, workdir)


@pytest.mark.parametrize("place", ["", "reward", "reward/checkpoints"])
@pytest.mark.parametrize("value", ["policy.reward_dir", "audit.second_reward_dir"])
def test_an_audit_and_an_evaluation_are_of_a_reward_as_it_is(workdir, tmp_path, value, place):
    other = tmp_path / "other"
    config = get_config("quickstart.py", "toy", **{value.replace(".", "__"): str(other / place)})
    agent = evaluate.Contender("random", "", 0, False)
    stamps = set()
    for seed in (2, 4):  # it is learnt anew
        shutil.rmtree(other, ignore_errors=True)
        write_reward(other, seed, "defaultgoal")
        of_evaluation = evaluate.stamp(evaluate.STAGE.view(config.to_dict()), workdir, agent)
        stamps.add((audit.stamp_of(audit.STAGE.view(config.to_dict()), workdir), json.dumps(of_evaluation)))
    of_audit, of_evaluation = map(set, zip(*stamps, strict=True))
    assert len(of_audit) == 2
    assert len(of_evaluation) == 1 + (value == "policy.reward_dir")


@pytest.mark.parametrize(("change", "check", "why"), [
    ("labels", "inversions", "asked for this audit, as the annotation lexicon_msg_defaultgoal is gone"),
    ("random", "whole episodes", "random play was not evaluated (--config.evaluate.baselines=random)"),
    ("games", "loops", "episodes of policy-100, played back, are not the same (--config.env)"),
    ("unrepeatable", "loops", "this game does not play the same twice, so its episodes cannot be played back"),
    ("oracle", "both orders", "the annotator 'score' compares numbers of the game, so there is no judge of captions to "
     "ask"),
])  # fmt: skip
def test_missing_evidence_is_reported_and_the_rest_is_audited(workdir, change, check, why):
    config = settings()
    if change == "labels":
        write_dataset(workdir / "dataset", random_pairs(50, events=EVENTS))
    if change == "random":
        shutil.rmtree(workdir / "evaluate/random")
    if change == "games":
        config.seed += 1
    if change == "unrepeatable":
        write_json(workdir / "evaluate/policy-100/summary.json", PLAYER | {"path": ".", "repeatable": False})
    if change == "oracle":
        config.annotate.backend = "score"
    check_stage(audit, config)
    job.run(audit.STAGE.view(config.to_dict()), workdir)
    record = read_json(workdir / "audit/audit.json")
    reasons = {one["check"]: one["why"] for one in record["not_looked_at"]}
    reasons |= {one["check"]: one["about"] for one in record["nothing_found"]}
    assert why in reasons[check], reasons
    assert len(record["not_looked_at"]) < 12  # checks


def write_reward(workdir, seed: int, goal: str) -> str:
    options = {"message": "lt_cnn_small", "blstats": False, "crop": False, "glyphs": False}
    shown = np.array([encode(text) for text in ("", "You find gold.")])
    whole = {"train": {"params": make_reward_model(options, seed)[1]}, "captions": shown}
    metadata = {"epoch": 1, "model": options, "statistics": {"mean": 0.0, "variance": 1.0, "quantiles": {}}}
    checkpoints = Checkpoints(workdir / "reward/checkpoints")
    metadata["config"] = {"annotate": {"goal": goal}, "seed": seed // 2}
    checkpoints.save(1, whole | {"counts": np.ones(len(shown), np.int32)}, metadata)
    checkpoints.close()
    return str(workdir)


def test_inversions_are_looked_up_in_both_rewards(workdir, tmp_path):
    write_reward(workdir, 1, "defaultgoal")
    named = write_reward(tmp_path / "other", 2, "defaultgoal")
    write_dataset(workdir / "dataset", random_pairs(50, events=EVENTS))
    (workdir / "dataset/preference").mkdir()
    np.save(workdir / "dataset/preference/lexicon_msg_defaultgoal.npy", np.arange(50, dtype=np.int8) % 2)
    same = write_reward(tmp_path / "same", 0, "defaultgoal")
    with pytest.raises(UserError, match=r"has the seed of the audited one, 0: .*\(--config.audit.second_reward_dir\)"):
        job.run(audit.STAGE.view(settings(second_reward_dir=same).to_dict()), workdir)
    config = settings(second_reward_dir=named)
    job.run(audit.STAGE.view(config.to_dict()), workdir)
    clear = {one["check"]: one["about"] for one in read_json(workdir / "audit/audit.json")["nothing_found"]}
    assert clear["inversions"].endswith("two rewards")
    assert is_complete(audit, config, workdir)


def test_a_file_of_other_trajectories_is_audited_in_place_of_the_agent(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    rows = [{"episode": at, "reward": 1.0, "caption": "pulls a lever"} for at in range(30) for _ in range(10)]
    write_lines(file, rows)
    config, workdir = settings(trajectories=str(file)), tmp_path / "run"
    experiment.run(config.to_dict(), workdir, ["audit", "report"])
    assert "audit: 1. loops: in 100 % [89, 100] of the episodes" in capsys.readouterr().out
    for page in ("audit/index.html", "report/index.html"):
        assert "repeats of &#x27;pulls a lever&#x27;" in (workdir / page).read_text()
    assert is_complete(audit, config, workdir)
    write_lines(file, [*rows, {"episode": 0, "reward": None}])
    assert not is_complete(audit, config, workdir)
    with pytest.raises(UserError, match=r"line 301: reward is None, not .* \(--config.audit.trajectories\)"):
        experiment.run(config.to_dict(), workdir, ["audit"])


@pytest.mark.quick
@pytest.mark.parametrize(("values", "said"), [
    ({"second_reward_dir": HERE}, f"there is no reward in {HERE!r}"),
    ({"second_judge": f"model:{HERE}"}, "there is no config.json in"),
    ({"trajectories": __file__, "second_judge": "rules"}, "is audited alone"),
])  # fmt: skip
def test_values_that_cannot_work_are_refused(values, said, tmp_path):
    config = get_config("motif.py", "score", **{f"audit__{name}": value for name, value in values.items()})
    refusal(lambda: experiment.check(config.to_dict(), ["audit"], tmp_path), said, "--config.")


@pytest.mark.quick
def test_no_place_for_answers_is_needed(tmp_path):
    config = get_config("motif.py", "toy", annotate__backend="server", annotate__cache_dir=f"{__file__}/x")
    experiment.check(config.to_dict(), ["audit"], tmp_path)

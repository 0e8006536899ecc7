import re
import shutil

import numpy as np
import pytest
from chat_server import ChatServer
from conftest import (
    LONG_S,
    assert_same_bits,
    get_config,
    interrupt,
    is_complete,
    last_checkpoint,
    run_stage,
    viewed,
    wait_for,
)
from nethack_texts import LEXICON
from train_policy_test import TINY, train

from motif_jax.annotation import stream
from motif_jax.annotation.annotator import Question, QuestionAnswer
from motif_jax.annotation.backends import Lexicon
from motif_jax.captions import decode, encode
from motif_jax.experiment import check_same_experiment
from motif_jax.files import read_json, read_lines
from motif_jax.policies.model import read_policy
from motif_jax.replays.replay import load_replay
from motif_jax.rewards.online.store import ANSWERED
from motif_jax.stages import evaluate, report, train_policy
from motif_jax.stages.evaluate import file_of
from motif_jax.structs import UserError
from motif_jax.system import http


def settings(task="score", **values):
    own = {"sources": "online:0.5", "train_for_env_steps": 640, "log_every_s": 1e6, "extrinsic_coefficient": 0.0}
    config = get_config(argument=task, **{
        name if name.startswith(("annotate", "evaluate")) else f"policy.{name}": value
        for name, value in (TINY | own | values).items()
    })  # fmt: skip
    config.annotate.cache_dir = ""
    config.env.max_episode_steps = 60
    config.evaluate.update({"baselines": "random", "episodes": 4, "num_workers": 0, "games_per_worker": 4})
    return config


def run(workdir, **values):
    return train(settings(**values), workdir)


def arrays(workdir):
    return last_checkpoint(workdir)[1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("online") / "run"
    run(workdir)
    return workdir


@pytest.mark.journey
def test_the_labels_are_those_of_the_lexicon(trained):
    (row,) = read_lines(trained / "policy/metrics.jsonl")
    assert row["reward/online_labels"] == row["reward/online_captions"] > 3
    assert row["reward/online_waiting"] == row["reward/online_refused"] == 0
    rows = list(read_lines(trained / "policy/opinions.jsonl"))
    assert len(rows) == row["reward/online_labels"] == len({row["caption"] for row in rows})
    for one in rows:
        assert one["yes"] == LEXICON.answer(Question(one["caption"])).yes
        assert (one["goal"], one["by"], one["attempt"]) == ("defaultgoal", "lexicon", 1)
    saved = arrays(trained)["sources"]["online"]
    assert (np.asarray(saved["store"]["questions"]["state"]) == ANSWERED).all()
    assert np.asarray(saved["counters"]).tolist()[:3] == [640, 10, len(rows)]


@pytest.mark.journey
def test_a_run_that_was_killed_and_goes_on_is_the_same_to_the_bit(trained, tmp_path, at_batch):
    for name in ("straight", "killed"):
        shutil.copytree(trained, tmp_path / name)
    run(tmp_path / "straight", train_for_env_steps=1280)

    at_batch(4, interrupt)  # between checkpoints
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", train_for_env_steps=1280)
    run(tmp_path / "killed", train_for_env_steps=1280)
    assert_same_bits(arrays(tmp_path / "killed"), arrays(tmp_path / "straight"))
    opinions = [
        [{name: value for name, value in row.items() if name != "seconds"} for row in read_lines(file)]
        for file in (tmp_path / "killed/policy/opinions.jsonl", tmp_path / "straight/policy/opinions.jsonl")
    ]
    assert opinions[0] == opinions[1]


@pytest.mark.journey
def test_a_checkpoint_is_evaluated_and_replayed_with_the_reward_that_it_had(trained, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "run")
    source = read_policy(workdir)[2].get("online")
    labels = {row["caption"]: row["yes"] for row in read_lines(workdir / "policy/opinions.jsonl")}
    texts = [*labels, "You hear the howling of the CwnAnnwn..."]
    worth = source.worth(np.array([encode(text) for text in texts]))
    assert worth.tolist() == [labels.get(text, 0.0) for text in texts]

    run_stage(evaluate, settings(evaluate__replays="liked"), workdir)
    rows = list(read_lines(workdir / "evaluate/policy-640/episodes.jsonl"))
    summary = read_json(workdir / "evaluate/policy-640/summary.json")
    assert summary["sources"]["online"]["goal"] == "defaultgoal"
    assert summary["sources"]["online"] == read_json(workdir / "evaluate/random/summary.json")["sources"]["online"]
    best = max(rows, key=lambda row: (row["returns"]["online"], row["episode_return"], -row["episode"]))
    replay = load_replay(file_of(workdir / "evaluate/policy-640", best["episode"]), "--config")
    assert replay.intrinsic.sum() == pytest.approx(best["returns"]["online"])
    shown = [labels.get(text, 0.0) for text in map(decode, replay.message[1:])]
    assert np.nan_to_num(replay.z).tolist() == shown


@pytest.fixture
def streams(monkeypatch):
    """The streams of questions that were begun."""
    begun = []

    def begin(self, *arguments, real=stream.Stream.__init__, **options):
        begun.append(self)
        real(self, *arguments, **options)

    monkeypatch.setattr(stream.Stream, "__init__", begin)
    return begun


def test_a_run_on_several_threads_with_a_judge_behind_http(tmp_path, streams, at_batch):
    at_batch(45, lambda: wait_for(lambda: streams[-1].counts.asked))
    rows = run(
        tmp_path, synchronous=False, num_workers=1, train_for_env_steps=3200, annotate__backend="judge",
        annotate__judge__delay_s=0.01, online__labels_per_1000_steps=10.0,
    )  # fmt: skip
    last, opinions = rows[-1], list(read_lines(tmp_path / "policy/opinions.jsonl"))
    assert 0 < last["reward/online_labels"] == len(opinions) <= 32
    assert last["reward/online_strangers"] == last["reward/online_failures"] == 0
    assert all(row["yes"] == LEXICON.answer(Question(row["caption"])).yes for row in opinions)
    assert len({row["caption"] for row in opinions}) == len(opinions)


@pytest.mark.differs(
    "oni",
    there="a failing server ends retrieval and classification, and freezes ranking without a message",
    here="training continues without it, and one line a minute says so",
)
def test_training_continues_while_the_judge_is_down(tmp_path, monkeypatch, capsys, streams, at_batch):
    monkeypatch.setattr(stream, "MAX_PAUSE_S", 0.2)
    monkeypatch.setattr(http, "MAX_PAUSE_S", 0.1)
    with ChatServer() as chat:
        at_batch(3, chat.stop)
        at_batch(17, lambda: wait_for(lambda: streams[-1].failures and streams[-1].silent_s > 0.3))
        at_batch(1, lambda: chat.asked.clear() or chat.start())
        at_batch(19, lambda: wait_for(lambda: chat.asked and streams[-1].silent_s == 0))  # it has answered again
        rows = run(
            tmp_path, synchronous=False, train_for_env_steps=64 * 60, annotate__backend="server",
            annotate__server__url=chat.url, online__patience_s=0.3, annotate__server__start_s=LONG_S,
        )  # fmt: skip
    printed = capsys.readouterr().out
    assert "training continues without new labels" in printed
    assert "the judge is back online" in printed
    assert rows[-1]["reward/online_failures"] > 0
    assert rows[-1]["env_steps"] == 64 * 60
    late = [row for row in read_lines(tmp_path / "policy/opinions.jsonl") if row["env_steps"] > 64 * 21]
    assert late


def test_a_judge_with_unreadable_answers_ends_a_saved_run_with_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Lexicon, "answer", lambda self, question: QuestionAnswer(None, "Hard to say."))
    with pytest.raises(UserError, match=r"'online': .* of .* answers lack .*'Hard to say\.'.*the policy is saved"):
        run(tmp_path, online__attempts=100)
    assert "train_policy: the reward source 'online'" in capsys.readouterr().out
    assert is_complete(train_policy, settings(online__attempts=100), tmp_path)
    run_stage(report, settings(), tmp_path)
    page = (tmp_path / "report/index.html").read_text()
    lead = page.partition('<p class="lead">')[2].partition("</p>")[0]
    assert re.match(r"<b>None of the [\d,]+ answers of the rules could be read</b>", lead)
    assert "rewarded by the answers of the rules alone" in lead


def test_another_kind_judge_or_schedule_is_refused(trained, tmp_path):
    file = trained / "policy/config.json"
    with pytest.raises(UserError, match="policy.online.kind +'retrieval' +'ranking'"):
        check_same_experiment(train_policy.STAGE, viewed(settings(online__kind="ranking")), trained, file)
    check_same_experiment(train_policy.STAGE, viewed(settings(online__order="count")), trained, file)
    shutil.copytree(trained, tmp_path / "run")
    with pytest.raises(UserError, match=r"640 steps were trained with the goals 'defaultgoal@0'.*online.goals"):
        run(tmp_path / "run", online__goals="gold@0", train_for_env_steps=1280)
    with pytest.raises(UserError, match=r"the labels in the checkpoint come from judge .*--config.annotate"):
        run(tmp_path / "run", annotate__backend="judge", train_for_env_steps=1280)
    rows = run(tmp_path / "run", online__goals="defaultgoal@0,gold@700", train_for_env_steps=1280)
    assert rows[-1]["env_steps"] == 1280
    goals = {row["env_steps"]: row["goal"] for row in read_lines(tmp_path / "run/policy/opinions.jsonl")}
    assert {goal for step, goal in goals.items() if step < 700} == {"defaultgoal"}
    assert {goal for step, goal in goals.items() if step >= 700} == {"gold"}

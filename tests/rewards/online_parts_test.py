"""Parts of online rewards: the store, what hosts tell each other, an earlier reward's opinion."""

import threading
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import get_config, refusal, viewed
from nethack_texts import LEXICON
from policy_rewards_test import MESSAGES, make_reward

from motif_jax.annotation.annotator import Question
from motif_jax.captions import decode, encode
from motif_jax.envs.world import WAIT
from motif_jax.rewards.learnt_source import Reward
from motif_jax.rewards.online import source as online_source
from motif_jax.rewards.online import store as online_store
from motif_jax.rewards.online.source import OnlineSource
from motif_jax.rewards.online.store import ANSWERED, IDLE, REFUSED, WAITING, News, Store
from motif_jax.rewards.source import Captioned, Setting
from motif_jax.rewards.statistics import summarise_values

TEXTS = ["You kill the newt!", "It's a wall.", "", "$ - 12 gold pieces.", "You hit the newt.", "You die..."]


def messages(*texts) -> np.ndarray:
    return np.array([encode(text) for text in texts], np.uint8).reshape(-1, 256)


def seen(*texts) -> News:
    return News(messages(*texts), np.ones(len(texts), np.int64))


def batch_of(*texts):
    """Rollouts of one step of one game per text, each shown for the first time."""
    shown = messages(*texts)[None]
    return {
        "event_message": shown,
        "event_message_count": np.ones(shown.shape[:2], np.int32),
        "reward": np.zeros(shown.shape[:2], np.float32),
        "action": np.zeros(shown.shape[:2], np.int32),
    }


def show(source, *texts):
    source.rewards(batch_of(*texts))
    source.advance(SimpleNamespace(steps=len(texts)), None)


@pytest.mark.quick
def test_steps_of_a_waiting_game_are_not_valued():
    class Worthy(Captioned):
        def worth(self, messages):
            self.shown = [decode(message) for message in messages]
            return np.full(len(messages), 2.0, np.float32)

    source, batch = Worthy(1.0, False), batch_of("A newt.", "A newt.", "Gold.")
    batch["action"][0, 1] = WAIT
    batch["event_message_count"][0, 2] = 2
    assert source.rewards(batch).tolist() == [[2.0, 0.0, 1.0]]
    assert source.shown == ["A newt.", "Gold."]


def make(tmp_path, goal="defaultgoal", **values):
    config = get_config(argument="score", policy__synchronous=True, annotate__goal=goal)
    config.policy.online.update({"message": "lt_cnn_small"} | values)
    return OnlineSource.make(Setting(viewed(config), tmp_path, {}))


def check_goals(make_source: Callable[..., OnlineSource], goal: str, other: str) -> None:
    """Goals come from `annotate.goal` or from a schedule; `make_source` takes values of `policy.online`."""

    def shown(**values):
        source = make_source(**values)
        show(source, "You find gold.", "You fight.")
        return source.about()["goal"], source.rewards(batch_of("You find gold.", "You fight."))[0].tolist()

    assert shown(goal=goal)[0] == goal
    assert shown(goal=goal) == shown(goals=f"{goal}@0") == shown(goal=other, goals=f"{goal}@0") != shown(goal=other)


def test_the_goal_is_that_of_annotate_unless_there_is_a_schedule(tmp_path):
    check_goals(lambda **values: make(tmp_path, kind="retrieval", **values), "gold", "combat")


@pytest.mark.differs(
    "oni",
    there='an answer that cannot be parsed counts as "not helpful", or as a tie, for ever',
    here="it is not a label; the question is asked again, up to `attempts` times",
)
@pytest.mark.quick
def test_unreadable_answers_are_asked_again_up_to_a_limit():
    store = Store(pairs=False, capacity=100)
    rows = store.see(seen(*TEXTS[:3]), 1)
    store.want(rows, 1)
    assert store.waiting.tolist() == [0, 1, 2]
    store.take(0, None, most_attempts=2)
    store.take(1, 0.0, most_attempts=2)
    assert store.waiting.tolist() == [0, 2]
    store.take(0, None, most_attempts=2)
    for number in (0, 1, 77):  # nobody asked any more
        store.take(number, 1.0, 2)
    assert store.questions["state"].tolist() == [REFUSED, ANSWERED, WAITING]
    store.want(rows, 2)  # seen again
    assert store.waiting.tolist() == [2]
    store.drop(np.array([2]))
    assert store.questions["state"][2] == IDLE
    assert store.labels.tolist() == [-1, 0, -1]
    store.forget_labels()
    assert store.questions["state"].tolist() == [IDLE] * 3
    assert store.of_captions["count"].tolist() == [1, 1, 1]


def test_a_pair_that_was_dropped_waits_again_when_it_is_seen_again():
    store = Store(pairs=True, capacity=100)
    rows = store.see(seen(*TEXTS[:3]), 1)
    for _ in range(2):
        assert store.add_pairs(rows[:2], rows[1:], 1) == 0
        assert store.waiting.tolist() == [0, 1]
        store.drop(np.array([1]))
        assert store.waiting.tolist() == [0]


def test_two_hosts_learn_the_same_and_one_alone_asks(tmp_path, monkeypatch):
    """Two sources in two threads; what `from_every_host` would gather is put together here."""
    sent, barrier = {}, threading.Barrier(2)

    def gather(words):
        sent[threading.current_thread().name] = words
        barrier.wait()
        gathered = np.stack([sent["0"], sent["1"]])
        barrier.wait()
        return gathered

    def advance(source):
        try:
            source.advance(SimpleNamespace(steps=6), hosts)  # of both
        except BaseException:
            barrier.abort()  # so that the other one does not wait
            raise

    monkeypatch.setattr(online_store, "from_every_host", gather)
    sources = [make(tmp_path / str(number)) for number in range(2)]
    sources[1]._judge.stream.close()
    sources[1]._judge = None  # the second host asks nobody
    alone = make(tmp_path / "alone")
    hosts = SimpleNamespace(count=2, check_same=lambda what, tree: None)
    shown = [([*TEXTS[:2], TEXTS[0]], TEXTS[2:5]), (TEXTS[4:6], TEXTS[:2]), (TEXTS[:3], TEXTS[3:6])]
    for one, other in shown:
        for source, texts in zip(sources, (one, other), strict=True):
            source.rewards(batch_of(*texts))
        threads = [threading.Thread(target=advance, args=(one,), name=str(at)) for at, one in enumerate(sources)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        alone.rewards(batch_of(*one, *other))
        alone.advance(SimpleNamespace(steps=6), None)
    known = {text for source in sources for text in TEXTS if source.worth(messages(text))[0]}
    assert known <= {text for text in TEXTS if LEXICON.answer(Question(text)).yes}
    first, second = (source.arrays() for source in sources)
    for name in ("captions", "questions"):
        for column in first["store"][name]:
            one, other = (arrays["store"][name][column] for arrays in (first, second))
            assert np.array_equal(one, other), column
    assert np.array_equal(first["counters"], second["counters"])
    # The same captions and counts as on one host; labels come one update later, as they travel with the next exchange.
    counts = [
        dict(zip(map(source.store.text, range(len(source.store.captions))), source.store.of_captions["count"].tolist(),
                 strict=True))
        for source in (sources[0], alone)
    ]  # fmt: skip
    assert counts[0] == counts[1]
    assert (sources[1].store.questions["state"] == ANSWERED).sum() == len(TEXTS)
    assert sources[0].steps == alone.steps == 18


def test_hosts_exchange_their_news_before_the_first_one_fails(tmp_path, monkeypatch):
    source, sent = make(tmp_path), []
    monkeypatch.setattr(online_store, "from_every_host", lambda words: sent.append(words) or words[None])
    monkeypatch.setattr(source._judge, "answers", lambda steps: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        source.advance(SimpleNamespace(steps=6), SimpleNamespace(count=2))
    assert len(sent) == 2  # its length, and the news


def start_from(tmp_path, monkeypatch, **values):
    """A reward with random parameters, as if it had been learnt, and a source that begins with it."""
    untrained, counts = make_reward(), np.ones(len(TEXTS), np.int32)
    statistics = summarise_values(untrained(TEXTS).raw, counts)
    reward = Reward(MESSAGES, untrained.params, statistics, messages(*TEXTS), counts, {})
    monkeypatch.setattr(online_source, "load_reward", lambda path, which: reward)
    return reward, make(tmp_path, init_from=str(tmp_path), **values)


def test_an_earlier_reward_is_the_opinion_until_the_judge_has_one(tmp_path, monkeypatch):
    reward, source = start_from(tmp_path, monkeypatch, labels_per_1000_steps=1.0, goals="defaultgoal@0,gold@4000")
    threshold = reward.statistics.quantile(get_config().policy.threshold_quantile)
    helpful = reward(messages(*TEXTS)).normalised > threshold
    assert 0 < helpful.sum() < len(TEXTS)
    source.rewards(batch_of(*TEXTS))
    source.advance(SimpleNamespace(steps=10), None)  # too few for a question
    assert source.worth(messages(*TEXTS)).tolist() == helpful.tolist()
    source.rewards(batch_of(*TEXTS))
    source.advance(SimpleNamespace(steps=2000), None)  # enough for two
    answered = source.store.questions["state"] == ANSWERED
    assert answered.sum() == 2
    rows = source.store.captions.lookup.find(messages(*TEXTS))
    expected = np.where(answered[rows], [bool(LEXICON.answer(Question(text)).yes) for text in TEXTS], helpful)
    assert source.worth(messages(*TEXTS)).tolist() == expected.tolist()
    again = OnlineSource.rebuild(source.arrays(), source.facts())
    assert again.worth(messages(*TEXTS)).tolist() == expected.tolist()
    source._passed.clear()
    source.advance(SimpleNamespace(steps=2000), None)  # the goal changes: the opinion is about another
    assert not source.worth(messages(*TEXTS)).any()


def test_ranking_begins_with_the_parameters_of_an_earlier_reward(tmp_path, monkeypatch):
    reward, source = start_from(tmp_path, monkeypatch, kind="ranking", anchor="none", floor=-1e6)
    found = source.worth(messages(*TEXTS))
    assert found.tolist() == pytest.approx(reward(messages(*TEXTS)).normalised.tolist(), rel=1e-4, abs=1e-5)
    anchored = start_from(tmp_path, monkeypatch, kind="ranking")[1].worth(messages(*TEXTS))
    raw = reward(messages("", *TEXTS)).raw
    better = np.tanh((raw[1:] - raw[0]) / 2)
    assert anchored.tolist() == pytest.approx(np.where(better >= 0.2, better, 0.0).tolist(), rel=1e-4, abs=1e-5)
    refusal(lambda: start_from(tmp_path, monkeypatch, kind="ranking", message="lt_cnn"), "not 'lt_cnn'")

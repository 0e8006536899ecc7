"""Rules of online rewards: questions that wait, lessons, rewarded steps, ranking against the neutral moment."""

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import get_config, viewed
from nethack_texts import LEXICON
from online_parts_test import TEXTS, make, messages, seen, show

from motif_jax.annotation.annotator import Question
from motif_jax.rewards.online.kinds import NetworkKind, Ranking, TrainingSettings
from motif_jax.rewards.online.source import OnlineSource, in_order
from motif_jax.rewards.online.store import Store
from motif_jax.rewards.source import Setting
from motif_jax.rewards.statistics import RunningStats


@pytest.mark.differs(
    "oni",
    there="pairs are made while fewer than 200 wait, and a stack behind them keeps 10,000",
    here="`queue` bounds all waiting questions, pairs included (2,000); a dropped one returns when its message is seen",
)
def test_the_queue_is_bounded_and_dropped_questions_return(tmp_path):
    source = make(tmp_path, queue=2, labels_per_1000_steps=1.0)  # too few steps for a question
    show(source, *TEXTS[:4])
    kept = source.store.waiting.tolist()
    dropped = [row for row in range(4) if row not in kept]
    assert len(kept) == len(dropped) == 2
    show(source, *(source.store.text(row) for row in dropped))
    assert source.store.waiting.tolist() == dropped

    pairs = make(tmp_path, kind="ranking", anchor="none", queue=2, labels_per_1000_steps=1.0)
    for _ in range(3):
        show(pairs, *TEXTS)
        assert len(pairs.store.waiting) == 2


@pytest.mark.quick
@pytest.mark.differs(
    "oni",
    there="at exactly `switch_at` labels, updates are without a lesson",
    here="from `switch_at` labels on, each update has `updates_late` lessons",
)
@pytest.mark.differs(
    "oni",
    there="early lessons are shuffled epochs with a smaller last batch",
    here="each lesson draws its labels anew, without repetition",
)
def test_lessons_follow_labels_and_then_updates():
    given = []

    class Drawn(NetworkKind):
        doubt = score = view = worth = None  # of no concern here

        def __init__(self, settings):
            self._settings, self.updates = settings, 0

        def batch(self, store, chosen):
            return chosen

        def update(self, batch):
            given.append(batch)

    sizes = {"batch_size": 4, "lessons_early": 3, "lessons_late": 1, "switch_at": 6, "seed": 0}
    kind = Drawn(TrainingSettings("lt_cnn_small", 1e-3, **sizes))
    for labels, new, lessons in ((5, 2, 3), (5, 0, 0), (6, 1, 1), (6, 0, 1), (7, 0, 1)):
        given.clear()
        kind.learn(SimpleNamespace(answered=np.arange(labels)), new, RunningStats())
        assert len(given) == lessons
        assert all(len({*drawn.tolist()}) == 4 for drawn in given)


@pytest.mark.quick
@pytest.mark.differs(
    "oni",
    there="a label rewards the step after the one that led to the message, and the last message of an episode is lost",
    here="the step that led to the message, also the last one",
    reference="as released",
)
@pytest.mark.parametrize("late", [False, True])
def test_a_label_rewards_the_step_that_led_to_the_message(tmp_path, late):
    config = get_config(argument="score,reference" if late else "score", policy__synchronous=True)
    source = OnlineSource.make(Setting(viewed(config), tmp_path, {}))
    helpful = "You kill the newt!"
    shown, count = messages("", helpful, "", "")[None], np.ones((1, 4), np.int32)
    before = np.roll(shown, 1, axis=1)  # a step later
    batch = {"event_message": shown, "event_message_count": count, "message": before, "message_count": count}
    batch |= {"reward": np.zeros((1, 4), np.float32), "action": np.zeros((1, 4), np.int32)}
    source.rewards(batch)
    source.advance(SimpleNamespace(steps=4), None)
    assert source.rewards(batch).tolist() == [[0, 0, 1, 0] if late else [0, 1, 0, 0]]


@pytest.mark.quick
def test_a_caption_is_paid_for_being_better_than_no_message():
    """Scores are log odds: ln 3 above the neutral moment is a probability of 3/4, so a worth of 1/2."""
    teaching = {"message": "lt_cnn_small", "learning_rate": 1e-3, "batch_size": 4, "seed": 0}
    teaching |= {"lessons_early": 1, "lessons_late": 1, "switch_at": 1}
    facts = {"kind": "ranking", "anchor": "neutral", "normalise": True, "floor": 0.0, "threshold": 0.5}
    kind = Ranking(facts | {"teaching": teaching})
    asked_for = []

    def scores(params, shown):
        asked_for.append(shown)
        return np.full(len(shown), params, np.float32)

    kind._state, kind.scores = {"params": 2.0}, scores
    assert kind.view(None) is None
    assert kind.worth(None, kind.score(None, messages("a"), np.zeros(1))).tolist() == [0]
    kind.updates = 1
    odds = np.array([1, 3, 19, 1.55, 1.45, 1 / 3])
    view = kind.view(None)
    for _ in range(2):
        worth = kind.worth(kind.view(None), (2 + np.log(odds)).astype(np.float32))
        assert worth.tolist() == pytest.approx([0, 0.5, 0.9, 0.55 / 2.55, 0, 0], abs=1e-6)
    assert len(asked_for) == 1  # once per snapshot
    assert not asked_for[0].any()
    kind._state = {"params": 3.0}
    assert (view.zero, kind.view(None).zero) == (2, 3)


@pytest.mark.differs(
    "oni",
    there="ranking asks about pairs of messages, drawn by frequency",
    here="it asks once whether a message is better than a moment without one, and pays 2p - 1 where the "
    "network's probability p of that is at least 0.6",
    reference="as released",
)
def test_each_caption_is_asked_once_against_no_message(tmp_path):
    source = make(tmp_path, kind="ranking")
    show(source, *TEXTS[:2], TEXTS[0])
    show(source, *TEXTS)
    texts = [source.store.text(row) for row in range(len(TEXTS))]
    assert (texts[0], sorted(texts)) == ("", sorted(TEXTS))
    expected = [(text, "", 1) if row % 2 else ("", text, 1) for row, text in enumerate(texts) if row]
    columns = (source.store.questions[name].tolist() for name in ("first", "second", "attempts"))
    assert [(texts[first], texts[second], answers) for first, second, answers in zip(*columns, strict=True)] == expected
    assert source.store.questions["label"].tolist() == [
        LEXICON.answer(Question(first, second)).yes for first, second, _ in expected
    ]


def test_recency_asks_first_about_the_caption_that_was_seen_last():
    store = Store(pairs=True, capacity=100, anchored=True)
    (often,) = store.see(seen("often"), 1)
    store.compare_with_neutral(np.array([often]), 1)
    (rare,) = store.see(seen("rare"), 2)
    store.compare_with_neutral(np.array([rare]), 2)
    store.see(seen("often"), 3)
    assert in_order(store, None, "recency").tolist() == [0, 1]  # the question about `often` has waited for longer

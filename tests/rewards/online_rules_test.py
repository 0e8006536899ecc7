"""Rules of online rewards: which questions wait, when networks learn, and which step is rewarded."""

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import get_config, viewed
from online_parts_test import TEXTS, make, messages, show

from motif_jax.rewards.online.kinds import NetworkKind, TrainingSettings
from motif_jax.rewards.online.source import OnlineSource
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
    here="from `switch_at` labels on, each update has `lessons_late` lessons",
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

    kind = Drawn(
        TrainingSettings("lt_cnn_small", 1e-3, batch_size=4, lessons_early=3, lessons_late=1, switch_at=6, seed=0)
    )
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

"""ONI's ranking against the neutral moment: its questions and its worth."""

import numpy as np
import pytest
from online_parts_test import LEXICON, TEXTS, make, messages, seen, show

from motif_jax.annotation.annotator import Question
from motif_jax.rewards.online.kinds import Ranking
from motif_jax.rewards.online.source import in_order
from motif_jax.rewards.online.store import Store


def asked(store):
    columns = (store.questions[name].tolist() for name in ("first", "second", "attempts"))
    return [(store.text(first), store.text(second), answers) for first, second, answers in zip(*columns, strict=True)]


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
    assert asked(source.store) == expected
    assert source.store.questions["label"].tolist() == [
        LEXICON.answer(Question(first, second)).yes for first, second, _ in expected
    ]


def test_recency_asks_first_about_the_caption_that_was_seen_last():
    store = Store(pairs=True, capacity=100, anchored=True)
    (often,) = store.see(seen(new=("often",), times=(1,)), 1)
    store.compare_with_neutral(np.array([often]), 1)
    (rare,) = store.see(seen(new=("rare",), times=(1,)), 2)
    store.compare_with_neutral(np.array([rare]), 2)
    store.see(seen(rows=(often,), counts=(1,)), 3)
    assert in_order(store, None, "recency").tolist() == [0, 1]  # the question about `often` has waited for longer

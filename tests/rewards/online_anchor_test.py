"""ONI's ranking against the neutral moment: its questions, its worth, and what began before it."""

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import get_config, viewed
from online_parts_test import LEXICON, TEXTS, make, messages, seen, show

from motif_jax import experiment
from motif_jax.annotation.annotator import Question
from motif_jax.envs.texts import texts_of
from motif_jax.files import write_config
from motif_jax.rewards.online.asking import in_order
from motif_jax.rewards.online.kinds import Anchored, Ranking
from motif_jax.rewards.online.online_section import check_online
from motif_jax.rewards.online.source import OnlineSource
from motif_jax.rewards.online.store import ANSWERED, Store
from motif_jax.stages import train_policy
from motif_jax.stages.train_policy.page import kind_of
from motif_jax.structs import UserError


def asked(store):
    """The questions as texts, with their numbers of answers."""
    columns = (store.questions[name].tolist() for name in ("first", "second", "attempts"))
    return [(store.text(first), store.text(second), answers) for first, second, answers in zip(*columns, strict=True)]


@pytest.mark.quick
def test_a_caption_is_paid_for_being_better_than_no_message():
    """Scores are log odds: ln 3 above the neutral moment is a probability of 3/4, so a worth of 1/2."""
    kind = Anchored(SimpleNamespace(message="lt_cnn_small", learning_rate=1e-3, seed=0))
    asked_for = []

    def scores(params, shown):
        asked_for.append(shown)
        return np.full(len(shown), params, np.float32)

    kind._pupil = SimpleNamespace(params=2.0, lessons=0, scores=scores)
    assert kind.view(None) is None
    assert kind.worth(None, kind.score(None, messages("a"), np.zeros(1))).tolist() == [0]
    kind._pupil.lessons = 1
    odds = np.array([1, 3, 19, 1.55, 1.45, 1 / 3])
    view = kind.view(None)
    for _ in range(2):
        worth = kind.worth(kind.view(None), (2 + np.log(odds)).astype(np.float32))
        assert worth.tolist() == pytest.approx([0, 0.5, 0.9, 0.55 / 2.55, 0, 0], abs=1e-6)
    assert len(asked_for) == 1  # once per snapshot
    assert not asked_for[0].any()
    kind._pupil.params = 3.0
    assert (view.zero, kind.view(None).zero) == (2, 3)


@pytest.mark.differs(
    "oni",
    there="ranking asks about pairs of messages, drawn by frequency",
    here="ranking asks once whether a message is better than a moment without one, and pays 2p - 1 where the network's "
    "probability p of that is at least 0.6",
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


def test_a_dropped_question_returns_with_its_caption_and_a_new_goal_asks_again(tmp_path):
    source = make(tmp_path, kind="ranking", queue=1, labels_per_1000_steps=1.0)  # too few steps for a question
    show(source, *TEXTS[:2])
    (kept,) = source.store.waiting
    (dropped,) = {0, 1} - {kept}
    show(source, source.store.text(dropped + 1))
    assert source.store.waiting.tolist() == [dropped]

    source = make(tmp_path, kind="ranking", goals="defaultgoal@0,gold@6")
    show(source, *TEXTS[:2])
    show(source, TEXTS[0])
    show(source, *TEXTS[:3])  # the goal changes
    assert sorted(first or second for first, second, _ in asked(source.store)) == sorted(TEXTS[:2])
    assert (source.store.questions["state"] == ANSWERED).all()


@pytest.mark.quick
def test_the_most_frequent_caption_is_asked_first_where_all_moments_have_a_message():
    store = Store(pairs=True, capacity=100, anchored=True)
    store.compare_with_neutral(store.see(seen(new=["a", "b", "c"], times=(2, 9, 4)), 1), 1)
    ordered = in_order(store, None, "count")
    assert [max(asked(store)[number][:2]) for number in ordered] == ["b", "c", "a"]
    assert store.of_captions["count"].tolist() == [0, 2, 9, 4]


def test_helpful_captions_are_paid_and_harmless_ones_are_not(tmp_path):
    source = make(tmp_path, kind="ranking", learning_rate=1e-3, batch_size=8, lessons_early=60)
    show(source, *TEXTS)
    worth = dict(zip(TEXTS, source.worth(messages(*TEXTS)).tolist(), strict=True))
    better = {text: LEXICON.answer(Question("", text)).yes for text in TEXTS}
    assert {0, 0.5, 1} == {*better.values()}
    for text, label in better.items():
        assert (worth[text] >= 0.2) == (label == 1), (text, worth)
    assert worth[""] == 0
    again = OnlineSource.rebuild(source.arrays(), source.facts())
    assert again.worth(messages(*TEXTS)).tolist() == list(worth.values())


@pytest.mark.quick
def test_what_began_without_an_anchor_goes_on_without_one(tmp_path):
    facts = make(tmp_path, kind="ranking", anchor="none").facts()
    assert "anchor" not in facts  # as in checkpoints from before
    assert type(OnlineSource(facts).kind) is Ranking
    assert type(make(tmp_path, kind="ranking").kind) is Anchored

    def check(argument, **now):
        """Goes on with a workdir of this argument from before there were anchors."""
        before, config = get_config("oni.py", argument), get_config("oni.py", argument)
        del before.policy.online["anchor"]
        write_config(tmp_path, before)
        config.policy.online.update(now)
        experiment.check_same_experiment(config, tmp_path, tmp_path / "config.json", train_policy.STAGE)

    with pytest.raises(UserError, match=r"anchor = 'none', not 'neutral'.*--config.policy.online.anchor=none"):
        check("score,ranking")
    check("score,ranking", anchor="none")
    check("score,ranking,reference")
    check("score,ranking,reference", anchor="neutral")  # which has no effect there
    check("score,retrieval")


@pytest.mark.quick
def test_values_of_pairs_are_refused_with_an_anchor():
    config = get_config("oni.py", "score,ranking")
    texts = texts_of(config.env, config.annotate.lexicon)

    def check():
        check_online(viewed(config).policy.online, viewed(config).annotate, texts, config.seed)

    check()
    config.policy.online.floor = 1.0
    with pytest.raises(UserError, match=r"uses floor = 1.0 \(--config.policy.online.floor\) only with .*anchor=none"):
        check()
    config.policy.online.anchor = "none"
    check()


@pytest.mark.quick
def test_the_page_says_which_way():
    online = {"kind": "ranking", "goals": "defaultgoal@0", "normalise": True}
    found = [kind_of(online | {"anchor": anchor}, []).split(" · ")[0] for anchor in ("neutral", "none")]
    assert found == ["ranking: captions against a moment without a message", "ranking: captions against each other"]
    assert kind_of(online | {"kind": "retrieval"}, []) == "retrieval · goal: defaultgoal"

"""ONI's ranking with several heads: their bootstrap weights, their lessons, and the order of the questions."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import get_config
from online_parts_test import TEXTS, batch_of, make, messages, seen

from motif_jax.envs.texts import texts_of
from motif_jax.rewards.heads import pair_weights
from motif_jax.rewards.model import make_reward_model
from motif_jax.rewards.online.asking import in_order
from motif_jax.rewards.online.kinds import Anchored, Ranking
from motif_jax.rewards.online.online_section import check_online
from motif_jax.rewards.online.pupil import SEED, Teaching
from motif_jax.rewards.online.source import OnlineSource
from motif_jax.rewards.online.store import Store
from motif_jax.structs import UserError

OPTIONS = {"message": "lt_cnn_small", "blstats": False, "crop": False, "glyphs": False}
TEACHING = Teaching("lt_cnn_small", 1e-3, 8, 2, 1, 1000, seed=3, heads=4)


@pytest.mark.quick
def test_weights_belong_to_the_pair_the_head_and_the_seed():
    pairs = np.random.default_rng(0).integers(1_000_000, size=(4000, 2))
    drawn = pair_weights(pairs, 5, 7)
    assert drawn.shape == (4000, 5)
    np.testing.assert_array_equal(drawn, pair_weights(pairs[:, ::-1], 5, 7))
    np.testing.assert_array_equal(drawn[100:103, :2], pair_weights(pairs[100:103], 2, 7))
    np.testing.assert_allclose([drawn.mean(0), drawn.var(0)], 1, atol=0.12)  # Poisson
    counts = np.bincount(drawn.astype(int).ravel(), minlength=3) / drawn.size
    np.testing.assert_allclose(counts[:3], np.exp(-1) / np.array([1, 1, 2]), atol=0.02)
    apart = np.corrcoef(np.concatenate([drawn, pair_weights(pairs, 5, 8)], 1).T) - np.eye(10)
    assert np.abs(apart).max() < 0.08


def stored(anchored: bool) -> Store:
    """Captions with six questions, of which the first four have labels."""
    store = Store(True, 100, anchored)
    rows = store.see(seen(new=[*TEXTS, "You fall."], times=(1,) * 7), 1)
    if anchored:
        store.compare_with_neutral(rows, 1)
    else:
        store.add_pairs(rows[:6], rows[1:], 1)
    for number, question in enumerate(store.waiting.tolist()[:4]):
        store.take(question, (0.0, 1.0, 0.5, 0.8)[number], 3)
    return store


@functools.cache
def compiled():
    """The model with its heads, which takes whole messages."""
    return jax.jit(make_reward_model(OPTIONS | {"heads": TEACHING.heads}, 0)[0])


def scores_of(params, store: Store) -> np.ndarray:
    """The score of each caption by each head. [E, U]"""
    return np.asarray(compiled()(params, {"message": jnp.asarray(store.captions.messages)}))


@pytest.mark.parametrize("anchored", [False, True])
def test_each_head_learns_by_its_own_weights_and_disagreement_orders_the_questions(anchored):
    kind = Anchored(TEACHING) if anchored else Ranking(TEACHING, 0.0, True)
    store, before = stored(anchored), make_reward_model(OPTIONS | {"heads": TEACHING.heads}, TEACHING.seed + SEED)[1]
    assert kind.disagreement(store, store.waiting).tolist() == [0.0] * len(store.waiting)
    kind._pupil.teach(kind.batch(store, store.answered))

    losses, scores = [], scores_of(before, store)
    for question in store.answered:
        first, second = (store.questions[name][question] for name in ("first", "second"))
        p, weights = store.questions["label"][question], pair_weights(np.array([[first, second]]), TEACHING.heads, 3)[0]
        for head in range(TEACHING.heads):
            ahead = float(scores[head, second] - scores[head, first])
            losses.append(weights[head] * (p * np.log1p(np.exp(-ahead)) + (1 - p) * np.log1p(np.exp(ahead))))
    assert kind._pupil.figures()["loss"] == pytest.approx(np.mean(losses), rel=1e-4)

    doubts, scores = {}, scores_of(kind._pupil.params, store)
    for question in store.waiting.tolist():
        first, second = (scores[:, store.questions[name][question]] for name in ("first", "second"))
        doubts[question] = np.std(1 / (1 + np.exp(first - second)))
    assert len(doubts) > 1
    np.testing.assert_allclose(kind.disagreement(store, store.waiting), [*doubts.values()], rtol=1e-3)
    assert in_order(store, kind, "disagreement").tolist() == sorted(doubts, key=doubts.__getitem__, reverse=True)
    assert in_order(Store(True, 10), kind, "disagreement").tolist() == []


def test_a_reward_of_heads_is_their_mean_and_is_rebuilt(tmp_path):
    own = {"kind": "ranking", "learning_rate": 1e-3, "batch_size": 8, "lessons_early": 2}
    source = make(tmp_path, **own, heads=3, order="disagreement")
    for _ in range(2):
        source.rewards(batch_of(*TEXTS))
        source.advance(SimpleNamespace(steps=len(TEXTS)), None)
    assert source.facts()["teaching"]["heads"] == 3
    again, shown = OnlineSource.rebuild(source.arrays(), source.facts()), messages(*TEXTS)
    np.testing.assert_array_equal(again.worth(shown), source.worth(shown))
    pupil = source.kind._pupil
    each = pupil.scores_of_heads(pupil.params, shown)
    assert each.shape == (3, len(TEXTS))
    np.testing.assert_allclose(pupil.scores(pupil.params, shown), each.mean(0), rtol=1e-5)
    assert (jax.tree.leaves(pupil.params["heads"])[0].shape[0]) == 3
    assert "heads" not in make(tmp_path, **own).facts()["teaching"]


@pytest.mark.quick
@pytest.mark.parametrize(("values", "said"), [
    ({"kind": "classification", "heads": 5}, r"5 heads are for ranking: 'classification' has one \(--config.policy."),
    ({"kind": "ranking", "order": "disagreement"}, r"one head cannot disagree: choose 2 or more, such as 5 \("),
])  # fmt: skip
def test_heads_that_cannot_work_are_refused(values, said):
    config = get_config(argument="score")
    config.policy.online.update(values)
    with pytest.raises(UserError, match=said):
        check_online(config, texts_of(config))

"""The heads of a reward: bootstrap weights, the common zero, the mean and the disagreement."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reward_test import messages

from motif_jax.captions import encode
from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.rewards.batches import make_batches
from motif_jax.rewards.heads import combine, disagreement, draw_weights, zeros_of
from motif_jax.rewards.model import centre, make_reward_model, make_value, value_captions
from motif_jax.rewards.preference import TrainState, make_reward_update, zero_sums
from motif_jax.rewards.statistics import RewardStatistics

pytestmark = pytest.mark.quick
OPTIONS = {"message": "lt_cnn_small", "blstats": False, "crop": False, "glyphs": False}


def test_pairs_with_the_same_captions_in_either_order_have_the_same_weights():
    ids = np.array([[[0], [1]], [[1], [0]], [[0], [2]], [[0], [1]]] + [[[0], [n]] for n in range(3, 2000)])
    drawn = draw_weights(ids, heads=3, seed=0)
    assert drawn.shape == (3, len(ids))
    np.testing.assert_array_equal(drawn[:, 0], drawn[:, 1])
    np.testing.assert_array_equal(drawn[:, 0], drawn[:, 3])
    np.testing.assert_allclose([drawn.mean(), drawn.var()], 1, atol=0.1)  # Poisson
    assert (drawn[0] != drawn[1]).any()
    np.testing.assert_array_equal(drawn, draw_weights(ids, 3, 0))


def test_the_reward_is_the_mean_less_what_caution_takes_off():
    rewards = np.array([[1.0, 5.0], [3.0, 5.0]], np.float32)
    np.testing.assert_array_equal(combine(rewards, {}), [2, 5])
    np.testing.assert_array_equal(combine(rewards, {"caution": 0.5}), [1.5, 5])
    np.testing.assert_array_equal(combine(rewards[0], {"caution": 0.5}), rewards[0])  # one head


def test_the_zero_is_the_neutral_moment_or_the_mean():
    rewards = np.array([[1.0, 2.0, 6.0], [0.0, 1.0, 2.0]])
    np.testing.assert_array_equal(zeros_of(rewards, np.array([1, 1, 2]), np.array([False, True, False])), [2, 1])
    np.testing.assert_array_equal(zeros_of(rewards, np.array([1, 1, 2]), np.zeros(3, bool)), [3.75, 1.25])


def test_disagreement_is_in_units_of_the_reward():
    rewards, texts = np.array([[0.0, 1.0, 8.0], [0.0, 5.0, 8.0]]), ["a", "b", "c"]
    captions = np.array([encode(text) for text in texts])
    statistics = RewardStatistics(0.0, 4.0, {})
    found = disagreement(rewards, rewards.mean(0), np.array([1, 3, 0]), captions, statistics)
    assert (found["number"], found["mean"]) == (2, 0.75)
    assert found["highest"] == [
        {"caption": "b", "reward": 1.5, "deviation": 1.0},
        {"caption": "a", "reward": 0.0, "deviation": 0.0},
    ]


def test_one_head_is_the_model_as_before_and_the_first_of_several():
    table = messages(5, 40)[:, :48]
    value_of = [(apply, params) for apply, params in (make_reward_model(OPTIONS | {"heads": e}, 7) for e in (1, 3))]
    (one, alone), (several, params) = value_of
    jax.tree.map(np.testing.assert_array_equal, alone, make_reward_model(OPTIONS, 7)[1])
    single = value_captions(make_value(one), alone, jnp.asarray(table))
    found = value_captions(make_value(several), params, jnp.asarray(table))
    assert found.shape == (3, 5)
    np.testing.assert_allclose(found[0], single, atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-3
    shifted = value_captions(make_value(several), centre(params, np.array([1.0, 0.0, -2.0])), jnp.asarray(table))
    np.testing.assert_allclose(found - shifted, [[1.0] * 5, [0.0] * 5, [-2.0] * 5], atol=1e-5)


@pytest.mark.parametrize("heads", [0, 1000])
def test_a_checkpoint_with_an_impossible_number_of_heads_is_refused(heads):
    with pytest.raises(ValueError, match="1 to 64 heads"):
        make_reward_model(OPTIONS | {"heads": heads}, 0)


def test_a_head_does_not_learn_from_pairs_that_it_did_not_draw():
    rng = np.random.default_rng(0)
    ids, target = rng.integers(8, size=(64, 2, 1)), rng.choice([0.0, 1.0], 64).astype(np.float32)
    drawn = np.stack([np.ones(64), np.zeros(64)]).astype(np.float32)
    batches = make_batches(np.arange(64), ids, target, 32, 1, drawn=drawn)
    assert batches.drawn.shape == (2, 1, 2, 32)
    apply, params = make_reward_model(OPTIONS | {"heads": 2}, 0)
    optimizer, mesh = optax.sgd(0.1), make_mesh(1)
    update = map_update(make_reward_update(apply, optimizer), mesh, batch_axis=1, num_constants=2)
    before = jax.device_get(params["heads"])
    state = replicate(TrainState(params, optimizer.init(params), zero_sums()), mesh)
    table = replicate(jnp.asarray(messages(8, 40)[:, :48]), mesh)
    state = update(state, table, np.int32(0), shard(batches, mesh, axis=1))
    moved = jax.tree.map(lambda new, old: np.abs(np.asarray(new) - old).max((*range(1, new.ndim),)), *(
        (state.params["heads"], before)
    ))  # fmt: skip
    moved = np.stack(jax.tree.leaves(moved)).max(0)
    assert moved[0] > 0 == moved[1]
    assert state.sums.pairs == 32

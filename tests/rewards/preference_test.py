"""The loss and the training step: worked numbers, PyTorch, the plain way, and several devices."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from conftest import on_devices
from reward_test import messages

from motif_jax.devices.mesh import make_mesh, map_update, replicate, shard
from motif_jax.rewards import preference
from motif_jax.rewards.preference import make_reward_model

RATE = 0.3
OPTIONS = {"message": "lt_cnn", "blstats": False, "crop": False, "glyphs": False}


def test_worked_numbers():
    # Means over the steps: first 1, second 2. P(second) = e^2 / (e + e^2) = 1 / (1 + e^-1) = 0.7310586
    rewards = jnp.array([[[0.0, 2.0], [1.0, 3.0]]] * 4)
    expected = [-np.log(1 - 0.7310586), -np.log(0.7310586), -(np.log(0.7310586) + np.log(1 - 0.7310586)) / 2]
    expected.append(-(0.75 * np.log(0.7310586) + 0.25 * np.log(1 - 0.7310586)))
    np.testing.assert_allclose(preference.pair_loss(rewards, jnp.array([0.0, 1.0, 0.5, 0.75])), expected, rtol=1e-5)


def data(pairs: int = 300, captions: int = 40, length: int = 1, seed: int = 0):
    rng = np.random.default_rng(seed)
    table = messages(captions, 60)[:, :64]
    ids = rng.integers(captions, size=(pairs, 2, length)).astype(np.int32)
    return table, ids, rng.choice([0.0, 0.5, 1.0, 0.8], pairs).astype(np.float32)


def train(batches: preference.PairBatches, table, num_devices: int = 1):
    """Plain gradient steps: Adam would blow up the rounding of the smallest gradients."""
    apply, params = make_reward_model(OPTIONS, 0)
    optimizer = optax.sgd(RATE)
    mesh = make_mesh(num_devices)
    update = map_update(preference.make_reward_update(apply, optimizer), mesh, batch_axis=1, num_constants=2)
    state = replicate(preference.TrainState(params, optimizer.init(params), preference.zero_sums()), mesh)
    placed, table = shard(batches, mesh, axis=1), replicate(jnp.asarray(table), mesh)
    for step in range(len(batches.captions)):
        state = update(state, table, np.int32(step), placed)
    return jax.device_get(state)


def assert_same(one: preference.TrainState, other: preference.TrainState, atol: float = 2e-5) -> None:
    assert one.sums[0] == other.sums[0]
    np.testing.assert_allclose(one.sums.loss, other.sums.loss, rtol=1e-5)
    np.testing.assert_allclose(one.sums.right, other.sums.right, atol=3)  # rewards that are all but equal
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), one.params, other.params)


def test_once_per_distinct_caption_equals_once_per_moment():
    length = 3
    table, ids, target = data(pairs=130, length=length)
    rows = preference.epoch_order(np.arange(len(ids)), seed=1, epoch=0)
    fast = preference.make_batches(rows, ids, target, 64, 1)
    plain = preference.make_batches(
        rows, ids, target, 64, 1, lambda rows: {"nothing": np.zeros((len(rows), 2, length))}
    )
    assert fast.captions.shape[-1] <= 48 < plain.captions.shape[-1] == 64 * 2 * length
    # Every moment of every batch shows the caption that the dataset says.
    for batches in (fast, plain):
        shown = np.take_along_axis(batches.captions, batches.shows.reshape(*batches.captions.shape[:2], -1), -1)
        shown = shown.reshape(-1, 2, length)[: len(rows)]
        np.testing.assert_array_equal(shown, ids[rows])
        assert batches.weight.sum() == len(rows)
    assert_same(train(fast, table), train(plain, table))


@on_devices(4)
def test_four_devices_do_what_one_does():
    table, ids, target = data()
    rows = np.arange(len(ids))
    one = train(preference.make_batches(rows, ids, target, 64, 1), table)
    four = train(preference.make_batches(rows, ids, target, 64, 4), table, 4)
    assert_same(one, four)


def test_the_first_step_that_is_no_number_is_remembered():
    table, ids, target = data()
    target[130] = np.nan  # in the third batch of 64
    state = train(preference.make_batches(np.arange(300), ids, target, 64, 1), table)
    assert state.sums.broken == 3
    assert train(preference.make_batches(np.arange(128), ids, target, 64, 1), table).sums.broken == 0

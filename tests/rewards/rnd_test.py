"""Random network distillation: against slow twins, and on several devices."""

import threading
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import get_config, on_devices, refusal, viewed

from motif_jax.devices.mesh import local_copy, make_mesh, map_update, replicate, shard
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.envs.nethack.observations import BLSTATS_SCALE, observation_specs
from motif_jax.envs.world import WAIT
from motif_jax.rewards.rnd import Novelty, RandomDistillation, add_values, no_stats
from motif_jax.rewards.source import Setting

SPECS = observation_specs(("blstats", "crop", "message"))
T, B = 5, 8
ACTIONS = np.zeros((T, B), np.int32)


def observations(rng, kinds=200, steps=T + 1):
    """Observations as rollouts have them; the fewer kinds, the more alike. [T + 1, B, ...]"""
    message = np.zeros((steps, B, 256), np.uint8)
    message[..., :9] = rng.integers(97, 97 + min(kinds, 26), size=(steps, B, 9))
    return {
        "blstats": rng.integers(-50, 50 * kinds, size=(steps, B, 27)).astype(np.int32),
        "crop": rng.integers(kinds, size=(steps, B, 2, 12, 12)).astype(np.uint8),
        "message": message,
    }


def slow_features(cells, moment):
    vector = np.clip(moment["blstats"].astype(np.float32) * BLSTATS_SCALE, -5, 5)
    picture = [cells[cell] for cell in moment["crop"].reshape(-1)]
    pieces, text = np.zeros(256), [int(code) for code in moment["message"][:82]]
    for at in range(80):
        piece = text[at] | text[at + 1] << 8 | text[at + 2] << 16
        hashed = piece * 0x9E3779B1 % 2**32
        if piece:
            pieces[hashed >> 24] += 1 - 2 * (hashed >> 23 & 1)
    return np.concatenate([vector, np.concatenate(picture), pieces])


def slow_network(params, x):
    arrays = {path[1:]: np.asarray(array, np.float64) for path, array in leaves_by_path(params).items()}
    layers = len(arrays) // 2
    for number in map(str, range(layers)):
        x = x @ arrays[number, "kernel"] + arrays[number, "bias"]
        x = x if number == str(layers - 1) else np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
    return x


def slow_errors(state, seen, x):
    """Prediction errors, normalised by all features `seen` so far."""
    x = np.clip((x - np.mean(seen, 0)) / np.sqrt(np.var(seen, 0) + 1e-8), -5, 5)
    return ((slow_network(state.params, x) - slow_network(state.fixed.target, x)) ** 2).mean(-1)


def test_bonus_and_normalisation_are_those_of_everything_seen():
    rng, mesh = np.random.default_rng(1), make_mesh(1)
    novelty = Novelty(SPECS, 16, 8, 1e-3)
    update = map_update(novelty.update, mesh, batch_axis=1)
    state = replicate(novelty.init(jax.random.key(0)), mesh)
    seen, errors = [], []
    for _ in range(4):
        batch, before = observations(rng), local_copy(state)
        actions = -(rng.random((T, B)) < 0.3).astype(np.int32)  # in some steps the game waits: WAIT is -1
        played = np.flatnonzero(actions != WAIT)
        moments = [{name: array[at // B + 1, at % B] for name, array in batch.items()} for at in played]
        new = np.array([slow_features(np.asarray(before.fixed.cells), moment) for moment in moments])
        seen = np.concatenate([*([seen] if len(seen) else []), new])
        errors = np.concatenate([errors, slow_errors(before, seen, new)])
        state, metrics = update(state, shard((batch, actions), mesh, axis=1))
        assert float(metrics["loss"]) == pytest.approx(errors[-len(played) :].mean(), rel=1e-3)
    assert int(state.updates) == 4
    assert np.asarray(state.features.mean) == pytest.approx(seen.mean(0), rel=1e-4, abs=1e-5)
    assert np.asarray(state.features.variance) == pytest.approx(seen.var(0), rel=1e-3, abs=1e-5)
    assert float(state.errors.mean) == pytest.approx(errors.mean(), rel=1e-3)
    assert float(state.errors.variance) == pytest.approx(errors.var(), rel=1e-2)

    batch = {name: array[0] for name, array in observations(rng).items()}
    new = [slow_features(np.asarray(state.fixed.cells), {name: batch[name][at] for name in batch}) for at in range(B)]
    wanted = slow_errors(state, seen, np.array(new)) / np.sqrt(errors.var())
    assert np.asarray(jax.jit(novelty.bonus)(state, batch)) == pytest.approx(wanted, rel=1e-2)


@pytest.mark.quick
def test_running_statistics_still_change_after_two_billion_steps():
    mesh = make_mesh(1)
    moments = no_stats(())._replace(number=np.float32(2e9), mean=np.float32(1), variance=np.float32(4))
    add = map_update(lambda stats, values: add_values(stats, values, jnp.ones(4096)), mesh, batch_axis=0)
    moments = add(replicate(moments, mesh), shard(np.full(4096, 1e4, np.float32), mesh))
    assert float(moments.mean) == pytest.approx(1 + 1e4 * 4096 / 2e9, rel=1e-4)
    assert float(moments.number) == pytest.approx(2e9 + 4096, abs=256)


@on_devices(8)
def test_eight_devices_do_what_one_does():
    found = []
    for devices in (1, 8):
        rng, mesh = np.random.default_rng(3), make_mesh(devices)
        novelty = Novelty(SPECS, 16, 8, 1e-3)
        update = map_update(novelty.update, mesh, batch_axis=1)
        state = replicate(novelty.init(jax.random.key(0)), mesh)
        for _ in range(3):
            state, metrics = update(state, shard((observations(rng), ACTIONS), mesh, axis=1))
        found.append(jax.tree.leaves((local_copy(state), metrics)))
    for one, eight in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(eight), rtol=2e-4, atol=2e-5)


def make_source(**values):
    config = get_config(argument="toy")
    config.policy.rnd.update({"learning_rate": 1e-3, "hidden": 32, "outputs": 16} | values)
    return RandomDistillation.make(Setting(viewed(config), Path(), SPECS, tuple(SPECS), make_mesh(1)))


def batch_of(arrays):
    placed = SimpleNamespace(observations=shard(arrays, make_mesh(1), axis=1), action=ACTIONS)
    return SimpleNamespace(arrays=SimpleNamespace(rollouts=placed))


def test_a_loss_that_is_not_finite_stops_the_run_and_changes_nothing():
    source, rng = make_source(learning_rate=1.0), np.random.default_rng(6)
    source.advance(batch_of(observations(rng)), None)
    before = jax.tree.map(np.array, source.arrays())
    nothing = jax.tree.map(lambda leaf: leaf * np.float32(np.nan) if leaf.ndim else leaf, before.optimizer)
    source._begin(before._replace(optimizer=nothing))  # `restore` would refuse it
    source.advance(batch_of(observations(rng)), None)
    assert all(map(np.array_equal, jax.tree.leaves(source.arrays().params), jax.tree.leaves(before.params)))
    refusal(lambda: source.advance(batch_of(observations(rng)), None), "not finite after 1 update", "rnd.learning_rate")


def test_a_snapshot_is_never_torn():
    """Rewards asked for while the predictor learns are those of one update, none of a mixture of two."""
    source, rng = make_source(), np.random.default_rng(7)
    probe = observations(rng) | dict.fromkeys(("terminated", "truncated"), np.zeros((T, B), bool))
    batch = batch_of(observations(rng))
    source.advance(batch, None)
    snapshots, asked, stop = [source.arrays()], [], threading.Event()

    def ask():
        while not stop.is_set():
            asked.append(source.rewards(probe))

    thread = threading.Thread(target=ask)
    thread.start()
    while len(asked) < 20 and thread.is_alive():
        source.advance(batch, None)
        snapshots.append(source.arrays())
        jax.block_until_ready(snapshots[-1])
    stop.set()
    thread.join()
    rebuilt = RandomDistillation.rebuild(snapshots[0], source.facts())
    possible = set()
    for snapshot in snapshots:  # all of them can still be read: they are copies
        rebuilt._snapshot = snapshot
        possible.add(rebuilt.rewards(probe).tobytes())
    assert len(possible) == len(snapshots)
    assert len(asked) > 1
    assert {rewards.tobytes() for rewards in asked} <= possible

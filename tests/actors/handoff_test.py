import numpy as np
import pytest

from benchmarks.random_policy import RandomPolicy
from motif_jax.actors.acting import answer, make_batch
from motif_jax.actors.pool import ActorPool
from motif_jax.system.metrics import Timers

pytestmark = pytest.mark.quick


def make_pool() -> ActorPool:
    return ActorPool(
        {"task": "toy"}, ("message", "crop", "event_message"),
        num_workers=0, games_per_worker=4, rollout_length=5, slots_per_group=3,
    )  # fmt: skip


def test_batches_are_rollouts_side_by_side():
    policy, timers = RandomPolicy(23), Timers()
    with make_pool() as pool:
        copies, fulls, batches = [], [], []
        while len(batches) < 4:
            requests, filled = pool.poll()
            answer(pool, requests, policy)
            copies += [{key: array[full.slot].copy() for key, array in pool.rollouts.items()} for full in filled]
            fulls += filled
            if len(fulls) >= 3:
                batches.append(make_batch(pool, fulls[:3], lambda arrays: arrays, timers))
                fulls = fulls[3:]
        for number, batch in enumerate(batches):
            parts = copies[3 * number : 3 * number + 3]
            assert batch.steps == 5 * 2 * 3
            assert batch.arrays.keys() - parts[0].keys() == {"game"}  # whose columns they are
            for key in parts[0]:
                assert np.array_equal(batch.arrays[key], np.concatenate([part[key] for part in parts], 1)), key
        assert batches[0].arrays["crop"].shape == (6, 6, 2, 12, 12)  # T + 1, three rollouts of two games
        assert batches[0].arrays["reward"].shape == (5, 6)
        assert timers.seconds.keys() == {"stack", "place"}

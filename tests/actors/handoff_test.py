"""From slots to batches."""

import numpy as np
import pytest

from motif_jax.actors.acting import RandomPolicy, answer
from motif_jax.actors.handoff import Handoff
from motif_jax.actors.pool import ActorPool

pytestmark = pytest.mark.quick


def make_pool() -> ActorPool:
    return ActorPool(
        {"task": "toy"}, ("message", "crop", "event_message"),
        num_workers=0, games_per_worker=4, rollout_length=5, slots_per_group=3,
    )  # fmt: skip


def test_batches_are_rollouts_side_by_side():
    policy = RandomPolicy(23)
    with make_pool() as pool, Handoff(pool, 3, depth=8) as handoff:
        copies, batches = [], []
        while len(batches) < 4:
            requests, fulls = pool.poll()
            answer(pool, requests, policy)
            for full in fulls:
                copies.append({key: array[full.slot].copy() for key, array in pool.rollouts.items()})
                handoff.offer(full)
            batch = handoff.get(0.05 if len(copies) >= 3 * (len(batches) + 1) else 0.0)
            batches += [batch] if batch else []
        for number, batch in enumerate(batches):
            parts = copies[3 * number : 3 * number + 3]
            assert batch.steps == 5 * 2 * 3
            assert batch.arrays.keys() - parts[0].keys() == {"game"}  # whose columns they are
            for key in parts[0]:
                assert np.array_equal(batch.arrays[key], np.concatenate([part[key] for part in parts], 1)), key
        assert batches[0].arrays["crop"].shape == (6, 6, 2, 12, 12)  # T + 1, three rollouts of two games
        assert batches[0].arrays["reward"].shape == (5, 6)
        assert not {"wait_for_rollouts", "stack", "place", "wait_for_learner"} - handoff.timers.seconds.keys()


def test_an_error_in_the_thread_reaches_the_learner():
    def fail(_):
        raise ValueError("no such device")

    def drive(pool, handoff):
        while True:
            requests, fulls = pool.poll()
            answer(pool, requests, RandomPolicy(23))
            for full in fulls:
                handoff.offer(full)
            handoff.get(0.01)

    with make_pool() as pool, Handoff(pool, 1, place=fail) as handoff:
        with pytest.raises(RuntimeError, match="hand-off") as caught:
            drive(pool, handoff)
        assert "no such device" in str(caught.value.__cause__)

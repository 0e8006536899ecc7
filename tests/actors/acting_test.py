import itertools
from unittest import mock

import pytest
from conftest import wait_for

from benchmarks.random_policy import RandomPolicy
from motif_jax.actors.acting import AsyncLoop, OverlappedLoop
from motif_jax.actors.pool import ActorPool

pytestmark = pytest.mark.quick
T, GROUPS = 5, 4


class CountingPolicy(RandomPolicy):
    answered = 0

    def __call__(self, observations, first, games):
        self.answered += len(games) // 2
        return super().__call__(observations, first, games)


def make_pool(slots, workers=0):
    return ActorPool({"task": "toy"}, ("message",), num_workers=workers, games_per_worker=2 * GROUPS, groups=GROUPS,
                        rollout_length=T, slots_per_group=slots)  # fmt: skip


@pytest.mark.parametrize(("slots", "rollouts"), [(2, 4 + 4 + 8), (1, 4 + 4)])
def test_games_wait_for_a_learner_that_is_slow(slots, rollouts):
    """Batches of four rollouts: one is in the queue, one is about to be, and all slots are full then."""
    policy, placed = CountingPolicy(23), []
    with make_pool(slots) as pool, mock.patch.object(pool, "poll", wraps=pool.poll) as poll:
        source = AsyncLoop(pool, policy, GROUPS, place=lambda arrays: placed.append(1) or arrays)
        try:
            wait_for(lambda: len(placed) >= 2 and policy.answered >= rollouts * T)
            before = poll.call_count
            wait_for(lambda: poll.call_count >= before + 200)  # in which more would come
            assert policy.answered == rollouts * T  # closing drops a batch, whose slots are free again
        finally:
            source.close()
    assert not {"wait_for_rollouts", "stack", "place", "wait_for_learner"} - source.timers.seconds.keys()


class StartedPolicy(RandomPolicy):
    """Notes the order in which calls start and finish, by the group of their first game; actions by game and time."""

    def __init__(self, num_actions):
        super().__init__(num_actions)
        self.calls = []

    def start(self, observations, first, games):
        group = int(games[0]) // 2 % GROUPS
        self.calls.append(("start", group))

        def finish():
            self.calls.append(("finish", group))
            return games % 23, {}

        return finish


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("share", [1, 2])
def test_games_play_while_the_device_works_for_another_group(workers, share):
    policy, rollouts = StartedPolicy(23), GROUPS * max(workers, 1) * share
    with make_pool(share + 1, workers) as pool:
        for batch in itertools.islice(OverlappedLoop(pool, policy, rollouts), 2):
            numbers = [(full.worker, full.group) for full in batch.fulls]
            assert numbers == [*itertools.product(range(max(workers, 1)), range(GROUPS))] * share
            assert batch.arrays["action"].tolist() == [[game % 23 for game in batch.arrays["game"][0].tolist()]] * T
    steps = 2 * T * share
    starts, finishes = ([group for what, group in policy.calls if what == kind] for kind in ("start", "finish"))
    assert starts == finishes == list(range(GROUPS)) * steps  # in turn
    assert policy.calls[: GROUPS + 2] == [*(("start", group) for group in range(GROUPS)), ("finish", 0), ("start", 0)]

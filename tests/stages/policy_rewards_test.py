from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import get_config, viewed
from pool_test import play

from benchmarks.random_policy import RandomPolicy
from motif_jax.actors.acting import RolloutBatch
from motif_jax.actors.pool import ActorPool
from motif_jax.actors.worker import Ended, FilledSlot
from motif_jax.captions import encode
from motif_jax.envs.nethack.observations import scale_blstats
from motif_jax.policies.learning import make_shape_rewards
from motif_jax.rewards.learnt_source import LearntSource, Mix, Reward, make_mix
from motif_jax.rewards.preference import make_reward_model
from motif_jax.rewards.registry import LEARNT
from motif_jax.rewards.returns import Returns
from motif_jax.rewards.source import RewardSource, RewardSources, Weighted
from motif_jax.rewards.statistics import LEVELS, RewardStatistics
from motif_jax.structs import EpisodeInfo, UserError

MESSAGES = {"message": "lt_cnn_small", "blstats": False, "crop": False, "glyphs": False}
QUANTILES = {f"{level:.2f}": level for level in LEVELS}


def make_reward(**options) -> Reward:
    options = MESSAGES | options
    params = make_reward_model(options, 3)[1]
    statistics = RewardStatistics(-0.1, 0.25, QUANTILES)
    return Reward(options, params, statistics, np.array([encode("You die...")], np.uint8), np.ones(1, np.int32), {})


def record(source: RewardSource, more: tuple[str, ...]) -> list[dict]:
    keys = tuple(sorted({*source.observations, *more}))
    with ActorPool({"task": "toy"}, keys, num_workers=0, games_per_worker=8, rollout_length=40) as pool:
        return [arrays for _, arrays, _ in play(pool, RandomPolicy(23), 4)]


@pytest.mark.parametrize(("late", "blstats"), [(False, False), (True, False), (False, True)])
def test_steps_are_rewarded_for_the_messages_that_they_caused(late, blstats):
    reward = make_reward(blstats=blstats)
    source = LearntSource(reward, Mix(threshold=0.1), late)
    assert (source.table is None) == blstats  # then the network is asked for every step
    events = ("event_message", "event_message_count", "message", "message_count")
    ends = 0
    for arrays in record(source, events):
        moments, rewards = source.moments(arrays), source.rewards(arrays)
        for step in range(40):
            for game in range(4):
                # As published: what is seen before the action. Corrected: what the action led to, an end included.
                message = arrays["message" if late else "event_message"][step, game]
                count = arrays["message_count" if late else "event_message_count"][step, game]
                more = {"vector": scale_blstats(arrays["event_blstats"][step, game])[None]} if blstats else {}
                z = reward(message[None], **more).normalised[0]
                assert moments["z"][step, game] == pytest.approx(z, abs=1e-5)
                assert moments["counts"][step, game] == count
                assert rewards[step, game] == pytest.approx(z / count**3 if z > 0.1 else 0, abs=1e-5)
                if arrays["terminated"][step, game]:
                    ends += 1
                    assert bytes(arrays["event_message"][step, game]).startswith(b"You descend")
                    assert not arrays["message"][step + 1, game].any()  # of the next episode
    assert ends
    assert {*source.observations} == {*events[2 * late :][:2], *(["event_blstats"] if blstats else [])}


@pytest.mark.quick
def test_the_mix_is_what_config_and_reward_say():
    config, made = get_config(), make_reward()
    mix = make_mix(viewed(config).policy, made)
    # Score: 0.1 * clip(0.1 * r, +-10) + 0.1 * f, with f above the median of the captions.
    assert mix == Mix(0.1, 0.1, 0.1, 10.0, 0.5, 3.0)
    config.policy.threshold_quantile = -1.0
    assert make_mix(viewed(config).policy, made).threshold == float("-inf")
    assert make_mix(viewed(config).policy, None).intrinsic == 0
    assert make_mix(viewed(get_config(argument="oracle")).policy, None).extrinsic == 10

    config.policy.intrinsic_form = "relative"
    with pytest.raises(UserError, match=r"--config.reward.anchor=neutral \(--config.policy.intrinsic_form\)"):
        make_mix(viewed(config).policy, made)
    captions = np.array([encode(text) for text in ("You die...", "You kill the newt!", "Hello")], np.uint8)
    statistics = RewardStatistics(-0.1, 0.25, QUANTILES, anchor=-1e3)  # no reward is as low
    reward = Reward(MESSAGES, made.params, statistics, captions, np.array([30, 20, 19], np.int32), {})
    assert make_mix(viewed(config).policy, reward).best == reward.table().normalised[:2].max()  # the third is rare

    moments = {LEARNT: {"z": jnp.array([[2.0]]), "counts": jnp.array([[2]])}}
    rollouts = SimpleNamespace(reward=jnp.array([[50.0]]), reward_inputs=moments)
    learnt = Weighted(LEARNT, "", mix.intrinsic, LearntSource(made, mix, False))
    rewards = make_shape_rewards(make_mix(viewed(config).policy, None), RewardSources([learnt]))(rollouts)
    found = [float(part[0, 0]) for part in (rewards.extrinsic, rewards.intrinsic, rewards.total)]
    assert found == pytest.approx([0.1 * 0.1 * 50, 0.1 * 2 / 8, 0.5 + 0.025])
    rollouts.reward_inputs = {}
    assert float(make_shape_rewards(mix, RewardSources())(rollouts).total[0, 0]) == pytest.approx(0.5)


@pytest.mark.quick
def test_returns_of_each_source_are_added_up_over_rollouts():
    """Two groups of two games; what each episode was worth to two sources, added up step by step."""
    rng = np.random.default_rng(0)
    returns, sums, first, wanted, summed = Returns(), np.zeros(4), np.ones(4, bool), {}, {}
    for _ in range(30):
        workers = rng.permutation(2)
        games = np.array([2 * worker + game for worker in workers for game in range(2)])  # of the columns
        rewards, ended, episodes = rng.random((5, 4)), rng.random((5, 4)) < 0.15, [[], []]
        begins, first[games] = first[games], ended[-1]
        sums[games[begins]] = 0.0
        for step in range(5):
            sums[games] += rewards[step]
            for column in np.flatnonzero(ended[step]):
                episodes[column // 2].append(Ended(step, column % 2, EpisodeInfo(len(wanted), *[0] * 4)))
                wanted[len(wanted)], sums[games[column]] = sums[games[column]], 0.0
        if rng.random() < 0.2:  # a worker died: its games begin again
            first[2 * rng.integers(2) :][:2] = True
        fulls = [FilledSlot(int(worker), 0, 0) for worker in workers]
        whole = {LEARNT: rewards, "twice": 2 * rewards}
        placed = SimpleNamespace(first=begins, rewards=whole, ended=ended, played=~np.zeros_like(ended))
        batch = RolloutBatch(placed, fulls, episodes, 20)
        summed |= {info.episode: value for info, value in returns.take(batch)}
    assert len(wanted) > 20
    assert {number: value[LEARNT] for number, value in summed.items()} == pytest.approx(wanted)
    assert {number: value["twice"] / 2 for number, value in summed.items()} == pytest.approx(wanted)

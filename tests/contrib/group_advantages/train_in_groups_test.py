import itertools

import jax
import numpy as np
import pytest
from conftest import assert_same_bits, viewed
from train_policy_test import arrays, settings, train

from motif_jax import load_policy
from motif_jax.contrib.group_advantages.playing import InGroups, visits
from motif_jax.envs.world import WAIT
from motif_jax.rewards.source import RewardSources
from motif_jax.stages.train_policy.loop import assemble
from motif_jax.structs import UserError

LIMIT = 50  # steps of an episode of the toy world
TOY = {
    "algorithm": "grpo", "rollout_length": LIMIT, "games_per_worker": 8, "batch_size": 8 * LIMIT, "log_every_s": 1e-3,
    "group_advantages__group_size": 4, "env__max_episode_steps": LIMIT, "train_for_env_steps": 600,
}  # fmt: skip


def config_of(**values):
    return settings(**TOY | values)


@pytest.mark.parametrize("workers", [0, 2])
def test_each_game_plays_one_episode_and_then_waits(tmp_path, workers):
    config = config_of(num_workers=workers, synchronous=not workers, games_per_worker=8 // max(workers, 1))
    parts = assemble(viewed(config), tmp_path, lambda setting: RewardSources(), 1)
    games, batches = parts.games, []
    player, playing = games.player(parts.learner.model, 0), games.playing

    def place(batch):
        seen = {name: batch[name] for name in parts.learner.model.reads}
        batches.append(playing.arrange(batch | {"ended": playing.ended}, seen))

    with games.open(player, ()) as pool:
        source = playing.loop(config.policy, pool, player, games.rollouts, place)
        while len(batches) < 3:
            source.get(1.0)
    for number, sorted_batch in enumerate(batches):
        group = sorted_batch["own"]
        assert sorted_batch["ended"][0].tolist() == [2 * number] * 4 + [2 * number + 1] * 4
        begins = sorted_batch["message"][0], sorted_batch["blstats"][0]
        for array in begins:  # a group begins alike, and another group otherwise
            assert all(np.array_equal(array[0], array[column]) for column in range(4))
        length = group["played"].sum(0)
        assert length.tolist() == sorted_batch["ended"][1].tolist()
        steps = np.arange(LIMIT)[:, None]
        assert (group["played"] == (steps < length)).all()
        assert ((sorted_batch["action"] == WAIT) == (steps >= length)).all()
        assert ((sorted_batch["terminated"] | sorted_batch["truncated"]) == (steps == length - 1)).all()
        assert not sorted_batch["reward"][steps >= length + np.zeros(8, int)].any()
        assert (sorted_batch["version"][group["played"]] == 0).all()


def arranged(size, rows, ended, seen):
    playing = InGroups(size)
    playing.ended = ended
    return playing.arrange(rows, seen)


def test_columns_are_sorted_and_incomplete_groups_left_out():
    action = np.zeros((3, 8), np.int32)
    action[2, 1] = WAIT  # its episode has two steps
    first = np.zeros((4, 8), bool)
    first[2, 1] = True
    steps = np.full(8, 3)
    steps[[1, 7]] = 2, 5  # the last one began before this rollout
    x, ended = np.tile(np.arange(8), (4, 1)), np.array([[9, 4, 9, 4, 7, 7, 8, 8], steps])
    rows = {"action": action, "first": first, "x": x}
    sorted_rows = arranged(2, rows, ended, {"x": x})
    assert sorted_rows["x"][0].tolist() == [1, 3, 4, 5, 6, 7, 0, 2]
    assert sorted_rows["own"]["played"].sum(0).tolist() == [2, 3, 3, 3, 0, 0, 3, 3]
    assert sorted_rows["first"][0].all()
    # one episode of group 4 was given up, and its game played one of group 10
    given_up = arranged(2, rows, np.array([[9, 4, 9, 10, 7, 7, 8, 8], np.full(8, 3)]), {"x": x})
    assert given_up["x"][0].tolist() == [4, 5, 6, 7, 0, 2, 1, 3]
    assert given_up["own"]["played"].sum(0).tolist() == [3, 3, 3, 3, 3, 3, 0, 0]
    lone = {name: array[:, 2:4] for name, array in rows.items()}
    with pytest.raises(UserError, match="none of 1 groups is complete: all 2 episodes .* a rollout of 3 steps"):
        arranged(2, lone, np.array([[1, 2], [3, 3]]), {"x": x[:, 2:4]})


@pytest.mark.quick
def test_equal_moments_have_one_number_in_their_group():
    x = np.array([[5, 5, 5, 5], [6, 5, 7, 5], [0, 0, 0, 0]])[..., None]
    assert visits({"x": x, "y": np.zeros((3, 4, 2))}, 2).tolist() == [[0, 0, 0, 0], [1, 0, 1, 0]]


@pytest.mark.slow
def test_a_run_is_the_same_twice_and_goes_on_to_the_bit(tmp_path):
    close = {"group_advantages__reference_coefficient": 0.1}
    for name in ("one", "other"):
        train(config_of(**close), tmp_path / name)
    learner = arrays(tmp_path / "one")[1]
    assert_same_bits(learner, arrays(tmp_path / "other")[1])
    pairs = zip(*(jax.tree.leaves(learner[name]["policy"]) for name in ("params", "reference")), strict=True)
    assert not all(np.array_equal(now, then) for now, then in pairs)
    rows = train(config_of(**close, train_for_env_steps=1200), tmp_path / "one")
    assert rows[-1]["env_steps"] >= 1200
    assert_same_bits(arrays(tmp_path / "one")[1]["reference"], learner["reference"])
    assert rows[0]["train/ratio_deviation"] < 1e-5
    assert rows[-1]["train/reference_loss"] > 0
    assert load_policy(tmp_path / "one")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A row has the metrics of the update before it, which began with the steps of two rows before."""
    config = config_of(anneal_learning_rate_to=0.0, train_for_env_steps=1200, sources="count:0.05")
    return train(config, tmp_path_factory.mktemp("rows"))


def test_rates_follow_the_steps_that_were_played(rows):
    for begun, row in zip(rows, rows[2:], strict=False):
        assert row["train/learning_rate"] == pytest.approx(1e-4 * (1 - begun["env_steps"] / 1200), rel=1e-5)


def test_rewards_are_means_over_the_steps_that_were_played(rows):
    assert len(rows) > 2
    for row, later in itertools.pairwise(rows[1:]):
        assert row["episode/steps"] < LIMIT  # games waited
        assert row["episode/count"] == 8
        per_step = row["episode/return"] / row["episode/steps"]
        assert later["train/extrinsic_reward"] == pytest.approx(per_step, rel=1e-4)
        assert later["train/intrinsic_reward"] == pytest.approx(0.05 * row["reward/count_mean"], rel=1e-4)

"""Training of a policy: it learns, it can be stopped and killed, and is rewarded with what the sources say."""

import shutil
import warnings

import numpy as np
import pytest
from conftest import assert_same_bits, children, get_config, is_complete, last_checkpoint, refusal, run_stage, viewed
from small_dataset import EVENTS, random_pairs, write_dataset

from motif_jax import load_reward
from motif_jax.devices.hosts import Hosts
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.files import checkpoint_steps, read_json, read_lines
from motif_jax.policies.checkpoints import PolicyCheckpoints, start_or_resume
from motif_jax.policies.model import read_policy
from motif_jax.rewards.source import RewardSources
from motif_jax.stages import annotate, train_policy, train_reward
from motif_jax.stages.train_policy.loop import assemble
from motif_jax.stages.train_policy.metrics import estimate
from motif_jax.structs import UserError

pytestmark = pytest.mark.usefixtures("optimised")

TINY = {
    "network": "small", "intrinsic_coefficient": 0.0, "num_workers": 0, "games_per_worker": 8, "rollout_length": 8,
    "batch_size": 64, "warmup_steps": 0, "tensorboard": False, "synchronous": True, "train_for_env_steps": 640,
    "log_every_s": 1e6,  # one row, of all updates: in a row of a single one, perhaps no episode has ended
}  # fmt: skip


def settings(**values):
    named = {key if "__" in key else f"policy.{key}": value for key, value in (TINY | values).items()}
    return get_config(argument="toy", **named)


def train(config, workdir):
    run_stage(train_policy, config, workdir)
    return rows_of(workdir)


def run(workdir, **values):
    return train(settings(**values), workdir)


def rows_of(workdir):
    return list(read_lines(workdir / "policy/metrics.jsonl"))


def arrays(workdir):
    step, state, metadata = last_checkpoint(workdir)
    return step, state["learner"], metadata


LEARNING = {
    "synchronous": False, "num_workers": 1, "games_per_worker": 32, "rollout_length": 16, "batch_size": 256,
    "learning_rate": 1e-3, "discount": 0.9, "exploration_coefficient": 0.01, "extrinsic_coefficient": 1.0,
    "reward_scale": 1.0, "log_every_s": 2.0, "warmup_steps": 50,
    "wait_for_learner": True,  # or a busy machine learns from old samples
}  # fmt: skip


@pytest.mark.slow
def test_the_toy_world_is_solved(tmp_path):
    """By APPO; IMPALA differs from it in one term of the loss, which has tests of its own."""
    before = children()
    rows = run(tmp_path, **LEARNING | {"train_for_env_steps": 100_000})
    summary = read_json(tmp_path / "policy/summary.json")
    # Perfect play ends with 0.975 on average, random play with about -0.1.
    assert summary["recent_episodes"]["return"] > 0.93
    assert summary["recent_episodes"]["success"] > 0.98
    assert rows[-1]["train/entropy"] < rows[0]["train/entropy"]
    assert rows[-1]["train/lag_max"] <= 8  # bounded by the slots and the queue
    assert children() <= before


def test_training_ends_when_the_last_episodes_have_reached_a_figure(tmp_path):
    run(tmp_path, train_for_env_steps=1_000_000, train_until="steps<=1000")  # true once there are 100 episodes
    summary = read_json(tmp_path / "policy/summary.json")
    assert summary["episodes"] >= 100
    assert summary["env_steps"] < 100_000
    assert is_complete(train_policy, settings(train_for_env_steps=1_000_000, train_until="steps<=1000"), tmp_path)
    assert not is_complete(train_policy, settings(train_for_env_steps=1_000_000, train_until="success>=2"), tmp_path)


@pytest.mark.parametrize(("limit", "end"), [
    (0.0, ", and 20,000 s for all 10,000 ("), (36_000.0, ", and 20,000 s for all 10,000 ("),
    (240.0, "; training ends after 240 s, before all 10,000 ("),
])  # fmt: skip
@pytest.mark.quick
def test_the_first_estimate_of_the_time_is_at_most_the_time_that_training_may_take(limit, end):
    """0.5 s for an action, and three times as long to learn from it: 2 s for a step, and 20,000 s for 10,000."""
    said = estimate(viewed(settings(train_for_seconds=limit, batch_size=64)).policy, 0.5, 10_000)
    assert said.startswith("choosing an action takes 0.5 s, and learning from it about 1.5 s: about 128 s for a batch")
    assert end in said


def test_a_batch_smaller_than_a_round_of_an_on_policy_algorithm_is_said(tmp_path, capsys):
    config = viewed(settings(algorithm="ppo", batch_size=32))  # two groups of 4 games, 8 steps each
    parts = assemble(config, tmp_path, lambda setting: RewardSources(), 1)
    parts.games.open(parts.games.player(parts.learner.model, 0), ()).close()
    assert "so it has samples of earlier policies: use a multiple of 64 steps" in capsys.readouterr().out


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("whole")
    run(workdir, save_every_steps=64, keep_checkpoints=2, milestone_every_steps=256)
    return workdir


@pytest.mark.journey
def test_rows_and_summary_have_the_metrics_and_milestones_are_kept(whole):
    row = rows_of(whole)[-1]
    assert (row["env_steps"], row["updates"]) == (640, 10)
    for name in ("steps_per_s", "train/loss", "train/entropy", "train/lag_mean", "train/gradient_norm",
                 "episode/return", "episode/success", "time/policy", "time/update", "queue/batches_waiting",
                 "memory_mib"):  # fmt: skip
        assert row[name] is not None, name
    assert read_json(whole / "policy/summary.json")["env_steps"] == 640
    assert sorted(checkpoint_steps(whole / "policy/checkpoints")) == [256, 512, 576, 640]
    assert is_complete(train_policy, settings(), whole)
    assert not is_complete(train_policy, settings(train_for_env_steps=1280), whole)
    assert is_complete(train_policy, settings(train_for_env_steps=1280, train_for_seconds=1e-3), whole)


@pytest.mark.journey
def test_a_longer_run_resumes_where_the_shorter_one_ended(whole, tmp_path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    rows = run(tmp_path, train_for_env_steps=1280)
    step, learner, metadata = arrays(tmp_path)
    assert (step, int(learner["version"])) == (1280, 20)
    assert metadata["progress"]["updates"] == 20
    steps = [row["env_steps"] for row in rows]
    assert steps == sorted(set(steps))
    assert {640, 1280} <= set(steps)
    assert metadata["progress"]["next_episode"] > arrays(whole)[2]["progress"]["next_episode"] + 7


def test_schedules_follow_the_seconds_where_they_end_the_run_also_when_it_goes_on(tmp_path):
    """Of 10^9 steps nearly none has passed. The first update of the run that goes on counts the seconds before it."""
    values = {"synchronous": False, "anneal_learning_rate_to": 0.0, "log_every_s": 1e-3}
    run(tmp_path, **values)
    used = read_json(tmp_path / "policy/summary.json")["seconds"]
    limits = {"train_for_env_steps": 10**9, "train_for_seconds": 4 * used}
    rows = [row for row in run(tmp_path, **values | limits) if row["env_steps"] > 640]
    rates = [row["train/learning_rate"] for row in rows]
    assert rates[0] == pytest.approx(1e-4 * 3 / 4, rel=1e-4)
    assert rates == sorted(rates, reverse=True)
    assert 0 <= rates[-1] < rates[0]
    # A synchronous run is to be the same twice.
    again = run(tmp_path, **values | limits | {"synchronous": True, "train_for_seconds": 5 * used})
    steps_alone = next(row for row in again if row["env_steps"] > rows[-1]["env_steps"])
    assert steps_alone["train/learning_rate"] == pytest.approx(1e-4, rel=1e-3)


def test_training_begins_with_the_parameters_of_another_run(whole, tmp_path):
    def begin(**values):
        config = viewed(settings(init_from=str(whole), **values))
        parts = assemble(config, tmp_path, lambda setting: RewardSources(), 1)
        with Hosts() as hosts:
            nothing = PolicyCheckpoints(config, tmp_path, {}, RewardSources(), writes=False)
            return start_or_resume(config, nothing, parts.learner, hosts)

    state, _, done = begin()
    assert_same_bits(leaves_by_path(arrays(whole)[1]["params"]), leaves_by_path(state.params))
    assert int(state.version) == done.updates == 0
    refusal(lambda: begin(network="reference"), match=r"is of another architecture: .* \(--config.policy.init_from\)")


def test_the_learnt_reward_is_given_and_kept_in_the_checkpoint(tmp_path):
    write_dataset(tmp_path / "dataset", random_pairs(300))
    config = get_config("quickstart.py")
    config.reward.update(batch_size=64, learning_rate=1e-3, num_epochs=1, message="lt_cnn_small")
    run_stage(annotate, config, tmp_path)
    run_stage(train_reward, config, tmp_path)
    rows = run(tmp_path, intrinsic_coefficient=0.1, threshold_quantile=-1.0)
    assert rows[-1]["episode/intrinsic_return"] != 0
    assert rows[-1]["train/intrinsic_reward"] != 0
    assert rows[-1]["reward/learnt_share"] > 0.9
    assert rows[-1]["reward/messages"] >= 3  # nothing, the wall, the stairs
    _, metadata, sources = read_policy(tmp_path)
    kept, reward = sources.learnt.reward, load_reward(tmp_path)
    assert np.array_equal(kept(EVENTS).raw, reward(EVENTS).raw)
    assert np.allclose(kept(EVENTS).normalised, reward(EVENTS).normalised)
    assert metadata["sources"]["learnt"]["facts"]["mix"]["intrinsic"] == 0.1

    run(tmp_path, intrinsic_coefficient=0.1, threshold_quantile=-1.0, train_for_env_steps=704)
    shutil.rmtree(tmp_path / "reward")
    config.reward.learning_rate = 2e-3
    run_stage(train_reward, config, tmp_path)
    with pytest.raises(UserError, match="the learnt reward has changed since this policy's training began"):
        run(tmp_path, intrinsic_coefficient=0.1, threshold_quantile=-1.0, train_for_env_steps=768)

    # A reward whose last checkpoint is damaged is not silently replaced by an earlier one.
    for file in (tmp_path / "reward/checkpoints/1").rglob("*"):
        if file.is_file() and file.parent.name != "facts":
            file.write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UserError, match=r"reward in .*, 1, is damaged.*--config.policy.reward_checkpoint=0"):
            run(tmp_path / "other", intrinsic_coefficient=0.1, reward_dir=str(tmp_path))


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_batch(tmp_path):
    with pytest.raises(UserError, match=r"not finite at update \d+ .* --config.policy.init_from") as caught:
        run(tmp_path, learning_rate=1e36, max_gradient_norm=1e30, train_for_env_steps=6400)
    file = next((tmp_path / "policy").glob("broken-batch-*.npz"))
    assert file.name in str(caught.value)
    with np.load(file, allow_pickle=False) as batch:
        assert batch["reward"].shape == batch["value"].shape == (8, 8)
        assert batch["observations.crop"].shape == (9, 8, 2, 12, 12)


def test_missing_devices_and_rewards_are_refused_before_games_start(tmp_path):
    with pytest.raises(UserError, match=r"1000 devices were asked for, but there are \d+ .*--config.policy.num_dev"):
        run(tmp_path, num_devices=1000)
    refusal(lambda: run(tmp_path, intrinsic_coefficient=0.1), "no reward in")

"""The world without a game: what was recorded comes out of the pool again, and episodes end as they should."""

import json

import numpy as np
import pytest

from motif_jax.actors.inference import RandomPolicy, answer
from motif_jax.actors.pool import ActorPool
from motif_jax.envs.canned import NUM_ACTIONS, CannedWorld
from motif_jax.envs.nethack.observations import POLICY_OBSERVATIONS
from motif_jax.envs.settings import make_world
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
MOMENTS, COLUMNS, EPISODE = 5, 3, 11


def write_recording(file) -> dict[str, np.ndarray]:
    rng, arrays = np.random.default_rng(0), {}
    for key in POLICY_OBSERVATIONS:
        spec = CannedWorld.specs[key]
        arrays[key] = rng.integers(1, 100, (MOMENTS, COLUMNS, *spec.shape)).astype(spec.dtype)
    arrays["reward"] = rng.integers(0, 3, (MOMENTS, COLUMNS)).astype(np.float32)
    np.savez(file, **arrays)
    return arrays


def env_of(file, **options) -> dict:
    options = {"recording": str(file), "episode_steps": EPISODE} | options
    return {"world": "motif_jax.envs.canned:CannedWorld", "options": json.dumps(options)}


def test_the_pool_delivers_the_recording_step_by_step(tmp_path):
    """Beside a slow twin, which follows each game by itself."""
    recording = write_recording(tmp_path / "recording.npz")
    steps, size = 4, 4  # of a rollout; games of a group, one more than were recorded
    pool = ActorPool(
        env_of(tmp_path / "recording.npz"), POLICY_OBSERVATIONS,
        num_workers=0, games_per_worker=2 * size, rollout_length=steps,
    )  # fmt: skip
    with pool:
        policy, rollouts, ends = RandomPolicy(NUM_ACTIONS), {0: [], 1: []}, []
        while min(map(len, rollouts.values())) < 8:
            requests, fulls = pool.poll()
            answer(pool, requests, policy)
            for full in fulls:
                rollouts[full.group].append({key: array[full.slot].copy() for key, array in pool.rollouts.items()})
                ends += [(full.group, len(rollouts[full.group]), ended) for ended in pool.ended(full)]
                pool.release(full)
    assert ends
    for group, parts in rollouts.items():
        for number, rollout in enumerate(parts):
            for game in range(size):
                for step in range(steps):
                    moment = (number * steps + step) % MOMENTS
                    for key, array in recording.items():
                        assert np.array_equal(rollout[key][step, game], array[moment, game % COLUMNS]), (key, step)
    for group, count, ended in ends:
        last = (count - 1) * steps + ended.step  # number of the episode's last step, over all rollouts
        begun = last + 1 - ended.info.steps
        column = ended.game % COLUMNS
        expected = sum(float(recording["reward"][now % MOMENTS, column]) for now in range(begun, last + 1))
        assert ended.info.episode_return == expected
        part = rollouts[group][count - 1]
        assert part["terminated"][ended.step, ended.game]
        assert part["first"][ended.step + 1, ended.game]
    flagged = sum(int(part["terminated"].sum()) for parts in rollouts.values() for part in parts)
    assert flagged == len(ends)
    begun = sum(int(part["first"][1:].sum()) for parts in rollouts.values() for part in parts)
    assert begun == len(ends)
    assert all(parts[0]["first"][0].all() for parts in rollouts.values())
    assert not any(part["truncated"].any() for parts in rollouts.values() for part in parts)


def test_a_missing_recording_is_refused(tmp_path):
    with pytest.raises(UserError, match="there is no recording"):
        make_world(env_of(tmp_path / "none.npz")).check()


def test_there_is_no_game_to_show(tmp_path):
    with pytest.raises(UserError, match="cannot be played again"):
        make_world(env_of(tmp_path / "none.npz")).game()

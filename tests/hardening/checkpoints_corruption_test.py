"""Checkpoints, damaged in several ways: refused in one sentence, or read as they were.

A foreign pickle in their place would leave a trace if it were ever executed.
"""

import os
import pickle
import shutil
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import get_config

from motif_jax import experiment, load_reward
from motif_jax.devices.checkpoints import reading
from motif_jax.policies.model import read_policy
from motif_jax.structs import UserError

ORBAX = "ignore::pytest.PytestUnraisableExceptionWarning"  # of its own event loop, when it cannot read an array
pytestmark = pytest.mark.filterwarnings(ORBAX)

SMALL = {
    "env.max_episode_steps": 50, "collect.num_pairs": 120, "collect.num_workers": 0, "reward.num_epochs": 2,
    "reward.batch_size": 32, "reward.message": "lt_cnn_small", "reward.learning_rate": 1e-3,
    "policy.num_workers": 0, "policy.synchronous": True, "policy.games_per_worker": 8, "policy.groups": 2,
    "policy.rollout_length": 8, "policy.batch_size": 64, "policy.warmup_steps": 0, "policy.tensorboard": False,
    "policy.intrinsic_coefficient": 0.0, "policy.extrinsic_coefficient": 1.0,
    "policy.train_for_env_steps": 192, "policy.save_every_steps": 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A workdir in which nothing is wrong."""
    config, workdir = get_config("quickstart.py", "toy"), tmp_path_factory.mktemp("whole")
    config.update_from_flattened_dict(SMALL)
    experiment.run(config.to_dict(), workdir, ["collect", "annotate", "train_reward", "train_policy"])
    return workdir


class Evil:
    """Leaves a trace when it is loaded."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self):
        return (os.mkdir, (str(self.trace),))


def truncate(file: Path, trace: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip_one(file: Path, trace: Path, where: float = 0.75) -> None:
    data = bytearray(file.read_bytes())
    data[int(len(data) * where)] ^= 1
    file.write_bytes(data)


def poison(file: Path, trace: Path) -> None:
    file.write_bytes(pickle.dumps(Evil(trace)))


def not_text(file: Path, trace: Path) -> None:
    file.write_bytes(b"\xff\xfe" * 40)


def refused_or_same(file: Path, damage, trace: Path, attempt) -> None:
    """Damages a file; then `attempt` must raise one sentence, or find what it found without the damage."""
    damage(file, trace)
    refusal = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            attempt()
        except UserError as error:
            refusal = str(error)
    assert "\n" not in refusal
    assert len(refusal) < 700
    assert not trace.exists(), "a stranger's code was executed"


def files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


@pytest.fixture
def workdir(whole, tmp_path):
    """A copy of it, to be damaged."""
    shutil.copytree(whole, tmp_path / "run")  # times of files are copied, so that the index is not stale
    return tmp_path / "run"


def arrays_of(tree) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("damage", [truncate, poison, not_text, flip_one])
def test_a_checkpoint_reads_as_it_was_written_or_not_at_all(whole, workdir, tmp_path, damage):
    folder = "reward/checkpoints"
    with reading(whole / folder) as checkpoints:
        good = {step: (arrays_of(checkpoints.raw(step)), checkpoints.metadata(step)) for step in checkpoints.steps()}
    last = f"{folder}/{max(good)}"

    def attempt():
        with reading(workdir / folder) as checkpoints:
            step, state, facts = checkpoints.readable("last")
        assert (arrays_of(state), facts) == good[step]

    for file in files_of(whole / last):
        refused_or_same(workdir / file.relative_to(whole), damage, tmp_path / "trace", attempt)
        shutil.rmtree(workdir / last)
        shutil.copytree(whole / last, workdir / last)


def test_a_policy_whose_arrays_have_changed_is_not_played(workdir):
    """Nobody else notices: not orbax, not the format that it writes."""
    largest = max(files_of(workdir / "policy/checkpoints/192/state"), key=lambda file: file.stat().st_size)
    good, told = largest.read_bytes(), []
    for eighth in (1, 4, 7):
        largest.write_bytes(good)
        flip_one(largest, largest, eighth / 8)
        with pytest.warns(UserWarning, match="checkpoint 192 in .* cannot be read") as caught:
            assert read_policy(workdir)[1]["progress"]["env_steps"] == 128
        told += [str(warning.message) for warning in caught]
    assert any("its arrays are damaged" in text for text in told)


def test_one_kind_of_checkpoint_is_not_taken_for_another(workdir):
    with pytest.raises(UserError, match="are not of a reward"):
        load_reward(workdir / "policy")
    with pytest.raises(UserError, match="are not of a policy"):
        read_policy(workdir / "reward")

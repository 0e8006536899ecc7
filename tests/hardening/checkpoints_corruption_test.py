"""Checkpoints, published rewards and replays, damaged in every way: refused in one sentence, or read as they were.

A foreign pickle in their place would leave a trace if it were ever executed.
"""

import functools
import shutil

import jax
import numpy as np
import pytest
from damages import (
    ORBAX,
    archive,
    files_of,
    flip_one,
    make_whole,
    not_text,
    poison,
    poison_array,
    refused_or,
    run,
    truncate,
)

from motif_jax import load_reward
from motif_jax.devices.checkpoints import reading
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.policies.model import read_policy
from motif_jax.replays.replay import load_replay
from motif_jax.rewards.model import make_reward_model
from motif_jax.rewards.torch_format import read_checkpoint, write_experiment
from motif_jax.structs import UserError

pytestmark = pytest.mark.filterwarnings(ORBAX)


@pytest.fixture(scope="module")
def whole():
    """A workdir in which nothing is wrong."""
    return make_whole()


@pytest.fixture
def workdir(whole, tmp_path):
    """A copy of it, to be damaged."""
    shutil.copytree(whole, tmp_path / "run")  # times of files are copied, so that the index is not stale
    return tmp_path / "run"


# ---- the reward


def arrays_of(tree) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("damage", [truncate, poison, not_text, flip_one])
def test_a_checkpoint_reads_as_it_was_written_or_not_at_all(whole, workdir, tmp_path, damage):
    folder = "reward/checkpoints"
    with reading(whole / folder) as checkpoints:
        good = {step: (arrays_of(checkpoints.raw(step)), checkpoints.facts(step)) for step in checkpoints.steps()}
    last = f"{folder}/{max(good)}"

    def attempt():
        with reading(workdir / folder) as checkpoints:
            step, state, facts = checkpoints.readable("last")
        assert (arrays_of(state), facts) == good[step]

    for file in files_of(whole / last):
        refused_or(workdir, str(file.relative_to(whole)), damage, tmp_path, attempt)
        shutil.rmtree(workdir / last)
        shutil.copytree(whole / last, workdir / last)


# ---- the policy


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


def test_a_published_reward_is_read_as_it_was_or_not_at_all(whole, tmp_path):
    pytest.importorskip("torch", reason="needs PyTorch's build for CPUs: bash launch/test.sh installs it")
    config = {"message": "lt_cnn", "blstats": False, "crop": False, "glyphs": False}
    arrays = {key: np.asarray(leaf) for key, leaf in leaves_by_path(make_reward_model(config, 0)[1]).items()}
    facts = {"mean": 0.0, "variance": 1.0, "quantiles": {"0.50": 0.0}}
    file = write_experiment(tmp_path / "theirs", arrays, 1, facts)
    good, data = read_checkpoint(file)[0], file.read_bytes()
    for damage in (truncate, poison, archive, flip_one):
        file.write_bytes(data)
        refused_or(tmp_path, str(file.relative_to(tmp_path)), damage, tmp_path, lambda: [
            np.testing.assert_array_equal(array, good[key]) for key, array in read_checkpoint(file)[0].items()
        ])  # fmt: skip


# ---- evaluation

PLAYER = "evaluate/random"
EVALUATION = {
    "evaluate__policy": "random",
    "evaluate__beside": "",
    "evaluate__episodes": 12,
    "evaluate__num_workers": 0,
}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A workdir with an evaluation."""
    workdir = tmp_path_factory.mktemp("played") / "run"
    run(workdir, "evaluate", **EVALUATION)
    return workdir


@pytest.mark.parametrize("damage", [truncate, poison_array, not_text])
def test_a_replay_is_shown_as_it_was_or_not_at_all(played, tmp_path, damage):
    source = next((played / PLAYER / "replays").iterdir())
    good, file = load_replay(source, "--flag"), tmp_path / "replay.npz"
    shutil.copyfile(source, file)

    def attempt():
        found = load_replay(file, "--flag")
        assert found.about == good.about
        for name, array in zip(found._fields[1:], found[1:], strict=True):
            np.testing.assert_array_equal(array, getattr(good, name))

    refused_or(tmp_path, "replay.npz", damage, tmp_path, attempt)
    data = source.read_bytes()
    for seed in range(20):  # flips everywhere, the directory of the archive included
        file.write_bytes(data)
        once = functools.partial(flip_one, where=seed / 20)
        refused_or(tmp_path, "replay.npz", once, tmp_path, attempt)

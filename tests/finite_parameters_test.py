"""Numbers that are not finite are refused at every door through which parameters come in, in one sentence."""

import functools

import jax
import numpy as np
import pytest

import motif_jax
from motif_jax.captions import encode
from motif_jax.contrib.words import read_vectors
from motif_jax.devices.checkpoints import Checkpoints
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.devices.releases import write_release
from motif_jax.policies.model import make_policy_model, read_policy
from motif_jax.rewards.model import make_reward_model
from motif_jax.rewards.torch_format import EMBEDDING, read_checkpoint
from motif_jax.structs import UserError

OPTIONS = {"network": "small", "num_actions": 23, "dtype": "float32"}
OF_REWARD = {"message": "lt_cnn_small", "blstats": False, "crop": False, "glyphs": False}
STATISTICS = {"mean": 0.0, "variance": 1.0, "quantiles": {"0.50": 0.0, "0.95": 1.0}}


@functools.cache
def params_of_policy():
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), make_policy_model(OPTIONS, None).params)


@functools.cache
def reward_arrays():
    """Parameters, captions and counts of a reward."""
    captions = np.stack([encode("stairs"), encode("a wall")])
    return {"params": make_reward_model(OF_REWARD, 0)[1], "captions": captions, "counts": np.ones(2, np.int32)}


def spoilt(tree, bad):
    """A tree of dictionaries with a bad number in its last array of float32; and the name of that array."""
    leaves = leaves_by_path(tree)
    name = max(path for path, leaf in leaves.items() if np.asarray(leaf).dtype == np.float32)
    found = {}
    for path, leaf in leaves.items():
        inner = found
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = np.array(leaf)
        if path == name:
            inner[path[-1]].flat[-1] = bad
    return found, ".".join(name)


def save(directory, whole, facts):
    keeper = Checkpoints(directory)
    keeper.save(5, whole, facts, 0.0)
    keeper.close()
    return directory


def of_policy(**sources):
    return {"model": OPTIONS, "config": {"env": {}}, "sources": sources}


def policy(folder, bad):
    params, name = spoilt(params_of_policy(), bad)
    directory = save(folder / "policy/checkpoints", {"learner": {"params": params}}, of_policy())
    return lambda: read_policy(folder), directory, name


def reward(folder, bad):
    arrays, _ = spoilt(reward_arrays(), 0)
    params, name = spoilt(reward_arrays()["params"], bad)
    facts = {"epoch": 1, "model": OF_REWARD, "statistics": STATISTICS}
    directory = save(folder / "reward/checkpoints", arrays | {"train": {"params": params}}, facts)
    return lambda: motif_jax.load_reward(folder), directory, name


def release(folder, kind, arrays, facts):
    arrays = {kind: leaves_by_path(arrays)}
    write_release(folder, arrays, {kind: {"step": 5, "facts": facts}}, "a card", None)


def released_policy(folder, bad):
    params, name = spoilt(params_of_policy(), bad)
    release(folder, "policy", {"params": params}, of_policy())
    return lambda: motif_jax.load_policy(folder), folder, name


def released_reward(folder, bad):
    params, name = spoilt(reward_arrays()["params"], bad)
    release(folder, "reward", reward_arrays() | {"params": params}, {"model": OF_REWARD, "statistics": STATISTICS})
    return lambda: motif_jax.load_reward(folder), folder, name


def torch_checkpoint(folder, bad):
    torch = pytest.importorskip("torch", reason="needs PyTorch's build for CPUs")
    from torch_reward import TorchReward

    state, file = TorchReward().state_dict(), folder / "checkpoint_7.pth"
    state[EMBEDDING][2, 3] = bad
    torch.save({"num_iter": 7, "model": state, "reward_mean": torch.tensor(0.5), "reward_var": torch.tensor(4.0)}, file)
    return lambda: read_checkpoint(file), file, EMBEDDING


def word_vectors(folder, bad):
    file = folder / "words.vec"
    file.write_text(f"2 3\nstairs 1 0 2\nwall 0 {bad} 1\n")
    return lambda: read_vectors(file), file, "line 3"


DOORS = [
    policy, reward, released_policy, released_reward, torch_checkpoint, word_vectors,
]  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_no_door_takes_parameters_that_are_not_finite(door, tmp_path):
    for number, bad in enumerate((np.nan, np.inf)):
        (tmp_path / str(number)).mkdir()
        opened, file, name = door(tmp_path / str(number), bad)
        with pytest.raises(UserError, match="not finite") as caught:
            opened()
        assert len(str(caught.value).splitlines()) == 1
        assert name in str(caught.value)
        assert str(file) in str(caught.value)
    (tmp_path / "good").mkdir()
    door(tmp_path / "good", 0.25)[0]()

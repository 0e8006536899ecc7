"""Numbers that are not finite are refused at every door through which parameters come in, in one sentence."""

import functools
import json

import jax
import numpy as np
import pytest
from evaluate_writers_test import write_values
from own_models import write_own
from safetensors.numpy import load_file, save_file

import motif_jax
from motif_jax.captions import encode
from motif_jax.contrib.words import read_vectors
from motif_jax.devices.checkpoints import Checkpoints, reading
from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.devices.releases import write_release
from motif_jax.language.hub import TENSORS, read_language_model
from motif_jax.policies.model import make_policy_model, read_policy
from motif_jax.policies.values import list_values, read_values
from motif_jax.rewards.choice import SOURCES
from motif_jax.rewards.model import make_reward_model
from motif_jax.rewards.statistics import read_statistics
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


def source_of_a_policy(folder, bad):
    arrays, name = spoilt(reward_arrays(), bad)
    own = {"model": OF_REWARD, "statistics": STATISTICS, "facts": {}, "one_step_late": False, "mix": {
        "extrinsic": 1.0, "intrinsic": 1.0, "threshold": 0.0, "count_exponent": 3.0}}  # fmt: skip
    learnt = {"class": SOURCES["learnt"].path, "coefficient": 1.0, "facts": own}
    whole = {"learner": {"params": spoilt(params_of_policy(), 0)[0]}, "sources": {"learnt": arrays}}
    directory = save(folder / "policy/checkpoints", whole, of_policy(learnt=learnt))
    return lambda: read_policy(folder), directory, f"sources.learnt.{name}"


def reward(folder, bad):
    arrays, _ = spoilt(reward_arrays(), 0)
    params, name = spoilt(reward_arrays()["params"], bad)
    facts = {"epoch": 1, "model": OF_REWARD, "statistics": STATISTICS}
    directory = save(folder / "reward/checkpoints", arrays | {"train": {"params": params}}, facts)
    return lambda: motif_jax.load_reward(folder), directory, name


def values(folder, bad):
    """Q heads, which are no part of the language model beside them."""
    directory = write_values(folder) / "values/checkpoints"
    with reading(directory) as checkpoints:
        _, whole, facts = checkpoints.readable("last")
    whole["train"]["target"]["q"][1]["out_kernel"][0, 0] = bad
    save(folder / "other/values/checkpoints", whole, facts)
    (folder / "values/policy").rename(folder / "other/values/policy")
    return lambda: read_values(list_values(folder / "other")[0]), folder / "other/values", "target.q.1.out_kernel"


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


def language_model(folder, bad):
    file = write_own("gpt2", folder) / TENSORS
    tensors = load_file(file)
    tensors["transformer.h.1.ln_1.weight"][3] = bad
    save_file(tensors, file)
    return lambda: read_language_model(folder), file, "transformer.h.1.ln_1.weight"


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


def own_checkpoint(folder, bad):
    """From which a stage goes on."""
    tree = {"params": {"kernel": np.ones((2, 3), np.float32)}, "step": np.int32(4)}
    found, name = spoilt(tree, bad)
    return lambda: rebuild(tree, leaves_by_path(found), folder, "--workdir"), folder, name


DOORS = [
    policy, source_of_a_policy, reward, values, released_policy, released_reward, language_model, torch_checkpoint,
    word_vectors, own_checkpoint,
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


@pytest.mark.quick
@pytest.mark.parametrize("bad", ["NaN", "1e300", "1" + "0" * 400])
@pytest.mark.parametrize("key", ["mean", "variance", "0.50"])
def test_statistics_of_a_reward_are_finite(key, bad, tmp_path):
    record = json.loads(json.dumps(STATISTICS))
    assert read_statistics(record, tmp_path).variance == 1
    (record["quantiles"] if key == "0.50" else record)[key] = json.loads(bad)
    with pytest.raises(UserError, match=f"are not finite: {key} is ") as caught:
        read_statistics(record, tmp_path)
    assert len(str(caught.value)) < 300

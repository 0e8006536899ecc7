import numpy as np
import pytest
from conftest import refusal

import motif_jax
from motif_jax.contrib.words.source import read_vectors
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.devices.releases import write_release
from motif_jax.policies.model import make_policy_model

OPTIONS = {"network": "small", "num_actions": 23, "dtype": "float32"}


def released_policy(folder, bad):
    params = make_policy_model(OPTIONS, None).params
    arrays = {("params", *path): np.zeros(leaf.shape, leaf.dtype) for path, leaf in leaves_by_path(params).items()}
    name = max(arrays)
    arrays[name].flat[-1] = bad
    facts = {"model": OPTIONS, "config": {"env": {}}, "sources": {}}
    write_release(folder, {"policy": arrays}, {"policy": {"step": 5, "facts": facts}}, "a card", None)
    return lambda: motif_jax.load_policy(folder), folder, ".".join(name[1:])


def word_vectors(folder, bad):
    file = folder / "words.vec"
    file.write_text(f"2 3\nstairs 1 0 2\nwall 0 {bad} 1\n")
    return lambda: read_vectors(file), file, "line 3"


@pytest.mark.parametrize("door", [released_policy, word_vectors])
def test_no_door_takes_parameters_that_are_not_finite(door, tmp_path):
    for number, bad in enumerate((np.nan, np.inf)):
        (tmp_path / str(number)).mkdir()
        opened, file, name = door(tmp_path / str(number), bad)
        refusal(opened, "not finite", name, str(file))
    (tmp_path / "good").mkdir()
    door(tmp_path / "good", 0.25)[0]()

import numpy as np
import pytest
from conftest import refusal

import motif_jax
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


def check_door(door, tmp_path):
    """`door`: (directory, a number in its file) -> a function that reads it, the file, and how it names the place."""
    for number, bad in enumerate((np.nan, np.inf)):
        (tmp_path / str(number)).mkdir()
        opened, file, name = door(tmp_path / str(number), bad)
        refusal(opened, "not finite", name, str(file))
    (tmp_path / "good").mkdir()
    door(tmp_path / "good", 0.25)[0]()


@pytest.mark.parametrize("door", [released_policy])
def test_no_door_takes_parameters_that_are_not_finite(door, tmp_path):
    check_door(door, tmp_path)

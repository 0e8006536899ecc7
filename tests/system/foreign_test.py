"""Paths that a user names may lead to anything: it is said what is there, at once."""

import pytest
from attacks import ATTACKS, at_once, make_outside
from conftest import get_config
from small_dataset import random_pairs, write_dataset

from motif_jax import experiment
from motif_jax.structs import UserError
from motif_jax.system.foreign import leads_out, read_bytes

# Stage, flag that names a path, and what else makes the stage read it.
NAMED = {
    "collect.dataset": ("collect", {}),
    "annotate.prompt_file": ("annotate", {"annotate.backend": "server"}),
    "reward.import_from": ("train_reward", {}),
    "policy.init_from": ("train_policy", {"policy.intrinsic_coefficient": 0.0}),
    "visualize.replay": ("visualize", {}),
}


@pytest.mark.parametrize("flag", NAMED)
def test_what_a_user_names_is_looked_at_before_it_is_opened(tmp_path, flag):
    stage, more = NAMED[flag]
    outside = make_outside(tmp_path / "elsewhere", (64,))
    if stage != "collect":
        write_dataset(tmp_path / "run/dataset", random_pairs(4))
    (tmp_path / "places").mkdir()
    for number, attack in enumerate(ATTACKS):
        if flag == "policy.init_from" and "directory" in attack:
            continue  # it is looked into when a policy has been made
        place = tmp_path / f"places/place{number}"
        ATTACKS[attack](place, outside)
        config = get_config(argument="toy")
        config.update_from_flattened_dict({**more, flag: str(place)})
        with at_once(), pytest.raises(UserError, match=r"--config\.") as caught:
            experiment.run(config, tmp_path / "run", [stage])
        assert "\n" not in str(caught.value)
        assert stage == "train_reward" or str(place) in str(caught.value)  # that one may miss PyTorch first


@pytest.mark.quick
def test_a_file_of_more_bytes_than_the_limit_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bytes(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ValueError, match="more than 4 bytes"):
        read_bytes(tmp_path / "file", 4)


@pytest.mark.quick
def test_where_links_lead(tmp_path):
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "inside/to file").symlink_to("file")
    (tmp_path / "inside/out").symlink_to("../outside/file")
    (tmp_path / "inside/folder").symlink_to("../outside")
    (tmp_path / "inside/back").symlink_to("../outside/../inside/file")
    (tmp_path / "alias").symlink_to("inside")
    for base in ("inside", "alias"):
        found = {name: leads_out(tmp_path / base / name, tmp_path / base) for name in (
            "file", "to file", "back", "missing", "out", "folder/file", "../outside/file",
        )}  # fmt: skip
        assert [name for name, out in found.items() if out] == ["out", "folder/file", "../outside/file"]

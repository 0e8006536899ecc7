"""Paths that a user names may lead to anything: it is said what is there, at once."""

import os

import numpy as np
import pytest
from attacks import ATTACKS, at_once, make_outside
from conftest import get_config
from small_dataset import random_pairs, write_dataset

from motif_jax import experiment
from motif_jax.devices.checkpoints import Checkpoints, reading
from motif_jax.structs import UserError
from motif_jax.system.foreign import check_regular, leads_out, read_bytes, written_bytes

# Stage, flag that names a path, and what else makes the stage read it.
NAMED = {
    "collect.dataset": ("collect", {}),
    "collect.policies": ("collect", {}),
    "annotate.prompt_file": ("annotate", {"annotate.backend": "server"}),
    "annotate.model": ("annotate", {"annotate.backend": "vllm"}),
    "reward.import_from": ("train_reward", {}),
    "policy.reward_dir": ("train_policy", {"policy.network": "small"}),
    "policy.init_from": ("train_policy", {"policy.intrinsic_coefficient": 0.0}),
    "evaluate.policy": ("evaluate", {}),
    "audit.second_reward_dir": ("audit", {}),
    "visualize.replay": ("visualize", {}),
    "visualize.policy": ("visualize", {}),
    "report.runs": ("report", {}),
}


@pytest.mark.parametrize("flag", [
    pytest.param(flag, marks=pytest.mark.quick) if flag in ("annotate.prompt_file", "policy.init_from") else flag
    for flag in NAMED
])  # fmt: skip
def test_what_a_user_names_is_looked_at_before_it_is_opened(tmp_path, flag):
    stage, more = NAMED[flag]
    outside = make_outside(tmp_path / "elsewhere", (64,))
    if stage != "collect":
        write_dataset(tmp_path / "run/dataset", random_pairs(4))
    (tmp_path / "places").mkdir()
    for number, attack in enumerate(ATTACKS):
        if flag in ("report.runs", "policy.init_from") and "directory" in attack:
            continue  # the one takes it for an empty workdir, the other looks into it when it has made a policy
        place = tmp_path / f"places/place{number}"
        ATTACKS[attack](place, outside)
        config = get_config(argument="toy")
        config.update_from_flattened_dict({**more, flag: str(place)})
        with at_once(), pytest.raises(UserError, match=r"--config\.") as caught:
            experiment.run(config, tmp_path / "run", [stage])
        assert "\n" not in str(caught.value)
        assert stage == "train_reward" or str(place) in str(caught.value)  # that one may miss PyTorch first


@pytest.mark.quick
@pytest.mark.parametrize(
    "attack", ["pipe", "link to a pipe elsewhere", "link to /dev/zero", "socket", "link to itself"]
)
def test_checkpoints_are_files(tmp_path, attack):
    outside = make_outside(tmp_path / "elsewhere", (64,))
    checkpoints = Checkpoints(tmp_path / "run/policy/checkpoints")
    checkpoints.save(1, {"array": np.zeros(3)}, {})
    checkpoints.close()
    files = [file for file in (tmp_path / "run/policy/checkpoints").rglob("*") if file.is_file()]
    assert len(files) > 5
    for file in files:
        content = file.read_bytes()
        file.unlink()
        ATTACKS[attack](file, outside)
        with (
            at_once(),
            pytest.raises(UserError, match="among checkpoints"),
            reading(tmp_path / "run/policy/checkpoints"),
        ):
            pass
        file.unlink()
        file.write_bytes(content)
    with reading(tmp_path / "run/policy/checkpoints") as again:
        assert again.steps() == [1]


@pytest.mark.quick
def test_what_is_regular(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        check_regular(tmp_path / name)
        assert read_bytes(tmp_path / name, 5) == b"12345"
        with pytest.raises(ValueError, match="more than 4 bytes"):
            read_bytes(tmp_path / name, 4)
    os.mkfifo(tmp_path / "pipe")
    for path, kind in (("pipe", "a named pipe"), (".", "a directory"), ("/dev/null", "a device")):
        with pytest.raises(OSError, match=f"it is {kind}, not a file"):
            check_regular(tmp_path / path)


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


@pytest.mark.quick
def test_holes_were_never_written(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(2**20))
    assert written_bytes(file) == 2**20
    os.truncate(file, 2**40)
    assert written_bytes(file) == 2**20
    with open(file, "r+b") as out:
        out.seek(2**39)
        out.write(bytes(2**16))
    assert written_bytes(file) == 2**20 + 2**16

import hashlib
import re
import shutil
import sys

import numpy as np
import pytest
from conftest import bytes_of, get_config, refusal, run_stage
from safetensors.numpy import load_file, save
from toy_policies import policies

import motif_jax
from motif_jax.devices import releases
from motif_jax.devices.releases import CARD, METADATA, write_release
from motif_jax.envs.worlds import make_world
from motif_jax.files import read_json, write_json
from motif_jax.policies.choice import list_steps, load
from motif_jax.policies.model import read_policy
from motif_jax.replays.replay import load_replay
from motif_jax.stages import visualize
from motif_jax.structs import UserError


@pytest.fixture
def release(tmp_path):
    return shutil.copytree(releases.ZOO / "quickstart", tmp_path / "copy")


def test_one_kind_of_checkpoint_is_not_taken_for_another():
    refusal(lambda: motif_jax.load_reward(policies().good / "policy"), "are not of a reward")
    refusal(lambda: read_policy(policies().good / "reward"), "are not of a policy")


def test_every_changed_byte_is_refused_in_one_sentence(release):
    rng = np.random.default_rng(0)
    for file in sorted(release.iterdir()):
        data, kind = file.read_bytes(), "reward" if file.name.startswith("reward") else "policy"
        read = releases.read_release if file.name != "best.npz" else lambda path, *_: releases.released_replay(path)
        damaged = [b"", data[: len(data) // 2]]
        for at in (0, 8, len(data) - 1, *rng.integers(len(data), size=2).tolist()):
            damaged.append(data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :])
        for changed in damaged:
            file.write_bytes(changed)
            refusal(lambda: read(release, kind, "last"), "cannot read ")
        file.write_bytes(data)


def rewritten(release, change):
    """A release with other facts and right digests, as somebody may make it who means harm."""
    facts = read_json(release / "config.json")
    facts.pop(releases.CHECKSUM, None)
    change(facts)
    write_json(release / "config.json", facts | {releases.CHECKSUM: releases._checksum(facts)})
    return release


def set_fact(*path, value):
    def change(facts):
        for name in path[:-1]:
            facts = facts[name]
        if value is None:
            facts.pop(path[-1])
        else:
            facts[path[-1]] = value

    return change


@pytest.mark.parametrize("path", [
    ("format",), ("policy", "step"), ("policy", "facts", "model"), ("policy", "facts", "model", "num_actions"),
    ("policy", "facts", "config"), ("policy", "facts", "sources", "learnt", "facts"), ("files", "README.md"),
    ("reward", "facts", "statistics", "mean"),
], ids=".".join)  # fmt: skip
@pytest.mark.parametrize("value", [None, {"a": {}}], ids=str)
def test_invalid_metadata_is_refused_in_one_sentence(release, path, value):
    load_it = motif_jax.load_reward if path[0] == "reward" else motif_jax.load_policy
    changed = rewritten(release, set_fact(*path, value=value))
    refusal(lambda: load_it(changed), str(release))


def test_code_that_a_card_names_is_never_imported(release):
    def change(facts):
        facts["policy"]["facts"]["config"]["env"].update(world="raises_on_import:World", task="raises_on_import:Game")
        facts["policy"]["facts"]["sources"]["Own"] = {"class": "raises_on_import:Own", "coefficient": 1.0, "facts": {}}

    sys.modules.pop("raises_on_import", None)
    policy = motif_jax.load_policy(rewritten(release, change))
    assert policy.reward is not None
    assert "raises_on_import" not in sys.modules
    with pytest.raises(UserError, match="was trained in the world 'raises_on_import:World'"):
        load(str(release), list_steps(str(release), "--flag")[1][0], make_world(get_config().env), "--flag")
    assert "raises_on_import" not in sys.modules


def test_tensors_that_are_not_the_networks_are_refused(release):
    tensors = load_file(release / "policy.safetensors")
    first = next(iter(tensors))

    def with_data(data):
        (release / "policy.safetensors").write_bytes(data)
        rewritten(release, set_fact("files", "policy.safetensors", value=hashlib.sha256(data).hexdigest()))

    for changed in (
        {name: array for name, array in tensors.items() if name != first},
        tensors | {first: tensors[first].astype(np.float64)},
        tensors | {first: tensors[first][..., None]},
        tensors | {f"{first}.more": np.zeros(3)},
        None,  # damaged
    ):
        with_data(save(changed) if changed else save(tensors)[:-1])
        refusal(lambda: motif_jax.load_policy(release))


def test_the_programs_own_release_is_loaded_by_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    policy, reward = motif_jax.load_policy("motif_jax/quickstart"), motif_jax.load_reward("motif_jax/quickstart")
    assert reward(["You kill the newt!"]).normalised[0] > reward(["It's a wall."]).normalised[0]
    assert policy.reward.statistics == reward.statistics
    config = get_config("quickstart.py")
    config.visualize.policy = "motif_jax/quickstart"
    run_stage(visualize, config, tmp_path)
    assert "policy-" in capsys.readouterr().out
    with pytest.raises(UserError, match="there is no release 'motif_jax/quickstar'; this version has motif_jax/quick"):
        motif_jax.load_reward("motif_jax/quickstar")


@pytest.mark.quick
def test_the_programs_own_releases_are_small_and_whole():
    for directory in releases.ZOO.iterdir():
        facts = releases.read_metadata(directory)
        assert {file.name for file in directory.iterdir()} == {*facts["files"], "config.json"}
        for name in facts["files"]:
            releases.read_checked(directory, name, facts)
        assert sum(file.stat().st_size for file in directory.iterdir()) < 5e6
        assert facts["licence"] == "apache-2.0"
        assert facts["results"]["evaluations"]
        load_replay(releases.released_replay(directory), "--flag")
        for file in ("config.json", "README.md"):
            assert not re.search("/(tmp|home|root)", (directory / file).read_text())


def write(directory, card="# card"):
    write_release(directory, {"policy": {("params", "a"): np.ones(3, np.float32)}}, {"name": "x"}, card, None)


@pytest.mark.quick
def test_a_release_replaces_a_release(tmp_path):
    write(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    write(tmp_path, "# another card")
    assert (tmp_path / CARD).read_text() == "# another card"
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / CARD).write_text("# a third card")  # an export with this card was killed before its config.json
    write(tmp_path, "# a third card")


@pytest.mark.quick
@pytest.mark.parametrize(("name", "first"), [(CARD, False), (METADATA, True), ("policy.safetensors", True)])
def test_a_release_replaces_no_file_of_others(tmp_path, name, first):
    if first:  # and then it was changed, or put there
        write(tmp_path)
    (tmp_path / name).write_text('{"mine": 1}')
    before = bytes_of(tmp_path)
    with pytest.raises(UserError, match=rf"{name}' would be replaced, but was changed since .*: name another "):
        write(tmp_path, "# new")
    assert bytes_of(tmp_path) == before

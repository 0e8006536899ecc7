import hashlib
import re
import shutil
import sys

import numpy as np
import pytest
from conftest import assert_same_bits, bytes_of, get_config, is_complete, refusal, run_stage
from safetensors.numpy import load_file, save
from toy_policies import TASK, TRAINING, policies

import motif_jax
from motif_jax.devices import releases
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.devices.releases import CARD, METADATA, write_release
from motif_jax.envs.worlds import make_world
from motif_jax.files import read_json, write_json
from motif_jax.policies.choice import list_steps, load
from motif_jax.policies.model import read_policy
from motif_jax.replays.replay import load_replay
from motif_jax.stages import evaluate, export, train_policy, visualize
from motif_jax.stages.evaluate import read_rows
from motif_jax.stages.export.release import judge_of
from motif_jax.structs import UserError


def settings(**values):
    config = get_config(argument=TASK)
    config.policy.update(TRAINING)
    config.export.update(values)
    return config


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    path = shutil.copytree(policies().good, tmp_path_factory.mktemp("released") / "run")
    config = settings()
    config.evaluate.update({"episodes": 6, "num_workers": 0, "games_per_worker": 3, "greedy": True})
    evaluate.STAGE.run(evaluate.STAGE.view(config.to_dict()), path)
    return path


@pytest.fixture(scope="module")
def original(workdir, tmp_path_factory):
    directory = tmp_path_factory.mktemp("release") / "toy"
    config = settings(to=str(directory), licence="apache-2.0", about="A toy.")
    run_stage(export, config, workdir)
    return directory


@pytest.fixture
def release(original, tmp_path):
    return shutil.copytree(original, tmp_path / "toy")


def test_a_release_gives_what_the_workdir_gives(workdir, original):
    (model, facts, sources), (theirs, their_facts, their_sources) = read_policy(workdir), read_policy(original)
    assert_same_bits(leaves_by_path((model.params, model.frozen)), leaves_by_path((theirs.params, theirs.frozen)))
    assert facts["model"] == their_facts["model"]
    assert sources.facts() == their_facts["sources"] == their_sources.facts()
    assert_same_bits(sources.arrays(), their_sources.arrays())
    reward, released = motif_jax.load_reward(workdir), motif_jax.load_reward(original)
    captions = ["You descend the stairs.", "It's a wall.", "something else"]
    assert np.array_equal(reward(captions).normalised, released(captions).normalised)
    assert reward.top(2) == released.top(2)
    assert motif_jax.load_policy(original, 7680).reward.statistics == reward.statistics
    refusal(lambda: motif_jax.load_policy(original, 5), "has no checkpoint 5; it has 7680")


def test_flags_take_a_release(workdir, original, tmp_path):
    """Evaluation plays the same greedy games; a policy can begin with it and be rewarded by it."""
    config = settings()
    values = {"policy": str(original), "beside": "", "episodes": 6, "num_workers": 0, "games_per_worker": 3}
    config.evaluate.update(values | {"greedy": True})
    run_stage(evaluate, config, tmp_path)
    assert is_complete(evaluate, config, tmp_path)
    rows = [read_rows(path / "episodes.jsonl") for path in
            (tmp_path / "evaluate/toy-7680-greedy", workdir / "evaluate/policy-7680-greedy")]  # fmt: skip
    assert rows[0] == rows[1]
    config.policy.update({"init_from": str(original), "reward_dir": str(original), "train_for_env_steps": 256})
    run_stage(train_policy, config, tmp_path)
    assert read_policy(tmp_path)[2].learnt.reward.statistics == motif_jax.load_reward(original).statistics
    (original / "note.txt").write_text("by its owner")  # a file that no fact speaks of does no harm
    motif_jax.load_policy(original)
    (original / "note.txt").unlink()


def test_a_reward_can_be_released_alone(workdir, tmp_path, capsys):
    shutil.copytree(workdir / "reward", tmp_path / "run/reward")
    export.STAGE.run(export.STAGE.view(settings().to_dict()), tmp_path / "run")
    directory = tmp_path / "run/export"
    assert {file.name for file in directory.iterdir()} == {"README.md", "config.json", "reward.safetensors"}
    assert f"motif_jax.load_reward({str(directory)!r})" in capsys.readouterr().out
    refusal(lambda: motif_jax.load_policy(directory), "has no policy")
    refusal(lambda: list_steps(str(directory), "--flag"), match=r"has no policy \(--flag\)")


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


@pytest.mark.quick
def test_a_card_names_the_judge_as_its_class_does_and_imports_nobodys():
    judges = {"lexicon": "the rules", "random": "chance", "no_such_module:Judge": "no_such_module:Judge"}
    assert {name: judge_of({"backend": name, "model": ""}) for name in judges} == judges
    assert judge_of({"backend": "server", "model": "org/some"}) == "org/some"
    assert judge_of({"backend": "server", "model": ""}) == "server"


def test_code_that_a_card_names_is_never_imported(release):
    def change(facts):
        facts["policy"]["facts"]["config"]["env"].update(world="raises_on_import:World", task="raises_on_import:Game")
        facts["policy"]["facts"]["sources"]["Own"] = {"class": "raises_on_import:Own", "coefficient": 1.0, "facts": {}}

    sys.modules.pop("raises_on_import", None)
    policy = motif_jax.load_policy(rewritten(release, change))
    assert policy.reward is not None
    assert "raises_on_import" not in sys.modules
    with pytest.raises(UserError, match="was trained in the world 'raises_on_import:World'"):
        load(str(release), 7680, make_world(settings().env), "--flag")
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


def test_a_card_tells_the_hub_only_figures_of_the_task_and_nobody_a_path_of_this_machine(workdir, original):
    card = (original / "README.md").read_text()
    assert "games, faulty_games:StairsInTheEast, greedy" in card
    assert "model-index" not in card
    content = (original / "config.json").read_text() + card
    assert not [path for path in (original.parent, workdir.parent) if str(path) in content]


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

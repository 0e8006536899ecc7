import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_same_bits, get_config, is_complete, refusal, run_stage
from own_test import MINE, choose, train
from seeds_test import write_run
from toy_policies import TASK, TRAINING, policies
from train_policy_test import TINY

import motif_jax
from motif_jax import experiment
from motif_jax.contrib.export import stage as export
from motif_jax.contrib.export.release import deciding_values, find_over_seeds, find_results, judge_of
from motif_jax.devices.parameters import leaves_by_path
from motif_jax.files import read_json, write_json
from motif_jax.policies.choice import list_steps
from motif_jax.policies.model import read_policy
from motif_jax.stages import evaluate, train_policy
from motif_jax.stages.evaluate import read_rows
from motif_jax.system.runs import plan

HERE = str(Path(__file__).parent)


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
    values = {"policy": str(original), "baselines": "", "episodes": 6, "num_workers": 0, "games_per_worker": 3}
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


def test_a_card_tells_the_hub_only_figures_of_the_task_and_nobody_a_path_of_this_machine(workdir, original):
    card = (original / "README.md").read_text()
    assert "games, faulty_games:StairsInTheEast, greedy" in card
    assert "model-index" not in card
    content = (original / "config.json").read_text() + card
    assert not [path for path in (original.parent, workdir.parent) if str(path) in content]


@pytest.mark.quick
def test_a_release_names_programs_without_the_folders_of_their_writer():
    config = get_config("quickstart.py", "toy")
    config.policy.sources = "learnt,code:/home/me/gold.reward:0.1,code:own/still.reward"
    config.options.rewards = "down=code:own/still.reward+gold,gold"
    config.annotate.goal = sentence = "Collect gold: open doors/chests, then descend"
    found = deciding_values(config.to_dict())
    assert found["policy"]["sources"] == "learnt,code:gold.reward:0.1,code:still.reward"
    assert found["options"]["rewards"] == "down=code:still.reward+gold,gold"
    assert found["annotate"]["goal"] == sentence


@pytest.mark.quick
def test_the_card_of_a_release_has_the_figures_of_the_runs_beside_it(tmp_path):
    for run in plan("5", [], 0):
        write_run(tmp_path / run.folder, 0.1 * run.seed)
    file = tmp_path / "seed-3/evaluate/policy-2000/summary.json"
    write_json(file, read_json(file) | {"step": 1500})
    results = find_over_seeds(tmp_path / "seed-1")
    assert (results["seeds"], results["trained_steps"]) == (5, [1500, 2000])
    success = results["over_seeds"]["success"]
    assert success["mean"] == pytest.approx(0.2)
    assert 0 < success["low"] < 0.2 < success["high"] < 0.4
    write_run(tmp_path / "alone" / "seed-0", 0.5)
    write_run(tmp_path / "other", 0.5)
    assert find_over_seeds(tmp_path / "alone" / "seed-0") == find_over_seeds(tmp_path / "other") == {}


def test_the_evaluation_of_a_variant_is_not_on_the_card(workdir, tmp_path):
    run = shutil.copytree(workdir, tmp_path / "run")
    shutil.copytree(run / "evaluate/policy-7680-greedy", run / "evaluate/policy-7680-gold")
    file = run / "evaluate/policy-7680-gold/summary.json"
    write_json(file, read_json(file) | {"variant": "gold"})
    assert [one["greedy"] for one in find_results(run, 7680)[0]["evaluations"]] == [True]


def test_a_users_network_of_a_release_is_imported_only_if_it_is_named(tmp_path):
    config, release = train(tmp_path), tmp_path / "release"
    config.export.to = str(release)
    export.STAGE.run(export.STAGE.view(config.to_dict()), tmp_path)
    assert f'trusted=["{MINE}"]' in (release / "README.md").read_text()
    refusal(lambda: motif_jax.load_policy(release), match=f"{MINE}.*imported only if you name it")
    np.testing.assert_array_equal(choose(tmp_path), choose(release))


@pytest.mark.parametrize("actions", ["numbers", "choices"])
def test_policies_with_actions_of_several_parts_are_released(tmp_path, actions):
    config = get_config("quickstart.py", "toy", export__to=str(tmp_path / "released"))
    config.env.world, config.env.options = "own_gym:AimWorld", f'{{"actions": "{actions}"}}'
    config.policy.update(TINY | {"network": "general", "extrinsic_coefficient": 1.0, "intrinsic_coefficient": 0.0})
    for stage in (train_policy, export):
        run_stage(stage, config, tmp_path)
    shown = {"observation": np.float32([0.5, 0.05])}
    acts = [motif_jax.load_policy(path)(shown, greedy=True).action for path in (tmp_path, tmp_path / "released")]
    np.testing.assert_array_equal(*acts)


@pytest.mark.quick
@pytest.mark.parametrize(("values", "said"), [
    ({"export.to": HERE}, "exists already, or has other files"),
    ({"export.to": f"{__file__}/release"}, "is not a directory (--config.export.to)"),
    ({"export.transcripts": "turns", "transcripts.path": HERE}, "transcripts.json': No such file"),
    ({"export.transcripts": "turns", "export.language": "merged"}, "are written one by one"),
])  # fmt: skip
def test_values_that_cannot_work_are_refused_in_one_sentence(values, said, tmp_path):
    config = get_config("motif.py", "score")
    config.update_from_flattened_dict(values)
    refusal(lambda: experiment.check(config.to_dict(), ["export"], tmp_path), said, "--config.")


@pytest.mark.quick
def test_a_release_that_is_about_to_be_written_is_not_missed(tmp_path):
    workdir, release = tmp_path / "w", str(tmp_path / "release")
    config = get_config("motif.py", "toy", evaluate__policy=release, export__to=release)
    experiment.check(config.to_dict(), ["export", "evaluate"], workdir)
    refusal(lambda: experiment.check(config.to_dict(), ["evaluate", "export"], workdir), "there is no policy in")


@pytest.mark.quick
def test_a_card_names_the_judge_as_its_class_does_and_imports_nobodys():
    judges = {"lexicon": "the rules", "random": "chance", "no_such_module:Judge": "no_such_module:Judge"}
    assert {name: judge_of({"backend": name, "model": ""}) for name in judges} == judges
    assert judge_of({"backend": "server", "model": "org/some"}) == "org/some"
    assert judge_of({"backend": "server", "model": ""}) == "server"

import re
from html import unescape

import jax
import numpy as np
import pytest
from conftest import check_stage, get_config, is_complete, last_checkpoint, run_stage, viewed
from flax import nnx
from gguf_models import write_gguf

from motif_jax import experiment, load_policy
from motif_jax.devices.parameters import sum_of_arrays
from motif_jax.envs.babyai.words import CANONICAL, all_words
from motif_jax.envs.worlds import make_world
from motif_jax.files import read_json, read_lines
from motif_jax.language.config import make_config
from motif_jax.language.hub import write_language_model
from motif_jax.language.model import make_language_model
from motif_jax.policies.language_policy import make_language_policy
from motif_jax.replays.replay import load_replay
from motif_jax.stages import collect, evaluate, report, train_policy
from motif_jax.stages.evaluate import file_of
from motif_jax.tokens import WordTokeniser, write_tokeniser
from motif_jax.transcripts.store import Transcripts

WORDS = WordTokeniser.from_texts(all_words())
VARIATION = "rewording=synonyms+actions=rotate"
ONE_GAME = {"episodes": 1, "variations": "", "replays": ""}


def config_of(argument="goto_local,unread", **language):
    config = get_config("glam_quickstart.py", argument)
    config.policy.update({
        "num_workers": 0, "games_per_worker": 4, "rollout_length": 8, "batch_size": 32, "num_minibatches": 4,
        "num_epochs": 2, "train_for_env_steps": 64, "train_for_seconds": 0.0, "tensorboard": False,
    })  # fmt: skip
    config.policy.language.update({"width": 8, "layers": 1, "heads": 2, "hidden": 8} | language)
    config.evaluate.update({
        "episodes": 2, "num_workers": 0, "baselines": "bot,@0", "games_per_worker": 2, "variations": VARIATION,
    })  # fmt: skip
    return config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("glam")
    config = config_of()
    for stage in (train_policy, evaluate, report):
        run_stage(stage, config, workdir)
        assert is_complete(stage, config, workdir) or stage is report
    return workdir


def write_model(folder):
    config = make_config("llama", WORDS.size, 8, 1, 2, max_position_embeddings=300)
    write_tokeniser(folder, WORDS)
    write_language_model(folder, make_language_model(config, seed=5))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    return folder


@pytest.mark.journey
@pytest.mark.slow
def test_it_learns_by_ppo_and_starts_each_update_from_where_it_is(trained):
    *_, row = read_lines(trained / "policy/metrics.jsonl")
    assert (row["env_steps"], row["train/finite"]) == (64, 1)
    assert row["train/ratio_deviation_of_first_step"] < 1e-5 < row["train/ratio_deviation"]
    assert row["train/kl_of_last_epoch"] > 0
    assert {f"time/{name}" for name in ("policy", "encode", "wait_for_device", "place", "update")} <= row.keys()
    step, whole, metadata = last_checkpoint(trained)
    assert (step, int(whole["learner"]["version"])) == (64, 2)
    assert metadata["model"]["language"]["actions"][0] == "turn left"


@pytest.mark.slow
def test_probes_record_probabilities_before_and_after_each_update(trained):
    rows = list(read_lines(trained / "policy/probes.jsonl"))
    assert [(row["updates"], row["env_steps"]) for row in rows] == [(0, 0), (1, 32), (2, 64)]
    prompts = read_json(trained / "policy/probes.json")
    assert rows[0]["probabilities"].keys() == prompts["prompts"].keys()
    for row in rows:
        for odds in row["probabilities"].values():
            assert len(odds) == len(prompts["actions"]) == 6
            assert sum(odds) == pytest.approx(1, abs=1e-4)
    assert rows[0]["probabilities"] != rows[2]["probabilities"]
    policy = load_policy(trained)
    name, prompt = next(iter(prompts["prompts"].items()))
    act = policy({"prompt": prompt})
    np.testing.assert_allclose(act.probabilities, rows[2]["probabilities"][name], atol=1e-4)
    policy.begin(len(prompts["prompts"]))  # all at once; they are not of one length
    acts = policy({"prompt": list(prompts["prompts"].values())})
    expected = [rows[2]["probabilities"][name] for name in prompts["prompts"]]
    np.testing.assert_allclose(acts.probabilities, expected, atol=1e-4)


@pytest.mark.journey
@pytest.mark.slow
def test_it_is_evaluated_in_variations_and_before_training(trained):
    names = {path.parent.name for path in (trained / "evaluate").glob("*/summary.json")}
    assert names == {"bot", "policy-0", "policy-64", f"policy-0-{VARIATION}", f"policy-64-{VARIATION}"}
    played = [read_lines(trained / f"evaluate/{name}/episodes.jsonl") for name in names]
    assert len({tuple(sorted((row["episode"], row["bot_steps"]) for row in rows)) for rows in played}) == 1  # the same
    page = unescape((trained / "report/index.html").read_text())
    assert "An agent that learnt by playing, from the game's own reward</h1>" in page
    assert "The agent was rewarded by the game alone and trained for <b>64</b> steps" in page
    assert "Variations of the games" in page
    assert VARIATION in page
    assert "Fixed prompts" in page


@pytest.mark.slow
def test_controls_are_in_one_table(trained, tmp_path, capsys):
    config = config_of()
    config.evaluate.update(ONE_GAME | {"policy": str(trained), "controls": "grounding", "baselines": "random"})
    run_stage(evaluate, config, tmp_path)
    assert is_complete(evaluate, config, tmp_path)
    name = trained.name
    table = capsys.readouterr().out.partition("games ")[2]
    rows = re.findall(r" (task|\S+=\S+) +(\S+) +1 ", table)
    assert rows == [
        ("task", f"{name}-64"), ("task", "random"), ("task", f"{name}-0"),
        *((protocol, f"{name}-64") for protocol in ("mission=shuffled", "rewording=invented_words",
                                                    "rewording=synonyms", "level=MixedTestLocal")),
        ("level=MixedTestLocal", "random"), ("language=french+actions=french", f"{name}-64"),
    ]  # fmt: skip
    assert re.search(rf"\nshuffled missions +mission=shuffled +{name}-64 ", table)


def test_controls_play_a_language_model_that_another_program_trained(directory, tmp_path, capsys):
    for number, player in enumerate((write_gguf(tmp_path / "theirs.gguf"), directory)):
        config = config_of(max_tokens=240)
        config.evaluate.update(ONE_GAME | {"policy": str(player), "controls": "grounding", "baselines": ""})
        check_stage(evaluate, config)
        config.evaluate.controls = "grounding" if number else ""  # all games once
        run_stage(evaluate, config, tmp_path)
        assert is_complete(evaluate, config, tmp_path)
        assert read_json(tmp_path / f"evaluate/{player.stem}/summary.json")["parameters"]
    assert capsys.readouterr().out.count(f" {directory.stem} ") == 6  # the true missions, and five controls


@pytest.mark.slow
def test_replays_have_the_probabilities_of_all_actions(trained):
    folder = trained / "evaluate/policy-64"
    replay = load_replay(file_of(folder, next(iter(read_json(folder / "summary.json")["replays"].values()))), "--flag")
    assert replay.odds.shape == (replay.steps, 6)
    np.testing.assert_allclose(replay.odds.sum(1), 1, atol=1e-5)
    taken = replay.odds[np.arange(replay.steps), replay.action]
    np.testing.assert_allclose(taken, replay.probability, atol=1e-5)
    other = load_replay(file_of(trained / f"evaluate/policy-64-{VARIATION}", 0), "--flag")
    assert other.metadata["action_names"][0] == "rotate left"


@pytest.mark.differs(
    "glam",
    there="a checkpoint is saved after the first of 80 minibatches",
    here="a checkpoint is saved after the whole update, and a resumed run has the same bits",
)
@pytest.mark.slow
def test_a_run_is_the_same_twice_and_goes_on_where_it_was_stopped(tmp_path):
    config = config_of()
    config.policy.groups = 2  # one plays while the network reads the prompts of the other
    ends = []
    for workdir in (tmp_path / "once", tmp_path / "again"):
        for steps in (32, 64):
            config.policy.train_for_env_steps = steps
            run_stage(train_policy, config, workdir)
        ends.append(sum_of_arrays(last_checkpoint(workdir)[1]))
    assert ends[0] == ends[1]
    assert [row["updates"] for row in read_lines(workdir / "policy/probes.jsonl")] == [0, 1, 2]


def test_a_policy_begins_with_the_weights_of_a_directory_its_embeddings_or_neither(directory):
    def made(**language):
        config = config_of(model=str(directory), max_tokens=200, **language)
        return make_language_policy(viewed(config), make_world(config.env), directory)[1].params["language"]

    pretrained, embeddings, random = (made(weights=weights) for weights in ("pretrained", "embeddings", "random"))
    original = nnx.state(make_language_model(make_config("llama", WORDS.size, 8, 1, 2), seed=5), nnx.Param)
    assert sum_of_arrays(pretrained) == sum_of_arrays(original)
    same = [np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (pretrained, embeddings)), strict=True)]
    assert 0 < sum(same) < len(same)
    assert np.array_equal(embeddings["embedding"][...], pretrained["embedding"][...])
    assert not np.array_equal(random["embedding"][...], pretrained["embedding"][...])


@pytest.mark.slow
def test_the_recipe_for_a_pretrained_player_runs_with_all_its_words(tmp_path):
    config = get_config("glam.py", "goto_local,smollm2,demonstrations,rehearsal")
    config.evaluate.update({"controls": "", "episodes": 1})
    experiment.run(config.to_dict(), tmp_path, [*config.stages])
    assert read_json(tmp_path / "policy/summary.json")["updates"] == 2
    assert list(read_lines(tmp_path / "policy/metrics.jsonl"))[-1]["train/finite"] == 1


@pytest.mark.slow
def test_its_games_are_recorded_to_be_cloned(trained, tmp_path):
    config = config_of()
    config.collect.update({
        "policies": f"{trained}@64", "transcripts": 5, "num_workers": 0, "games_per_worker": 4, "rollout_length": 8,
    })  # fmt: skip
    run_stage(collect, config, tmp_path)
    transcripts = Transcripts(tmp_path / "transcripts")
    assert [policy["step"] for policy in transcripts.record["provenance"]["checkpoints"]] == [64]
    moments = [transcripts.episode(index) for index in np.flatnonzero(transcripts.info["step"] >= 0)]
    assert {moment.info["episode"] for moment in moments} == {0, 1, 2, 3, 4}
    for prompt, action in (moment.turns for moment in moments):
        assert prompt.text.startswith("Possible action of the agent: ")
        assert action.text in CANONICAL
    (tmp_path / "transcripts/config.json").unlink()  # as if it had been killed between the two files
    run_stage(collect, config, tmp_path)
    assert is_complete(collect, config, tmp_path)

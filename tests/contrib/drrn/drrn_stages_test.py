"""The baseline DRRN on BabyAI-Text through the stages: trained, stopped and resumed, evaluated, reported."""

import numpy as np
import pytest
from conftest import get_config, last_checkpoint, run_stage
from every_state_test import check_goes_on

pytest.importorskip("minigrid", reason="needs the extra [babyai]: bash launch/test.sh installs it")

from motif_jax import load_policy
from motif_jax.devices.parameters import sum_of_arrays
from motif_jax.files import read_json, read_lines
from motif_jax.pages.players import read_results
from motif_jax.stages import evaluate, report, train_policy
from motif_jax.tokens import tokeniser_from_text

pytestmark = pytest.mark.slow
VARIATION = "rewording=synonyms+actions=rotate"


def config_of(steps):
    config = get_config("drrn_quickstart", "goto_small")
    config.env.max_episode_steps = 6
    config.env.babyai.window = 2
    config.policy.update({
        "num_workers": 0, "games_per_worker": 4, "batch_size": 16, "num_minibatches": 2, "train_for_env_steps": steps,
        "train_for_seconds": 0.0, "probe_every": 1, "tensorboard": False,
    })  # fmt: skip
    config.drrn.width = 8
    config.drrn.update({"capacity": 50, "minibatch_size": 8})
    config.evaluate.update({
        "episodes": 2, "num_workers": 0, "baselines": "bot", "games_per_worker": 2, "variations": VARIATION,
    })  # fmt: skip
    return config


def train(workdir):
    """64 steps; it is stopped after 32 of them."""
    for steps in (32, 64):
        run_stage(train_policy, config_of(steps), workdir)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("drrn")
    train(workdir)
    for stage in (evaluate, report):
        run_stage(stage, config_of(64), workdir)
    return workdir


def test_a_resumed_run_continues_with_its_buffer_and_is_reproducible(trained, tmp_path):
    train(tmp_path)
    (_, early, _), (step, whole, facts) = last_checkpoint(trained, "32"), last_checkpoint(trained)
    assert step == facts["progress"]["env_steps"] == 64
    learner = whole["learner"]
    assert (int(learner["version"]), int(learner["replay"]["added"])) == (4, 4)
    assert int(early["learner"]["replay"]["added"]) == 2
    # room for three batches of 16 steps: the fourth took the place of the first
    actions, before = (one["replay"]["steps"]["action"] for one in (learner, early["learner"]))
    assert actions.shape == (3, 4, 4)
    np.testing.assert_array_equal(actions[1], before[1])
    assert sum_of_arrays(learner) == sum_of_arrays(last_checkpoint(tmp_path)[1]["learner"])
    *_, row = read_lines(trained / "policy/metrics.jsonl")
    assert (row["train/finite"], row["train/replay_steps"]) == (1, 48)
    assert row["train/loss"] > 0
    assert [row["updates"] for row in read_lines(trained / "policy/probes.jsonl")] == [0, 1, 2, 3, 4]


@pytest.mark.differs(
    "glam",
    there="DRRN's prompts lack the first observation of an episode, and its buffer pairs actions with wrong prompts",
    here="each action is paired with its prompt, also across rollouts and ends",
)
def test_the_buffer_pairs_actions_with_their_prompts(trained):
    _, whole, facts = last_checkpoint(trained)
    options = facts["model"]["drrn"]
    tokeniser, steps = tokeniser_from_text(options["tokeniser"]), whole["learner"]["replay"]["steps"]
    ended = steps["terminated"] | steps["truncated"]
    assert steps["terminated"].any()
    assert steps["truncated"].any()
    assert not (steps["terminated"] & steps["truncated"]).any()
    assert (steps["reward"][~steps["terminated"]] == 0).all()
    for place in np.ndindex(ended.shape):  # batch, step, game
        after = place[0], place[1] + 1, place[2]
        prompt, following = (
            tokeniser.decode(row[row >= 0]) for row in (steps["observations"]["tokens"][at] for at in (place, after))
        )
        name = options["actions"][steps["action"][place]]
        for text in (prompt, following):
            assert "Observation 0 : You" in text
            assert "Goal of the agent : go to" in text
        # the prompt of a first moment has one observation, any other two, with the action that led to the second
        assert ("Observation 1 :" not in following) == ended[place]
        if not ended[place]:
            assert f"Action 0 : {name} Observation 1 : You" in following


@pytest.mark.differs(
    "glam",
    there="DRRN's success rate is a mean over all episodes since the start",
    here="it is that of fixed episodes in evaluation",
)
def test_evaluation_with_variations_and_loading_from_a_checkpoint(trained):
    names = {path.parent.name for path in (trained / "evaluate").glob("*/summary.json")}
    assert names == {"bot", "policy-64", f"policy-64-{VARIATION}"}
    summary = read_results(trained)["policy-64"]
    assert summary["episodes"] == 2
    assert summary["figures"]["success"]["mean"] in (0, 0.5, 1)
    page = (trained / "report/index.html").read_text()
    assert "algorithm q_learning" in page
    assert "network drrn" in page
    prompts = read_json(trained / "policy/probes.json")
    *_, row = read_lines(trained / "policy/probes.jsonl")
    name, prompt = next(iter(prompts["prompts"].items()))
    act = load_policy(trained)({"prompt": prompt})
    np.testing.assert_allclose(act.probabilities, row["probabilities"][name], atol=1e-4)
    assert act.value == pytest.approx(row["values"][name], abs=1e-3)


def test_it_goes_on_from_no_steps_and_from_its_first_update(tmp_path):
    config = config_of(64)
    config.policy.update({"rollout_length": 2, "batch_size": 8})
    config.drrn.capacity = 64
    check_goes_on(config, tmp_path)

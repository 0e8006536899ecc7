"""What is refused before grpo and gigpo start, and their config for a pretrained player."""

import pytest
from conftest import check_stage, get_config, refusal
from refusals_test import TOY

from motif_jax import experiment
from motif_jax.files import read_json, read_lines
from motif_jax.stages import train_policy

GROUPS = TOY | {"policy.algorithm": "grpo", "group_advantages.group_size": 4, "policy.warmup_steps": 0,
                "env.max_episode_steps": 50, "policy.rollout_length": 50, "policy.batch_size": 400}  # fmt: skip
RECIPE = "goto_local,smollm2,{},rehearsal"


@pytest.mark.quick
@pytest.mark.parametrize(("values", "said"), [
    ({"group_advantages.group_size": 3}, "8 games at once cannot play groups of 3 episodes"),
    ({"policy.rollout_length": 25}, "whole episodes, of up to 50 steps, but rollouts have 25"),
    ({"policy.batch_size": 200}, "8 games x 50 steps, or a multiple, not 200"),
    ({"policy.warmup_steps": 10}, "needs --config.policy.warmup_steps=0"),
    ({"env.world": "own_gym:AimWorld", "policy.network": "general"}, "needs actions that are one choice each"),
])  # fmt: skip
def test_groups_that_cannot_be_played_are_refused_in_one_sentence(values, said):
    config = get_config(argument="toy")
    config.update_from_flattened_dict(GROUPS)
    check_stage(train_policy, config)
    config.update_from_flattened_dict(values)
    message = refusal(lambda: check_stage(train_policy, config), said)
    assert len(message.splitlines()) == 1


@pytest.mark.quick
def test_groups_are_refused_for_several_tasks_of_slurm(monkeypatch):
    pytest.importorskip("minigrid", reason="needs the extra [babyai]: bash launch/test.sh installs it")
    config = get_config("groups", RECIPE.format("grpo"))
    check_stage(train_policy, config)
    task = {"NODELIST": "node[1-2]", "NUM_TASKS": "2", "NUM_NODES": "2"}
    names = {f"SLURM_STEP_{name}": value for name, value in task.items()} | {"SLURM_PROCID": "1", "SLURM_JOB_ID": "7"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    refusal(lambda: check_stage(train_policy, config), "'grpo' does not work with 2 hosts")


@pytest.mark.quick
@pytest.mark.parametrize("argument", ["goto_small", "goto_small,grpo,gigpo"])
def test_the_config_needs_one_of_the_two(argument):
    refusal(lambda: get_config("groups", argument), "must have one of grpo and gigpo")


@pytest.mark.slow
def test_the_recipe_for_a_pretrained_player_runs_in_groups(tmp_path):
    pytest.importorskip("minigrid", reason="needs the extra [babyai]: bash launch/test.sh installs it")
    config = get_config("groups", RECIPE.format("gigpo"))
    config.evaluate.update({"controls": "", "episodes": 1})
    experiment.run(config.to_dict(), tmp_path, [*config.stages])
    assert read_json(tmp_path / "policy/summary.json")["updates"] == 2
    assert list(read_lines(tmp_path / "policy/metrics.jsonl"))[-1]["train/finite"] == 1

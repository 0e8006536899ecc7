"""train_values with grpo, which learns from games that the policy plays."""

import json

import numpy as np
import pytest
from every_recipe_test import graded
from offline_test import rows
from train_values_test import config_for

from motif_jax import experiment
from motif_jax.stages import train_values
from motif_jax.stages.train_values import learning

GROUPS = {
    "train_values__recipe": "grpo", "train_values__batch_size": 16, "train_values__group_size": 8,
    "train_values__rounds": 8, "train_values__num_epochs": 2, "train_values__learning_rate": 1e-2,
    "train_values__games": 8, "decoding__betas": "0", "decoding__kinds": "sample,greedy",
}  # fmt: skip


@pytest.mark.journey
def test_texts_that_pay_are_written_more_often_and_the_policy_plays(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(learning, "play_tokens", graded)
    config = config_for(tmp_path, **GROUPS)
    experiment.run(config.to_dict(), tmp_path / "run", ["collect", "train_language", "train_values", "evaluate"])
    played = [row for row in rows(tmp_path / "run/values") if "groups_that_differ" in row]
    assert played[-1]["return"] > played[0]["return"] + 2  # an `a` more in each text, at least
    assert all(row["first_ratio_deviation"] < learning.EXACT for row in played)
    assert "ratios do not begin at 1" not in capsys.readouterr().out
    summary = json.loads((tmp_path / "run/evaluate/sweep.json").read_text())
    assert summary


@pytest.mark.quick
def test_group_values_are_unused_by_other_recipes(tmp_path):
    config = config_for(tmp_path)
    assert np.isin(["train_values.group_size", "train_values.rounds"], train_values.unused(config)).all()
    config = config_for(tmp_path, **GROUPS)
    assert not np.isin(["train_values.group_size", "train_values.rounds"], train_values.unused(config)).any()
    assert {"train_values.step_weight", "train_values.discount"} < {*train_values.unused(config)}

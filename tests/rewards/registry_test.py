"""The list of reward sources: valid entries, and refused ones."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import get_config, refusal, viewed

from motif_jax.rewards.registry import READING, SourceChoice, parse_entry, parse_sources
from motif_jax.rewards.source import RewardSource, RewardSources, Setting, Weighted, make_sources
from motif_jax.stages import train_policy
from motif_jax.structs import UserCodeError

pytestmark = pytest.mark.quick
OWN = """
from motif_jax.rewards.source import RewardSource

class Steps(RewardSource):
    def rewards(self, rollouts):
        return rollouts["reward"] * 0 + 1
"""


def test_names_with_coefficients_and_classes_by_their_paths():
    assert parse_sources("learnt, count:0.05,rnd:-1e-3,package.module:Class:2", 0.1) == [
        SourceChoice("learnt", "motif_jax.rewards.learnt_source:LearntSource", 0.1),
        SourceChoice("count", "motif_jax.rewards.count:CountBonus", 0.05),
        SourceChoice("rnd", "motif_jax.rewards.rnd:RandomDistillation", -0.001),
        SourceChoice("Class", "package.module:Class", 2.0),
    ]
    assert parse_sources("event_gold:0.2,event_mod:Class:0.1", 0.1) == [
        SourceChoice("event_gold", READING, 0.2),
        SourceChoice("Class", "event_mod:Class", 0.1),
    ]
    assert parse_entry("event_mod:Class", "", {"gold": SourceChoice("event_gold", READING)})[0] == SourceChoice(
        "Class", "event_mod:Class"
    )
    assert parse_sources("", 0.1) == []
    assert parse_sources("learnt", 0.0) == []  # it need not be there
    assert [choice.name for choice in parse_sources("count:0", 0.1)] == ["count"]  # told, but worth nothing


def test_own_sources_are_imported_before_anything_starts(tmp_path, monkeypatch):
    (tmp_path / "own_rewards.py").write_text(OWN)
    (tmp_path / "broken_rewards.py").write_text("value = 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = get_config(argument="toy", policy__sources="own_rewards:Steps:0.5")
    train_policy.check(viewed(config), tmp_path)
    sources = make_sources(Setting(viewed(config), Path(), {}))
    assert [(one.name, one.coefficient) for one in sources] == [("Steps", 0.5)]
    assert sources.shape(sources.moments({"reward": np.zeros((2, 3))}))["Steps"].tolist() == [[1] * 3] * 2
    config.policy.sources = "broken_rewards:It:0.5"
    with pytest.raises(UserCodeError, match="'broken_rewards:It' failed with ZeroDivisionError") as caught:
        train_policy.check(viewed(config), tmp_path)
    assert "broken_rewards.py" in caught.value.details


class InPlace(RewardSource):
    """Works in place on what it is given, in its method `where`."""

    def __init__(self, where):
        self.where = where

    def rewards(self, rollouts):
        if self.where == "rewards":
            rollouts["reward"] *= 2
        return rollouts.pop("reward")

    def shape(self, moments):
        if self.where == "shape":
            moments["reward"] += 1
        return moments.pop("reward")


def test_sources_that_work_in_place_change_nothing_that_others_read():
    source = RewardSources([Weighted(name, "mine:Mine", 1.0, InPlace("")) for name in ("one", "other")])
    given = {"reward": np.ones((2, 3), np.float32)}
    moments = source.moments(given)
    assert source.shape(moments)["one"].tolist() == source.shape(moments)["other"].tolist() == [[1] * 3] * 2
    for where in ("rewards", "shape"):
        source = RewardSources([Weighted("mine", "mine:Mine", 1.0, InPlace(where))])
        said = "'mine:Mine' failed with ValueError: output array is read-only"
        refusal(lambda: source.shape(source.moments(given)), said, kind=UserCodeError)
        assert given["reward"].flags.writeable
        assert (given["reward"] == 1).all()


def test_rewards_of_a_wrong_shape_or_not_finite_are_refused_with_the_name(monkeypatch):
    source = RewardSources([Weighted("mine", "mine:Mine", 1.0, RewardSource())])
    for kind in (float, jnp.bfloat16, bool):
        source.check({"mine": np.zeros((2, 3), kind)}, (2, 3))
    for wrong in (np.zeros(2), np.full((2, 3), np.nan), np.full((2, 3), 1j), np.full((2, 3), "1")):
        monkeypatch.setattr(RewardSource, "rewards", lambda self, rollouts: wrong)
        rewards = source.shape(source.moments({}))
        refusal(
            lambda: source.check(rewards, (2, 3)), "'mine' must return finite numbers of shape (2, 3), not an array"
        )
    monkeypatch.undo()
    refusal(lambda: source.moments({}), "'mine:Mine' failed with", "no method `rewards`", kind=UserCodeError)

"""Training with a reward that is learnt from a judge while the agent plays."""

import shutil

import numpy as np
import pytest
from conftest import get_config
from nethack_texts import NETHACK
from train_policy_test import TINY, assert_equal_to_the_bit

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.checkpoint import reading
from motif_jax.files import read_lines
from motif_jax.rewards.online.store import ANSWERED
from motif_jax.stages import train_policy
from motif_jax.stages.train_policy.record import Record

LEXICON = Lexicon(NETHACK, "defaultgoal")


def settings(task="score", **values):
    config = get_config(argument=task)
    own = {"sources": "online:0.5", "train_for_env_steps": 640, "log_every_s": 1e6, "extrinsic_coefficient": 0.0}
    for name, value in (TINY | own | values).items():
        section, _, key = name.rpartition("__")
        where = config.policy.online if section == "online" else config[section] if section else config.policy
        where[key] = value
    config.annotate.cache_dir = ""
    config.env.max_episode_steps = 60
    config.evaluate.update({"beside": "random", "episodes": 4, "num_workers": 0, "games_per_worker": 4})
    return config


def run(workdir, **values):
    config = settings(**values)
    train_policy.check(config)
    train_policy.run(config, workdir)
    return list(read_lines(workdir / "policy/metrics.jsonl"))


def arrays(workdir):
    with reading(workdir / "policy/checkpoints") as checkpoints:
        return checkpoints.readable("last")[1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("online") / "run"
    run(workdir)
    return workdir


def test_the_labels_are_those_of_the_lexicon(trained):
    (row,) = read_lines(trained / "policy/metrics.jsonl")
    assert row["reward/online_labels"] == row["reward/online_captions"] > 3
    assert row["reward/online_waiting"] == row["reward/online_refused"] == 0
    rows = list(read_lines(trained / "policy/opinions.jsonl"))
    assert len(rows) == row["reward/online_labels"] == len({row["caption"] for row in rows})
    for one in rows:
        assert one["yes"] == LEXICON.answer(Question(one["caption"])).yes
        assert (one["goal"], one["by"], one["attempt"]) == ("defaultgoal", "lexicon", 1)
    saved = arrays(trained)["sources"]["online"]
    assert (np.asarray(saved["store"]["questions"]["state"]) == ANSWERED).all()
    assert np.asarray(saved["counters"]).tolist()[:3] == [640, 10, len(rows)]


def test_a_run_that_was_killed_and_goes_on_is_the_same_to_the_bit(trained, tmp_path, monkeypatch):
    for name in ("straight", "killed"):
        shutil.copytree(trained, tmp_path / name)
    run(tmp_path / "straight", train_for_env_steps=1280)

    def batch(self, batch, seen=[0], real=Record.batch):
        seen[0] += 1
        if seen[0] == 4:
            raise KeyboardInterrupt  # between checkpoints
        real(self, batch)

    with monkeypatch.context() as patched:
        patched.setattr(Record, "batch", batch)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "killed", train_for_env_steps=1280)
    run(tmp_path / "killed", train_for_env_steps=1280)
    assert_equal_to_the_bit(arrays(tmp_path / "killed"), arrays(tmp_path / "straight"))
    run(tmp_path / "again")
    assert_equal_to_the_bit(arrays(tmp_path / "again"), arrays(trained))
    opinions = [
        [{name: value for name, value in row.items() if name != "seconds"} for row in read_lines(file)]
        for file in (tmp_path / "killed/policy/opinions.jsonl", tmp_path / "straight/policy/opinions.jsonl")
    ]
    assert opinions[0] == opinions[1]

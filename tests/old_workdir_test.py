"""A workdir of an earlier version goes on, through every stage.

`fixtures/workdir-6499d99.tar.xz` was made at that commit by `--config=configs/quickstart.py:score` with the values
below: collect, annotate, train_reward, train_policy (stopped before its first update, which keeps it small), evaluate,
report.
"""

import json
import tarfile
from pathlib import Path

import pytest
from conftest import get_config

from motif_jax import experiment
from motif_jax.structs import UserError

FIXTURE = Path(__file__).parent / "fixtures" / "workdir-6499d99.tar.xz"
VALUES = {
    "env.max_episode_steps": 60, "collect.num_pairs": 60, "collect.num_workers": 0, "annotate.cache_dir": "",
    "reward.num_epochs": 1, "reward.batch_size": 32, "reward.message": "lt_cnn_small",
    "policy.num_workers": 0, "policy.synchronous": True, "policy.games_per_worker": 8, "policy.groups": 2,
    "policy.rollout_length": 8, "policy.batch_size": 64, "policy.warmup_steps": 0, "policy.tensorboard": False,
    "policy.train_for_seconds": 0.0, "policy.train_for_env_steps": 256,
    "evaluate.episodes": 3, "evaluate.num_workers": 0, "evaluate.games_per_worker": 3,
}  # fmt: skip


@pytest.fixture
def workdir(tmp_path):
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "workdir"


def run(workdir, *stages, **changes):
    config = get_config("quickstart.py", "score")
    config.update_from_flattened_dict(VALUES | {name.replace("__", "."): value for name, value in changes.items()})
    experiment.run(config, workdir, list(stages))


def files_of(workdir):
    """All but the note of when the messages were last changed, which unpacking does."""
    return {file: file.read_bytes() for file in workdir.rglob("*") if file.is_file() and file.name != "source.json"}


def test_what_is_complete_stays_as_it_is(workdir, capsys):
    before = files_of(workdir / "dataset") | files_of(workdir / "reward")
    run(workdir, "collect", "annotate", "train_reward")
    printed = capsys.readouterr().out
    for stage in ("collect", "annotate", "train_reward"):
        assert f"{stage}: complete in" in printed
    assert files_of(workdir / "dataset") | files_of(workdir / "reward") == before


def test_what_is_not_complete_goes_on(workdir, capsys):
    report = (workdir / "report" / "index.html").read_bytes()
    run(workdir, "train_policy", "evaluate", "report")
    assert (workdir / "policy" / "checkpoints" / "256").is_dir()
    assert json.loads((workdir / "policy" / "summary.json").read_text())["env_steps"] == 256
    assert {folder.name for folder in (workdir / "evaluate").iterdir()} >= {"random", "policy-0", "policy-256"}
    assert (workdir / "report" / "index.html").read_bytes() != report
    capsys.readouterr()
    run(workdir, "collect", "annotate", "train_reward", "train_policy", "evaluate")
    assert capsys.readouterr().out.count("complete in") == 5


def test_more_is_made_beside_what_was_there(workdir):
    run(workdir, "annotate", annotate__goal="gold")
    assert (workdir / "dataset" / "preference" / "lexicon_msg_gold.npy").is_file()
    assert (workdir / "dataset" / "preference" / "lexicon_msg_defaultgoal.npy").is_file()


@pytest.mark.parametrize(("name", "value"), [
    ("seed", 1), ("env__max_episode_steps", 50), ("policy__rollout_length", 16), ("reward__learning_rate", 1.0),
])  # fmt: skip
def test_another_experiment_is_refused(workdir, name, value):
    with pytest.raises(UserError, match=name.replace("__", ".")):
        run(workdir, "collect", "train_reward", "train_policy", **{name: value})

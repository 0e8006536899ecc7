"""To whom a workdir belongs: to nobody after a start that came to no result, to its config from the first result on."""

import shutil

import pytest
from conftest import get_config
from experiment_test import STAGES
from small_dataset import random_pairs, write_dataset
from train_language_test import TINY as LANGUAGE
from train_language_test import talks
from train_policy_test import TINY as POLICY

from motif_jax import experiment
from motif_jax.devices.checkpoints import Checkpoints
from motif_jax.experiment import check_same_experiment
from motif_jax.preferences import writer
from motif_jax.stages import NAMES, annotate, evaluate
from motif_jax.stages.write_reward import job
from motif_jax.structs import UserError

BINDING = [name for name in NAMES if STAGES[name].identity]
# Where each stage writes its first result; those that are not named save a checkpoint.
FIRST = {
    "collect": (writer, "write_json"), "evaluate": (evaluate, "write_lines"), "write_reward": (job, "write_whole"),
}  # fmt: skip
VALUES = {
    "collect": {"collect.num_pairs": 10_000, "collect.commit_every_s": 0.001},
    "train_policy": {f"policy.{name}": value for name, value in POLICY.items()} | {"policy.train_for_env_steps": 64},
    "evaluate": {"evaluate.policy": "random", "evaluate.episodes": 2, "evaluate.games_per_worker": 2},
    "write_reward": {"write_reward.steps": 2_000, "write_reward.pairs": 8, "env.max_episode_steps": 50},
    "train_language": LANGUAGE,
    "train_values": {"train_values.max_length": 32, "train_values.batch_size": 8, "train_values.validation_share": 0.2},
    "train_reward": {"reward.message": "lt_cnn_small", "reward.batch_size": 16},
}  # fmt: skip
ALL = {"collect.num_workers": 0, "evaluate.num_workers": 0, "annotate.cache_dir": ""}


class Killed(BaseException):
    pass


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """What stages start from: transcripts, a model that has learnt them, and labels."""
    folder = tmp_path_factory.mktemp("source")
    talks(folder / "talks.jsonl")
    config = config_for("train_language", folder, **{"train_language.num_epochs": 1})
    experiment.run(config, folder, ["train_language"])
    write_dataset(folder / "dataset", random_pairs(100))
    annotate.run(annotate.STAGE.view(config), folder)
    return folder


def config_for(stage, source, **values):
    config = get_config(argument="toy")
    config.update_from_flattened_dict(ALL | LANGUAGE | VALUES[stage] | values)
    config.transcripts.import_from = str(source / "talks.jsonl")
    config.train_values.policy = str(source / "language/model") if stage == "train_values" else ""
    return config


def workdir_for(stage, source, folder):
    """A workdir in which this stage is next."""
    folder.mkdir()
    if stage == "train_reward":
        for name in ("dataset", "annotations"):
            shutil.copytree(source / name, folder / name)
    return folder


def kill_at_first_result(stage, patched, after):
    """The stage is killed before it writes its first result, or right after that."""
    where, name = FIRST.get(stage, (Checkpoints, "save"))
    real = getattr(where, name)

    def write(*given, **more):
        if after:
            real(*given, **more)
        raise Killed

    patched.setattr(where, name, write)


@pytest.mark.parametrize("stage", BINDING)
def test_a_workdir_belongs_to_a_config_from_the_first_result_on(stage, source, tmp_path, monkeypatch):
    config = config_for(stage, source)
    other = config.copy_and_resolve_references()
    other.seed += 1
    for after in (False, True):
        workdir = workdir_for(stage, source, tmp_path / f"after-{after}")
        with monkeypatch.context() as patched:
            kill_at_first_result(stage, patched, after)
            with pytest.raises(Killed):
                experiment.run(config, workdir, [stage])
        made = [folder for folder in STAGES[stage].artefacts(workdir) if folder.exists()]
        assert bool(made) == after
        for folder in made:
            with pytest.raises(UserError, match="belongs to an experiment with seed"):
                check_same_experiment(other, workdir, folder / "config.json", STAGES[stage])

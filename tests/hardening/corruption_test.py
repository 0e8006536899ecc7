"""Files of every kind, damaged in every way: refused in one sentence, or mended, but never taken for something else.

A foreign pickle in the place of any file would leave a trace if it were ever executed. Here datasets and labels;
checkpoints_corruption_test.py has what is made of them.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import get_config
from damages import (
    ANNOTATION,
    ORBAX,
    archive,
    damages_of,
    digest,
    directory,
    empty,
    every,
    flip,
    flip_one,
    make_whole,
    other_shape,
    other_type,
    poison,
    poison_array,
    refused_or,
    run,
    some,
    truncate,
)

from motif_jax.preferences.writer import PairWriter
from motif_jax.stages.train_reward.setup import load_data

pytestmark = pytest.mark.filterwarnings(ORBAX)


@pytest.fixture(scope="module")
def whole():
    """A workdir in which nothing is wrong."""
    return make_whole()


@pytest.fixture
def workdir(whole, tmp_path):
    """A copy of it, to be damaged."""
    shutil.copytree(whole, tmp_path / "run")  # times of files are copied, so that the index is not stale
    return tmp_path / "run"


# ---- the dataset

CODES = f"dataset/preference/{ANNOTATION}.npy"
PROB, MERGED = f"annotations/{ANNOTATION}/prob.npy", f"annotations/{ANNOTATION}/merged.json"


@every("dataset/data/message.npy", "dataset/dataset.json", "dataset/index/captions.npy", "dataset/index/counts.npy",
       "dataset/index/caption_id.npy", "dataset/index/source.json", "dataset/config.json")  # fmt: skip
def test_a_dataset_is_annotated_as_it_was_collected_or_not_at_all(whole, workdir, tmp_path, name, damage):
    for folder in ("dataset/preference", f"annotations/{ANNOTATION}"):
        shutil.rmtree(workdir / folder)
    refused_or(workdir, name, damage, tmp_path, lambda: run(workdir, "annotate"),
               lambda: digest(workdir / CODES, workdir / PROB) == digest(whole / CODES, whole / PROB))  # fmt: skip


@every("dataset/info/score.npy", "dataset/data/rewards.npy")
def test_what_oracles_compare_is_what_was_collected(workdir, tmp_path, name, damage):
    backend = {"score": "score", "rewards": "return"}[Path(name).stem]
    before = len(list((workdir / "dataset/preference").glob("*.npy")))
    refused_or(workdir, name, damage, tmp_path, lambda: run(workdir, "annotate", annotate__backend=backend),
               lambda: False)  # fmt: skip
    assert len(list((workdir / "dataset/preference").glob("*.npy"))) == before


@some(("dataset.partial/progress.json", *damages_of(""), flip, flip_one), *(
    (f"dataset.partial/{name}.npy", truncate, empty, poison, poison_array, archive, other_type, other_shape, directory)
    for name in ("data/message", "info/start")
))  # fmt: skip
def test_a_dataset_in_the_making_goes_on_to_the_same_end_or_not_at_all(whole, tmp_path, name, damage, monkeypatch):
    workdir, real = tmp_path / "run", PairWriter.add

    def stopped_at_half(self, *about):
        real(self, *about)
        if self.moments > 100:
            self.commit()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PairWriter, "add", stopped_at_half)
        with pytest.raises(KeyboardInterrupt):
            run(workdir, "collect")
    refused_or(workdir, name, damage, tmp_path, lambda: run(workdir, "collect"),
               lambda: digest(workdir / "dataset/dataset.json") == digest(whole / "dataset/dataset.json"))  # fmt: skip


# ---- labels

SHARD = f"annotations/{ANNOTATION}/shard-00000-of-00001"


@every(f"{SHARD}.json", f"{SHARD}.npy", f"{SHARD}.prob.npy")
def test_shards_are_gone_on_with_as_they_were_or_not_at_all(whole, workdir, tmp_path, name, damage):
    for file in (CODES, PROB, MERGED):
        (workdir / file).unlink()
    refused_or(workdir, name, damage, tmp_path, lambda: run(workdir, "annotate"),
               lambda: digest(workdir / CODES, workdir / PROB) == digest(whole / CODES, whole / PROB))  # fmt: skip


@every(CODES, PROB, MERGED)
def test_merged_labels_are_merged_anew(whole, workdir, tmp_path, name, damage):
    refused_or(workdir, name, damage, tmp_path, lambda: run(workdir, "annotate"),
               lambda: digest(workdir / CODES, workdir / PROB) == digest(whole / CODES, whole / PROB))  # fmt: skip


@some((PROB, *damages_of(PROB), flip, flip_one), *((name, *damages_of(name)) for name in (CODES, MERGED)))
def test_a_reward_is_learnt_from_the_labels_that_were_merged(workdir, tmp_path, name, damage):
    config = get_config("quickstart.py", "toy")
    config.reward.labels = "soft"
    good = load_data(config, workdir).target
    refused_or(workdir, name, damage, tmp_path, lambda: np.testing.assert_array_equal(
        load_data(config, workdir).target, good), lambda: name.endswith("merged.json"))  # fmt: skip

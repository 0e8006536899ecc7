"""Shards: made, killed at every point, gone on with, merged."""

import contextlib

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st
from small_dataset import random_pairs, write_dataset

from motif_jax.preferences import shards
from motif_jax.preferences.shards import Part, Shard, merge, rows_of
from motif_jax.preferences.store import PairDataset, annotation_folder, labels_file

pytestmark = pytest.mark.quick
METADATA = {"backend": "test", "dataset": "d1", "num_shards": 1}
ONLY = Part(0, 1)
ROWS = np.arange(3)


@given(st.lists(st.integers(-1, 6), min_size=1, max_size=60), st.integers(1, 9))
def test_every_pair_and_every_question_is_in_one_shard(of_pair, num_shards):
    of_pair = np.array(of_pair)
    _, of_pair[of_pair >= 0] = np.unique(of_pair[of_pair >= 0], return_inverse=True)
    rows = [rows_of(Part(number, num_shards), of_pair) for number in range(num_shards)]
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(of_pair)))
    asked = [set(of_pair[part][of_pair[part] >= 0].tolist()) for part in rows]
    assert sum(map(len, asked)) == len(set().union(*asked))
    for number, questions in enumerate(asked):
        low, high = shards.question_range(Part(number, num_shards), int(of_pair.max()) + 1)
        assert questions == set(range(low, high))


def test_codes():
    values = np.array([0.0, 0.39, 0.41, 0.5, 0.6, 0.61, 1.0, np.nan])
    assert shards.to_codes(values, 0.1).tolist() == [0, 0, 2, 2, 2, 1, 1, 3]
    assert shards.to_codes(np.array([0.0, 0.5, 0.51, 1.0]), 0.0).tolist() == [0, 2, 1, 1]
    on_the_edge = np.array([0.4, 0.6], np.float32)  # a pair and the same pair turned
    assert shards.to_codes(on_the_edge, 0.1).tolist() == [2, 2]
    assert shards.count(np.array([0, 0, 1, 3], np.int8)) == {"first": 2, "second": 1, "tie": 0, "unknown": 1}


class Killed(BaseException):
    pass


def kill_after(patch, survivors):
    """Writes this number of files; the next one raises Killed."""
    left = iter(range(survivors))

    def dying(write):
        def maybe(*arguments):
            if next(left, None) is None:
                raise Killed
            write(*arguments)

        return maybe

    for name in ("write_json", "write_array"):
        patch.setattr(shards, name, dying(getattr(shards, name)))


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("survivors", range(3))
def test_killed_between_any_two_files_it_goes_on(tmp_path, monkeypatch, survivors, fresh):
    if not fresh:
        with Shard(tmp_path, ONLY, ROWS, METADATA) as shard:
            shard.prob[0] = 1.0
            shard.commit(False, {})
    for attempt in range(2):  # also twice in a row
        with Shard(tmp_path, ONLY, ROWS, METADATA) as shard, monkeypatch.context() as patch:
            kill_after(patch, survivors)
            shard.prob[1 + attempt] = 0.0
            try:
                shard.commit(False, {})
            except Killed:
                pass
            else:
                assert survivors == 2
    with Shard(tmp_path, ONLY, ROWS, METADATA) as shard:
        np.testing.assert_array_equal(shard.prob, [np.nan if fresh else 1, *[0 if survivors >= 2 else np.nan] * 2])


def label(dataset, name, number, of, of_pair, finished=True):
    part = Part(number, of)
    rows = rows_of(part, of_pair)
    with Shard(annotation_folder(dataset.path, name), part, rows, METADATA) as shard:
        shard.prob[:] = np.where(of_pair[rows] % 2, 0.9, 0.0)
        shard.commit(finished, {"asked": number})


def test_shards_become_one_annotation_when_all_are_finished(tmp_path):
    dataset = PairDataset(write_dataset(tmp_path / "dataset", random_pairs(50)))
    of_pair = np.arange(50) % 7
    for number, finished in ((0, True), (2, False)):
        label(dataset, "mine", number, 3, of_pair, finished)
    assert merge(dataset, "mine", 3, of_pair, METADATA, partial=False) == [1, 2]
    assert dataset.preference_names() == []

    assert merge(dataset, "mine", 3, of_pair, METADATA, partial=True) == [1, 2]
    counts, _ = shards.last_merge(dataset, "mine")
    assert (counts["unknown"], counts["not asked"]) == (0, len(rows_of(Part(1, 3), of_pair)))
    assert not shards.is_merged(dataset, "mine", METADATA)

    label(dataset, "mine", 1, 3, of_pair)
    label(dataset, "mine", 2, 3, of_pair)
    assert merge(dataset, "mine", 3, of_pair, METADATA, partial=False) == []
    assert shards.last_merge(dataset, "mine")[1] == [{"asked": number} for number in range(3)]
    assert dataset.preference_names() == ["mine"]
    assert dataset.preference("mine").tolist() == (of_pair % 2).tolist()
    prob = np.load(tmp_path / "annotations/mine/prob.npy")
    np.testing.assert_allclose(prob, np.where(of_pair % 2, 0.9, 0), rtol=1e-6)
    assert shards.is_merged(dataset, "mine", METADATA)
    assert not shards.is_merged(dataset, "mine", METADATA | {"backend": "other"})


@pytest.mark.parametrize("survivors", range(4))
def test_a_shard_is_not_finished_before_its_labels_are_there(tmp_path, monkeypatch, survivors):
    """Another job, which finishes meanwhile, would merge it without them."""
    dataset = PairDataset(write_dataset(tmp_path / "dataset", random_pairs(20)))
    with (
        Shard(annotation_folder(dataset.path, "mine"), ONLY, np.arange(20), METADATA) as shard,
        monkeypatch.context() as patch,
    ):
        kill_after(patch, survivors)
        shard.prob[:] = 0
        with contextlib.suppress(Killed):
            shard.commit(True, {})
    missing = merge(dataset, "mine", 1, np.arange(20), METADATA, partial=False)
    assert missing == ([] if survivors == 3 else [0])
    assert missing or shards.last_merge(dataset, "mine")[0]["first"] == 20


def test_of_two_jobs_with_different_settings_the_first_to_commit_wins(tmp_path):
    other = METADATA | {"backend": "other"}
    with Shard(tmp_path, Part(0, 2), ROWS, METADATA) as first, Shard(tmp_path, Part(1, 2), ROWS, other) as second:
        for shard in (first, second):
            shard.prob[0] = 1.0
        first.commit(False, {})
        refusal(lambda: second.commit(False, {}), "has backend = 'test', not 'other'")
        first.commit(True, {})
    files = [file.name for file in sorted(tmp_path.glob("shard-*"))]
    assert files == ["shard-00000-of-00002.json", "shard-00000-of-00002.prob.npy"]


def test_anew_only_the_files_of_shards_are_deleted(tmp_path):
    dataset = PairDataset(write_dataset(tmp_path / "dataset", random_pairs(5)))
    for number in range(2):
        label(dataset, "mine", number, 2, np.arange(5))
    folder = annotation_folder(dataset.path, "mine")
    kept = {"shard-notes.txt", "shard-00000-of-00001.json.bak", "shard-00001-of-00002.npy.2"}
    for name in kept:
        (folder / name).touch()
    with Shard(folder, ONLY, np.arange(5), METADATA, labels_file(dataset.path, "mine")):
        assert {file.name for file in folder.glob("shard-*")} == kept

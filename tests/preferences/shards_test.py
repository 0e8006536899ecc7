"""Shards: made, cut at every point, gone on with; labels computed from them."""

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st
from small_dataset import random_pairs, write_dataset

from motif_jax.files import read_lines, write_json
from motif_jax.preferences import shards
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.shards import AnswerFile, Part, Shard, differences, merge
from motif_jax.preferences.store import PairDataset, annotation_folder

pytestmark = pytest.mark.quick
METADATA = {"backend": "test", "dataset": "d1", "num_shards": 1}
ONLY = Part(0, 1)


@given(st.integers(0, 60), st.integers(1, 9))
def test_every_question_is_in_one_shard(count, num_shards):
    ranges = [range(*Part(number, num_shards).questions(count)) for number in range(num_shards)]
    assert [question for numbers in ranges for question in numbers] == list(range(count))


def test_codes():
    values = np.array([0.0, 0.39, 0.41, 0.5, 0.6, 0.61, 1.0, np.nan])
    assert shards.to_codes(values, 0.1).tolist() == [0, 0, 2, 2, 2, 1, 1, 3]
    assert shards.to_codes(np.array([0.0, 0.5, 0.51, 1.0]), 0.0).tolist() == [0, 2, 1, 1]
    on_the_edge = np.array([0.4, 0.6], np.float32)  # a pair and the same pair turned
    assert shards.to_codes(on_the_edge, 0.1).tolist() == [2, 2]
    assert shards.count(np.array([0, 0, 1, 3], np.int8)) == {"first": 2, "second": 1, "tie": 0, "unknown": 1}


def answered(file, count=4):
    return AnswerFile(file, count)


def state(answers):
    return [answers.wanted.tolist(), answers.asked.tolist(), answers.yes.tolist(), answers.rounds, answers.log]


def test_cut_at_any_byte_a_file_has_the_lines_before_it_and_is_gone_on_with(tmp_path):
    whole = answered(tmp_path / "whole.jsonl")
    whole.want(np.array([2, 4, 5]))
    states = []
    for spot, yes in ((2, 0.25), (4, None), (5, 0.75)):
        whole.add(spot, yes)
        whole.save(METADATA)
        states.append(state(whole))
    whole.append({"again": [4]})
    whole.append({"log": {"asked": 3}})
    whole.save(METADATA)
    whole.close()
    content = (tmp_path / "whole.jsonl").read_bytes()
    np.testing.assert_array_equal(whole.labels(), [np.nan, 0.25, np.nan, np.nan])
    assert whole.open_spots(np.arange(4)).tolist() == [4]
    for cut in range(len(content) + 1):
        file = tmp_path / f"{cut}.jsonl"
        file.write_bytes(content[:cut])
        kept = answered(file)
        lines = list(read_lines(file))
        if any("asked" in line for line in lines):
            done = sum(len(line.get("asked", ())) for line in lines)
            assert repr(state(kept)[:3]) == repr(states[done - 1][:3]) or "again" in str(lines)
        kept.want(np.array([2, 4, 5]))
        for spot in kept.open_spots(np.arange(4)).tolist():
            kept.add(spot, {2: 0.25, 4: 0.5, 5: 0.75}[spot])
        kept.save(METADATA, ended=True)
        kept.close()
        again = answered(file)
        assert again.metadata == METADATA
        assert repr(state(again)) == repr(state(kept))
        assert not len(again.open_spots(np.arange(4)))


@pytest.fixture
def questions(tmp_path):
    return Questions(PairDataset(write_dataset(tmp_path / "dataset", random_pairs(50))), "msg")


def job(questions, number=0, of=1, metadata=METADATA):
    return Shard(annotation_folder(questions.dataset.path, "mine"), Part(number, of), questions, metadata)


def label(questions, number, of, until=None):
    """Answers the questions of a shard, in order `until` this number of them."""
    with job(questions, number, of) as shard:
        own = np.arange(shard.low, shard.high)
        shard.want(2 * own)
        for spot in shard.open_spots(own).tolist()[:until]:
            shard.add(spot, 0.9 if spot // 2 % 2 else 0.0)
        shard.append({"log": {"asked": number}})
        shard.save(METADATA, ended=True)


def test_shards_become_one_annotation_when_all_are_finished(questions, tmp_path):
    dataset = questions.dataset
    label(questions, 0, 3)
    label(questions, 2, 3, until=2)
    assert merge(questions, "mine", 3, METADATA, partial=False) == [1, 2]
    assert dataset.preference_names() == []

    assert merge(questions, "mine", 3, METADATA, partial=True) == [1, 2]
    counts, _ = shards.last_merge(dataset, "mine")
    low, high = Part(1, 3).questions(len(questions))
    not_asked = questions.counts[low:high].sum() + questions.counts[high + 2 :].sum()
    assert (counts["unknown"], counts["not asked"]) == (0, not_asked)
    assert not shards.is_merged(dataset, "mine", METADATA)

    label(questions, 1, 3)
    label(questions, 2, 3)
    assert merge(questions, "mine", 3, METADATA, partial=False) == []
    assert shards.last_merge(dataset, "mine")[1] == [{"asked": number} for number in range(3)]
    yes = np.where(np.arange(len(questions)) % 2, np.float32(0.9), np.float32(0))
    expected = np.where(questions.turned, 1 - yes[questions.of_pair], yes[questions.of_pair])
    expected = np.where(questions.of_pair < 0, np.float32(0.5), expected)
    np.testing.assert_array_equal(np.load(tmp_path / "annotations/mine/prob.npy"), expected)
    assert dataset.preference("mine").tolist() == shards.to_codes(expected, 0.0).tolist()
    assert shards.is_merged(dataset, "mine", METADATA)
    assert not shards.is_merged(dataset, "mine", METADATA | {"backend": "other"})


class Killed(BaseException):
    pass


@pytest.mark.parametrize("survivors", range(4))
def test_labels_are_not_complete_before_all_their_files_are_there(questions, monkeypatch, survivors):
    label(questions, 0, 1)
    left = iter(range(survivors))

    def dying(write):
        def maybe(*arguments):
            if next(left, None) is None:
                raise Killed
            write(*arguments)

        return maybe

    with monkeypatch.context() as patch:
        for name in ("write_json", "write_array"):
            patch.setattr(shards, name, dying(getattr(shards, name)))
        with pytest.raises(Killed):
            merge(questions, "mine", 1, METADATA, partial=False)
    assert not shards.is_merged(questions.dataset, "mine", METADATA)
    shards.check_free(questions.dataset, "mine")
    assert merge(questions, "mine", 1, METADATA, partial=False) == []
    assert shards.is_merged(questions.dataset, "mine", METADATA)


def test_of_two_jobs_with_different_settings_the_first_with_a_verdict_wins(questions):
    other = METADATA | {"backend": "other"}
    with job(questions, 0, 2) as first, job(questions, 1, 2, other) as second:
        for shard in (first, second):
            shard.want(2 * np.arange(shard.low, shard.high))
        first.add(2 * first.low, None)
        first.save(METADATA)  # without a verdict, the settings may not work
        assert not first.file.exists()
        first.add(2 * first.low + 2, 1.0)
        first.save(METADATA)
        second.add(2 * second.low, 1.0)
        refusal(lambda: second.save(other), "has backend = 'test', not 'other'")
        first.save(METADATA)
    assert [file.name for file in sorted(first.folder.glob("answers-*"))] == ["answers-00000-of-00002.jsonl"]


def test_a_refusal_names_every_value_that_differs(questions):
    label(questions, 0, 1)
    other = METADATA | {"backend": "other", "num_shards": 3, "goal": "gold"}
    refusal(
        lambda: job(questions, 0, 3, other), "has backend = 'test', not 'other'; num_shards = 1, not 3; goal = None"
    )


@pytest.mark.parametrize(
    ("before", "now", "differ"),
    [
        ({}, {"opened": "a"}, 0),  # labels whose model is not known
        ({"opened": "a"}, {}, 0),  # a judge that is not opened yet
        ({"opened": "a"}, {"opened": "b"}, 1),
        ({"opened": "a", "opened.weights": "x"}, {"opened": "a", "opened.weights": "y"}, 1),
        ({"opened": "a"}, {"opened": "a", "opened.weights": "y"}, 1),
    ],
)
def test_the_opened_model_is_compared_where_both_are_known(before, now, differ):
    assert len(differences(METADATA | before, METADATA | now)) == differ


def test_anew_only_the_files_of_shards_are_deleted(questions):
    for number in range(2):
        label(questions, number, 2)
    folder = annotation_folder(questions.dataset.path, "mine")
    kept = {"answers-notes.txt", "answers-00000-of-00001.jsonl.bak", "shard-00001-of-00002.npy.2"}
    for name in (*kept, "shard-00000-of-00001.json", "shard-00000-of-00001.prob.npy"):
        (folder / name).touch()
    with Shard(folder, ONLY, questions, METADATA, anew=True):
        assert {file.name for pattern in ("answers-*", "shard-*") for file in folder.glob(pattern)} == kept


def test_what_an_earlier_version_left_in_the_middle_is_refused_and_what_it_finished_is_read(questions):
    """It had the labels of each job as an array, beside a record."""
    dataset, folder = questions.dataset, annotation_folder(questions.dataset.path, "mine")
    write_json(folder / "shard-00000-of-00001.json", {"facts": METADATA, "finished": False, "log": {}})
    np.save(folder / "shard-00000-of-00001.prob.npy", np.full(50, np.nan, np.float32))
    for act in (lambda: job(questions), lambda: merge(questions, "mine", 1, METADATA, partial=True)):
        refusal(act, "'mine' was begun and not finished by an earlier version of motif_jax", "ignore_existing=True")
    (dataset.path / "preference").mkdir()
    np.save(dataset.path / "preference/mine.npy", np.zeros(50, np.int8))
    record = {"facts": METADATA, "missing_shards": [], "written": True, "not_asked": 0, "shards": {}}
    write_json(folder / "merged.json", record | {"counts": {"first": 50, "unknown": 0}})
    assert shards.is_merged(dataset, "mine", METADATA)
    refusal(lambda: job(questions, metadata=METADATA | {"backend": "other"}), "has backend = 'test', not 'other'")


def test_labels_that_came_with_a_dataset_are_not_asked_for(questions):
    folder, prob = annotation_folder(questions.dataset.path, "mine"), np.full(50, np.nan, np.float32)
    known = np.flatnonzero((questions.of_pair >= 0) & (questions.of_pair < 5))
    prob[known] = np.where(questions.turned[known], 0.25, 0.75)
    folder.mkdir(parents=True)
    np.save(folder / "prob.npy", prob)
    write_json(folder / "merged.json", {"facts": METADATA})
    label(questions, 0, 1)
    with job(questions) as shard:
        assert not shard.wanted[:5].any()
        assert (shard.labels()[:5] == 0.75).all()
    assert merge(questions, "mine", 1, METADATA, partial=False) == []
    assert (np.load(folder / "prob.npy")[known] == prob[known]).all()

"""The answer cache."""

import json

import pytest

from motif_jax.annotation.annotator import Question, QuestionAnswer
from motif_jax.annotation.asking import AnswerCache, read_answers
from motif_jax.files import read_json

pytestmark = pytest.mark.quick
ABOUT = {"backend": "server", "model": "org/Some-Model.v1", "mode": "score", "prompt": "abc"}
SOME = [
    (Question("You kill the newt!", ""), QuestionAnswer(0.25, "", 0.9)),
    (Question("naïve \n {}", "\x00 ☃"), QuestionAnswer(None, "hm")),
    (Question("a", "b"), QuestionAnswer(1.0, 'Because "b".')),
    (Question("a"), QuestionAnswer(0.0)),
]


def write(cache, *answered):
    for question, answer in answered:
        cache.add(question, answer)


def test_answers_with_a_verdict_are_cached_for_this_job_and_later_ones(tmp_path):
    first = AnswerCache(ABOUT, tmp_path)
    write(first, *SOME)
    second = AnswerCache(ABOUT, tmp_path)  # while the first is open
    first.close()
    for cache in (first, second, AnswerCache(ABOUT, tmp_path)):
        assert [cache.get(question) for question, _ in SOME] == [
            None if answer.yes is None else QuestionAnswer(answer.yes) for _, answer in SOME
        ]
    assert list(read_answers(first.folder)) == SOME
    assert read_json(first.folder / "about.json") == ABOUT
    assert len(list(first.folder.glob("*.jsonl"))) == 1  # who adds nothing has no file


def test_a_torn_last_line_is_left_out(tmp_path):
    cache = AnswerCache(ABOUT, tmp_path)
    write(cache, *SOME)
    (file,) = cache.folder.glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-3])
    assert list(read_answers(cache.folder)) == SOME[:-1]


def test_a_folder_of_version_0_1_is_read(tmp_path):
    """Its lines end with a checksum, and its name is a hash of the same values."""
    cache = AnswerCache(ABOUT, tmp_path)
    rows = [{"first": "a", "second": "b", "second_better": 0.25, "mass": 0.5, "said": "x", "checksum": "sha256:0"},
            {"first": "a", "second": None, "second_better": None, "checksum": "sha256:1"}]  # fmt: skip
    (cache.folder / "host-1-abc.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"first": "to')
    assert list(read_answers(cache.folder)) == [
        (Question("a", "b"), QuestionAnswer(0.25, "x", 0.5)), (Question("a"), QuestionAnswer(None))
    ]  # fmt: skip
    assert AnswerCache(ABOUT, tmp_path).get(Question("a", "b")) == QuestionAnswer(0.25)
    assert cache.folder.name == "some-model-v1-score-929c55e21128efa4"

"""The answer cache."""

import tracemalloc

import pytest

from motif_jax.annotation.annotator import Question, QuestionAnswer
from motif_jax.annotation.answers import AnswerStore, read_answers
from motif_jax.annotation.shared_lines import slug
from motif_jax.system.files import json_line, read_json

pytestmark = pytest.mark.quick
ABOUT = {"model": "org/Some-Model.v1", "mode": "score", "prompt": "abc"}
SOME = [
    (Question("You kill the newt!", ""), QuestionAnswer(0.25, "", 0.9)),
    (Question("naïve \n {}", "\x00 ☃"), QuestionAnswer(None, "hm")),
    (Question("a", "b"), QuestionAnswer(1.0, 'Because "b".')),
]


def test_what_is_added_is_read_by_later_jobs(tmp_path):
    store = AnswerStore(tmp_path, ABOUT)
    assert list(read_answers(store.folder)) == []
    store.open()
    store.add(SOME[:1])
    store.add(SOME[1:])
    store.close()
    assert sorted(read_answers(AnswerStore(tmp_path, ABOUT).folder)) == sorted(SOME)
    assert read_json(store.folder / "about.json") == ABOUT


def test_jobs_write_beside_each_other(tmp_path):
    stores = [AnswerStore(tmp_path, ABOUT) for _ in range(3)]
    for store, answered in zip(stores, SOME, strict=True):
        store.open()
        store.add([answered])
    assert len(list(stores[0].folder.glob("*.jsonl"))) == 3
    assert sorted(read_answers(stores[0].folder)) == sorted(SOME)


def test_other_models_prompts_and_modes_are_kept_apart(tmp_path):
    folders = {
        AnswerStore(tmp_path, ABOUT | change).folder
        for change in ({}, {"model": "x"}, {"prompt": "d"}, {"mode": "reason"})
    }
    assert len(folders) == 4


def test_lines_that_are_torn_or_garbage_are_not_read(tmp_path):
    store = AnswerStore(tmp_path, ABOUT)
    store.open()
    store.add(SOME)
    (file,) = store.folder.glob("*.jsonl")
    whole = file.read_bytes()
    for cut in range(len(whole)):
        file.write_bytes(whole[:cut])
        assert list(read_answers(store.folder)) == SOME[: whole[:cut].count(b"\n")]
    garbage = [b"\xff\xfe\n", b"[]\n", b"7\n", b"{}\n", b'{"first": 1, "second": "b", "second_better": 0.5}\n',
               b'{"first": "a", "second": "b", "second_better": 7}\n',
               b'{"first": "a", "second": "b", "second_better": "1"}\n',
               b'{"first": "a", "second": "b", "second_better": NaN}\n']  # fmt: skip
    file.write_bytes(b"".join(garbage) + whole)
    assert list(read_answers(store.folder)) == SOME


def test_a_line_without_end_is_passed_over(tmp_path):
    store = AnswerStore(tmp_path, ABOUT)
    store.open()
    store.add(SOME)
    (file,) = store.folder.glob("*.jsonl")
    whole = file.read_bytes()
    with open(file, "wb") as lines:
        lines.truncate(2**28)  # zeros, without a newline
        lines.seek(2**28)
        lines.write(b"\n" + whole)
    tracemalloc.start()
    assert list(read_answers(store.folder)) == SOME
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()


def test_masses_that_are_none_are_not_believed(tmp_path):
    values = [-1, 2, 10**400, "1", None, 0.25]
    rows = [{"first": "a", "second": "b", "second_better": 1.0, "mass": value} for value in values]
    (tmp_path / "x.jsonl").write_text("".join(map(json_line, rows)))
    assert [answer.mass for _, answer in read_answers(tmp_path)] == [1.0] * 5 + [0.25]


def test_a_job_that_was_answered_nothing_leaves_no_file(tmp_path):
    store = AnswerStore(tmp_path, ABOUT)
    store.open()
    store.add([])
    store.close()
    assert not list(store.folder.glob("*.jsonl"))


def test_another_job_may_leave_with_its_empty_file_while_this_one_reads(tmp_path):
    here, gone = sorted(tmp_path / name for name in ("a.jsonl", "b.jsonl"))
    for file in (here, gone):
        file.write_text(json_line({"first": "a", "second": "b", "second_better": 1.0}))
    answers = read_answers(tmp_path)
    next(answers)
    gone.unlink()
    assert list(answers) == []


def test_slugs():
    assert slug("meta-llama/Llama-3.1-8B-Instruct") == "llama-3-1-8b-instruct"
    assert slug("/models/Qwen 2.5/") == "qwen-2-5"
    assert slug("???") == "unnamed"

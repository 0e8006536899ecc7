"""The client of judges against every lie of lies.py: bounded in time and memory, and nothing harmful is passed on."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import quote

import pytest
from chat_server import ChatServer, connect
from client_test import ask
from conftest import refusal
from lies import BUSY, ENDLESS, ESCAPE, FINITE, LIES, bounded, nothing_is_printed, reply, say  # noqa: F401  a fixture
from nethack_texts import LEXICON

from motif_jax.annotation.annotator import Incomplete, Question
from motif_jax.annotation.client import MAX_SAID
from motif_jax.structs import UserError

pytestmark = pytest.mark.usefixtures("few_tries")

KEY = "ses\\ame/1'2+3"


@pytest.fixture(autouse=True)
def memory_stays_bounded():
    with bounded(80):  # MiB, for 32 replies at a time; one endless body takes ten times as much within a second
        yield


def harmless(text: str, limit: int) -> bool:
    return text.isprintable() and len(text) <= limit


@pytest.mark.parametrize("lies", [ENDLESS, FINITE], ids=["endless", "finite"])
@pytest.mark.parametrize("mode", ["reason", "score"])
def test_lies_leave_their_questions_without_an_answer_and_the_others_answered(mode, lies, monkeypatch):
    monkeypatch.setattr("motif_jax.annotation.client.GIVEN_UP_IN_A_ROW", 10**9)  # honest ones may be late as well
    asked = {f"You kill the newt! #{number}": name for number, name in enumerate(lies)}
    answers = {}

    def questions() -> Iterator[Question]:
        """Honest ones between the others, for as long as a lie is being listened to."""
        for first in asked:
            yield Question(first, "")
            yield Question(f"{first} Honestly.", "")
        number = 0
        while len(asked.keys() & answers) < len(asked):
            yield Question(f"You die... #{number}", "")
            number += 1

    def fault(number, body):
        time.sleep(0.005)
        shown = next((line for line in str(body["messages"]).split('"') if line in asked), None)
        return lies[asked[shown]]() if shown else ""

    with ChatServer(fault) as chat, closing(connect(chat.url, mode, timeout_s=1.0, in_flight=32)) as server:
        for question, answer in server.answers(questions()):
            answers[question.first] = answer
            if question.first not in asked and answer.yes is not None:
                assert (answer.yes > 0.5) == (LEXICON.answer(question).yes > 0.5), question
    believed = {asked[first]: answer for first, answer in answers.items() if first in asked}
    assert len(believed) == len(lies)
    refused = "the server gave no answer: "
    for name, answer in believed.items():
        assert answer.yes is None, name
        assert len(answer.said) <= 2 * MAX_SAID + 100, name
        assert not answer.said.startswith(refused) or harmless(answer.said, 1500), name
        assert 0 <= min(answer[3:6]) <= max(answer[3:6]) < 2**32, name
        answer.said.encode()  # can be written down
    honest = [answer.yes for first, answer in answers.items() if first not in asked]
    assert honest.count(None) < len(honest)  # a busy machine may be late with some of them, twice


@pytest.mark.parametrize("header", BUSY)
def test_no_retry_after_outlasts_our_patience(header):
    late = pytest.raises(Incomplete, match=r"has answered nothing for \d+ s, last: it answers 429")
    with ChatServer(lambda *_: BUSY[header]()) as chat, closing(connect(chat.url, patience_s=0.1)) as server, late:
        list(server.answers([Question("a", "b")]))


def test_a_lying_server_is_refused_at_the_start_in_one_harmless_line():
    def meet(name: str) -> str:
        try:
            connect(f"{chat.url}/{names.index(name)}", start_s=0.2).close()
        except UserError as error:
            return str(error)
        return "it was believed"

    names = list(LIES)
    with ChatServer() as chat, ThreadPoolExecutor(16) as pool:
        chat.greeting = lambda path: LIES[names[int(path.split("/")[2])]]()
        said = dict(zip(names, pool.map(meet, names), strict=True))
    for name, sentence in said.items():
        assert harmless(sentence, 2000), name
        assert "--config.annotate.server.url" in sentence, (name, sentence)


MODELS = {
    "escape sequences": [ESCAPE, f"a{ESCAPE}"],
    "many": [f"model-{number}" for number in range(50_000)],
    "the key": [KEY, f"gpt {KEY}"],
    "other types": [None, 7, ["a"], ""],
}


@pytest.mark.parametrize("wished", ["", "judge"])
@pytest.mark.parametrize("kind", MODELS)
def test_names_of_models_are_shown_harmlessly_and_only_used_where_they_are_names(kind, wished):
    for names in (MODELS[kind], MODELS[kind][:1]):
        with ChatServer() as chat:
            chat.models = names
            if names == ["model-0"] and not wished:
                connect(chat.url, key=KEY).close()  # a name like others
                continue
            said = refusal(lambda: connect(chat.url, key=KEY, model=wished), "--config.annotate.model")
        assert KEY not in said


@pytest.mark.parametrize("write", [str, repr, json.dumps, quote])
@pytest.mark.parametrize("status", ["400", "200"])
def test_the_key_is_cut_out_however_it_is_written(status, write):
    text = write(KEY)
    head, told = f"HTTP/1.1 {status} Well\r\n".encode(), say(text) if status == "200" else text
    with ChatServer(lambda *_: reply(told, head)) as chat, closing(connect(chat.url, key=KEY, patience_s=0.1)) as judge:
        try:
            words = str(list(judge.answers([Question("a", "b")])))
        except Incomplete as stopped:
            words = str(stopped)
    for form in (str, repr, json.dumps, quote):
        assert form(KEY).strip("'\"") not in words
    assert "***" in words


def test_verdicts_are_read_at_the_end_of_what_is_too_long_to_be_kept():
    for version, better in (("default", 0.0), ("reworded", 1.0)):
        verdicts = '("best_description": 1) vs ("best_message": 2)'
        told = say("hm " * 1_000_000 + verdicts)
        with ChatServer(lambda *_, told=told: reply(told)) as chat:
            ((_, answer),) = ask(connect(chat.url, version=version), [Question("a", "b")]).items()
        assert answer.yes == better
        assert answer.said.endswith(verdicts)
        assert len(answer.said) <= MAX_SAID + 10

"""The client of judges against a real HTTP server that misbehaves."""

import asyncio
import contextlib
import itertools
import random
import threading
import time
from types import SimpleNamespace

import pytest
from chat_server import ChatServer, connect
from conftest import LONG_S, refusal
from lies import JSON, reply
from nethack_texts import LEXICON, NETHACK
from small_dataset import EVENTS

from motif_jax.annotation import client
from motif_jax.annotation.annotator import Incomplete, Question
from motif_jax.annotation.backends import Lexicon
from motif_jax.annotation.client import KEY, URL, ChatClient
from motif_jax.annotation.prompts import make_prompt
from motif_jax.annotation.rule_server import Judge, JudgeClient
from motif_jax.annotation.section import SamplingSection, ServerSection
from motif_jax.structs import UserError
from motif_jax.system import http
from motif_jax.system.http import MAX_RETRY_AFTER_S, check_address, retry_after_s

QUESTIONS = [Question(f"{first} #{number}", second) for number in range(3) for first in EVENTS for second in EVENTS]


@pytest.fixture(autouse=True)
def soon_restarted(monkeypatch, short_pauses):
    monkeypatch.setattr(http, "RESTART_S", 0.5)


def ask(server: ChatClient, questions=QUESTIONS) -> dict:
    with contextlib.closing(server):
        answered = list(server.answers(questions))
    assert sorted(question for question, _ in answered) == sorted(questions)  # each once, in whichever order
    return dict(answered)


def assert_right(answers: dict) -> None:
    for question, answer in answers.items():
        assert answer.yes == LEXICON.answer(question).yes, (question, answer)


@pytest.mark.differs(
    "oni", there="requests do not use chat completions", here="they do, so the server applies the model's own template"
)
def test_many_questions_are_in_flight_and_never_more_than_allowed():
    all_at_once = threading.Barrier(16)

    def fault(number, body):
        if number < 16:
            all_at_once.wait()
        return ""

    with ChatServer(fault) as chat:
        answers = ask(connect(chat.url))
        assert_right(answers)
        assert chat.most_in_flight == 16
        assert len(chat.asked) == len(QUESTIONS)
        answer = next(iter(answers.values()))
        assert (answer.prompt_tokens, answer.cached_tokens, answer.output_tokens) == (300, 256, 20)
        body = chat.asked[0]
        assert (body["model"], body["top_p"]) == ("judge", 0.95)
        assert [message["role"] for message in body["messages"]] == ["system", "user"]
        assert "top_k" not in body  # not in the standard


def test_every_question_is_answered_despite_failed_requests(monkeypatch):
    monkeypatch.setattr(http, "TRIES", 1000)  # chance gives some question six failures in a row now and then
    half = JSON + b'Content-Length: 1000\r\n\r\n{"choices": [{'
    broken = [[half], *([*reply(body)] for body in ("<html>all is well</html>", '{"choices": []}'))]
    faults = ["500", "502", "503", "429", "429 Retry-After=0", "slow 10000", "408", *broken]
    rng, lock = random.Random(0), threading.Lock()

    def fault(number, body):
        with lock:
            return rng.choice(faults) if rng.random() < 0.4 else ""

    with ChatServer(fault) as chat:
        assert_right(ask(connect(chat.url, timeout_s=1.0)))
        assert len(chat.asked) > 1.3 * len(QUESTIONS)


def test_retry_after_is_honoured(monkeypatch):
    pauses = []

    async def sleep(seconds, real=asyncio.sleep):
        pauses.append(seconds)
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with ChatServer(lambda number, body: "" if number else "429 Retry-After=100") as chat:
        assert_right(ask(connect(chat.url, in_flight=1), QUESTIONS[:1]))
    assert 100 <= max(pauses) <= 150
    assert retry_after_s("3") == retry_after_s(" 3.0 ") == 3
    monkeypatch.setattr("motif_jax.system.http.time.time", lambda: 1e9)
    assert retry_after_s(time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(1e9 + 60))) == 60
    assert retry_after_s("tomorrow") == retry_after_s("") == retry_after_s("-5") == retry_after_s("nan") == 0
    assert retry_after_s("1e9") == MAX_RETRY_AFTER_S


@pytest.mark.parametrize(("status", "sentence"), [
    ("500", "has answered nothing for .* it answers 500"), ("404", "refuses the questions: it answers 404"),
])  # fmt: skip
def test_a_server_that_fails_at_everything_stops_the_job(status, sentence):
    with ChatServer(lambda number, body: status) as chat, pytest.raises(Incomplete, match=sentence):
        ask(connect(chat.url, patience_s=0.5))


def test_an_answer_without_a_verdict_is_asked_again_once():
    with ChatServer(lambda number, body: "mumble" if len(body["messages"]) == 2 else "") as chat:
        answers = ask(connect(chat.url), QUESTIONS[:5])
        assert_right(answers)
        again = [body for body in chat.asked if len(body["messages"]) > 2]
        assert len(again) == 5
        assert [message["role"] for message in again[0]["messages"]] == ["system", "user", "assistant", "user"]
        assert again[0]["messages"][2]["content"] == "Hard to say."
        assert len(again[0]["structured_outputs"]["choice"]) == 3
        assert "[asked again]" in next(iter(answers.values())).said
    with ChatServer(lambda number, body: "mumble" if number % 2 else "silence") as chat:
        answers = ask(connect(chat.url), QUESTIONS[:5])
        assert {answer.yes for answer in answers.values()} == {None}
        assert len(chat.asked) == 10


def test_a_server_that_knows_no_structured_outputs_is_asked_without():
    def fault(number, body):
        return "400" if "structured_outputs" in body else "mumble" if len(body["messages"]) == 2 else ""

    with ChatServer(fault) as chat:
        assert_right(ask(connect(chat.url, in_flight=1), QUESTIONS[:5]))
        assert sum("structured_outputs" in body for body in chat.asked) == 1


@pytest.mark.parametrize("prefill", [False, True])
def test_scores_are_read_where_the_verdict_stands(prefill):
    with ChatServer() as chat:
        for question, answer in ask(connect(chat.url, "score", prefill=prefill)).items():
            # p(verdict) = 0.80, p(one other) = 0.10, p(the third) = 0.06, in the order 1, 2, 0
            expected = {0.0: (0.10 + 0.03) / 0.96, 1.0: (0.80 + 0.03) / 0.96, 0.5: (0.06 + 0.40) / 0.96}
            assert answer.yes == pytest.approx(expected[LEXICON.answer(question).yes])
            assert (answer.mass, *answer[3:6]) == (pytest.approx(0.96), 300, 256, 20)
        assert (chat.asked[0]["messages"][-1] == {"role": "assistant", "content": "("}) == prefill


def test_a_wrong_key_or_model_is_refused_at_the_start():
    with ChatServer(key="sesame", models=("big", "small")) as chat:
        refusal(lambda: connect(chat.url), match=r"wants a key, and none is set .*key_variable")
        refusal(lambda: connect(chat.url, key="barley"), "the key was refused")
        refusal(lambda: connect(chat.url, key="sesame", model="huge"), "no model 'huge': it has big, small (--config.")
        refusal(lambda: connect(chat.url, key="sesame"), "has several models: it has big, small")
        connect(chat.url, key="sesame", model="small").close()
    with ChatServer(models=()) as chat, pytest.raises(UserError, match=r"has no model yet: it has none"):
        connect(chat.url)
    refusal(lambda: connect(chat.url, start_s=0.2), match=r"does not answer.*--config.annotate.server.url")


@pytest.mark.parametrize(("greeting", "served"), [
    ("", True),  # the port is closed, as vLLM's is while it loads its model
    ("503 Service Unavailable", True),  # as llama.cpp's server says meanwhile
    ("500 Internal Server Error", False),
])  # fmt: skip
def test_a_server_that_may_be_loading_its_model_is_waited_for(monkeypatch, greeting, served):
    clock = itertools.count(0, 40)  # 40 seconds pass at each look
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    chat, said = ChatServer(), []
    chat.start()
    if greeting:
        chat.greeting = lambda path: [f"HTTP/1.1 {greeting}\r\nContent-Length: 0\r\n\r\n".encode()]
    else:
        chat.stop()

    def load(line):
        said.append(line)
        chat.greeting = None
        if not greeting:
            chat.start()

    monkeypatch.setattr(client, "print_line", load)
    try:
        if served:
            connect(chat.url, start_s=0.0).close()
            assert "waits for it up to 1,800 s (--config.annotate.server.start_s)" in "".join(said)
        else:
            refusal(lambda: connect(chat.url, start_s=0.0), match=r"does not answer: it answers 500.*start_s\)")
    finally:
        chat.stop()
    assert len(said) == served


@pytest.mark.parametrize("url", [
    "localhost:8000", "http://me:secret@host/v1", "http://h/v1?key=1", "http://h/\x1b[2J", f"http://{'h' * 10_000}:x",
])  # fmt: skip
def test_addresses_that_cannot_work_are_refused(url):
    said = refusal(lambda: check_address(url, URL, KEY), "--config.annotate.server")
    assert "secret" not in said
    assert len(said) < 500


@pytest.mark.parametrize(("goal", "mode", "version", "prefill"), [
    ("defaultgoal", "reason", "default", False), ("combat", "reason", "reworded", True),
    ("combat", "score", "default", True),
])  # fmt: skip
def test_answers_of_the_embedded_judge_are_those_of_the_lexicon(goal, mode, version, prefill):
    lexicon = Lexicon(NETHACK, goal)
    pairs = [Question(first, second) for first in EVENTS[:8] for second in EVENTS[:8]]
    for one, questions in ((True, [Question(event) for event in EVENTS]), (False, pairs)):
        prompt = make_prompt(NETHACK, mode, goal, version, one=one, system_role=not prefill)
        section = ServerSection(in_flight=16, timeout_s=LONG_S, prefill=prefill)
        sampling = SamplingSection(0.1, 0.95, 50, 200) if prompt.retry else None
        answers = ask(JudgeClient(Judge(goal, prompt, NETHACK, delay_s=0.0), section, prompt, sampling), questions)
        for question, answer in answers.items():
            expected = lexicon.answer(question)
            assert answer.yes == expected.yes, question
            assert answer.mass == 1.0
            assert mode == "score" or expected.said in answer.said

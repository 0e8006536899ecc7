"""Anything may be written by users and answered by servers: it works, or it is refused in one sentence."""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pytest
from chat_server import ChatServer
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nethack_texts import NETHACK
from small_dataset import EVENTS

from motif_jax.actors.players import parse_scripted
from motif_jax.annotation.annotator import Incomplete, Question, QuestionAnswer, Sampling
from motif_jax.annotation.backends import read_json
from motif_jax.annotation.client import ChatClient
from motif_jax.annotation.prompts import make_prompt
from motif_jax.captions import decode, encode
from motif_jax.envs.worlds import make_world
from motif_jax.policies.choice import parse_mixture, parse_one
from motif_jax.rewards.labels import parse_annotators
from motif_jax.structs import UserError
from motif_jax.system import http
from motif_jax.system.arrays import read_array
from motif_jax.system.http import check_address, retry_after_s

SETTINGS = settings(
    derandomize=True, deadline=None, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
WORDS = st.sampled_from([
    "explorer", "random", "runs/a", ":", "@", ",", "all", "last", "0.3", "1e999", "nan", "-1", "7", "/", " ", "é", "\0",
    "\n", "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT THREE}", "9" * 5000,
])  # fmt: skip
GRAMMAR = st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=8).map("".join))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


def refused(attempt: Callable[[], object]) -> bool:
    """Whether it was refused, which must be in one sentence."""
    try:
        attempt()
    except UserError as error:
        return len(str(error).splitlines()) == 1
    return False


# ---- what users write


def scripted(text):
    return parse_scripted(text, make_world({}))


@SETTINGS
@given(GRAMMAR)
def test_who_plays_is_understood_or_refused(text):
    for parse in (scripted, lambda text: parse_mixture(text, "--flag"), lambda text: parse_one(text, "--flag"),
                  parse_annotators, lambda text: read_json(text, "x"), lambda text: check_address(text, "x"),
                  lambda text: make_prompt(NETHACK, "reason", text or "gold", "default")):  # fmt: skip
        refused(lambda parse=parse: parse(text))
    assert 0 <= retry_after_s(text) <= 600
    if not refused(lambda: scripted(text)):
        assert sum(scripted(text).values()) == pytest.approx(1)


NAMES = ["seed", "stages", "env.task", "env.max_episode_steps", "env.reference_sober", "collect.num_pairs", "collect",
         "collect.collector", "collect.keep_empty", "annotate.goal", "annotate.vllm.extra", "reward.learning_rate",
         "policy.network", "nothing.here", "collect.num_pairs.more", ""]  # fmt: skip
VALUES = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12), WORDS,
    st.sampled_from(["True", "1", "-1", "1.5", "1e400", "()", "('collect',)", "None", "[", "{", "9" * 400, "0x10"]),
).filter(lambda text: "\0" not in text)  # fmt: skip
FLAGS = st.one_of(
    st.tuples(st.sampled_from(NAMES), VALUES).map(lambda pair: "--config.{}={}".format(*pair)),
    st.sampled_from(NAMES).map("--config.{}".format),
    st.tuples(st.sampled_from(["--workdir", "--stage", "--config", "--confg", "-x", "--"]), VALUES).map("=".join),
    VALUES,
)


@pytest.fixture(scope="module")
def parser():
    """What becomes of a command line: exit status, and what is told."""
    program = [sys.executable, str(ROOT / "tests/hardening/command_lines.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(program, cwd=ROOT, env=environment, stdin=PIPE, stdout=PIPE, text=True) as process:

        def parse(arguments):
            process.stdin.write(json.dumps(arguments) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield parse
        process.stdin.close()


@settings(SETTINGS, max_examples=150)
@given(st.sampled_from(["configs/motif.py", "configs/quickstart.py:toy", "configs/motif.py:{}"]), VALUES,
       st.lists(FLAGS, max_size=3))  # fmt: skip
def test_any_command_line_works_or_is_refused_in_one_sentence(parser, file, argument, more):
    arguments = ["motif_jax", f"--config={file.format(argument)}", "--workdir=/tmp/nowhere", *more]
    status, told = parser(arguments)
    assert status in (0, 2), told
    assert status == 0 or told.count("\n") == 1, told


# ---- what servers say


QUESTIONS = [Question(f"{event} #{number}", EVENTS[0]) for number in range(4) for event in EVENTS]
PLACES = [["choices"], ["choices", 0], ["choices", 0, "message"], ["choices", 0, "message", "content"], ["usage"],
          ["usage", "prompt_tokens"], ["usage", "prompt_tokens_details"], ["choices", 0, "logprobs"],
          ["choices", 0, "logprobs", "content"], ["choices", 0, "logprobs", "content", 0],
          ["choices", 0, "logprobs", "content", 0, "top_logprobs"],
          ["choices", 0, "logprobs", "content", 0, "top_logprobs", 0, "logprob"]]  # fmt: skip


@pytest.mark.parametrize("mode", ["reason", "score"])
@settings(SETTINGS, max_examples=6)
@given(faults=st.lists(st.tuples(st.sampled_from(PLACES), JSON), min_size=20, max_size=20))
def test_any_reply_of_a_server_is_an_answer_or_none(mode, faults, monkeypatch):
    for pause in ("FIRST_PAUSE_S", "MAX_PAUSE_S"):
        monkeypatch.setattr(http, pause, 0.001)

    def twisted(body: dict) -> dict:
        reply = honest(body)
        place, value = faults[len(body["messages"][-1]["content"]) % len(faults)]
        inner = reply
        for key in place[:-1]:
            inner = inner[key] if (isinstance(inner, dict) and key in inner) or isinstance(inner, list) else {}
        if isinstance(inner, dict | list):
            inner[place[-1]] = value
        return reply

    with ChatServer() as chat:
        honest, chat.complete = chat.complete, twisted
        sampling = Sampling(0.1, 0.95, 50, 200) if mode == "reason" else None
        server = ChatClient(
            chat.url, "", make_prompt(NETHACK, mode, "gold", "default"), sampling, in_flight=8, patience_s=0.3
        )
        answers: dict[Question, QuestionAnswer] = {}
        told = ""
        try:
            answers.update(server.answers(QUESTIONS))
        except Incomplete as stopped:  # more of it was garbage than a job goes on with
            told = str(stopped)
        finally:
            server.close()
    assert len(told.splitlines()) <= 1
    for answer in answers.values():
        answer.said.encode()
        assert answer.yes is None or 0 <= answer.yes <= 1
        assert all(isinstance(number, int) and number >= 0 for number in answer[3:])


# ---- captions


@SETTINGS
@given(st.text())
def test_any_text_becomes_a_caption_and_any_caption_a_text(text):
    shown = decode(encode(text))
    assert decode(encode(shown)) == shown
    if text.isascii() and "\0" not in text:
        assert shown == text[:256]


def damage(rng: random.Random, file: Path, truncated: bool) -> None:
    """Flips some bits, most of them in the head, or cuts the file off."""
    data = bytearray(file.read_bytes())
    if truncated:
        file.write_bytes(data[: rng.randrange(len(data))])
        return
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(min(len(data), 130) if rng.random() < 0.7 else len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


@SETTINGS
@given(
    st.sampled_from([np.int8, np.float32, np.uint8]),
    st.integers(0, 2**32),
    st.booleans(),
    st.booleans(),
)
def test_an_array_is_an_array_or_a_value_error(dtype, seed, truncated, mapped):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.npy")
        np.save(file, np.arange(40).astype(dtype))
        size = file.stat().st_size
        damage(random.Random(seed), file, truncated)
        told = ""
        try:
            assert isinstance(read_array(file, mapped), np.ndarray)
        except ValueError as error:
            told = str(error)
        assert len(told.splitlines()) <= 1
        assert file.stat().st_size <= size

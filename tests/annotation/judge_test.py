"""The embedded judge, over real HTTP, as a process that dies with this one."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from conftest import LONG_S, parents, wait_for
from nethack_texts import NETHACK
from small_dataset import EVENTS

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.client import ChatClient
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.annotation.prompts import make_prompt
from motif_jax.annotation.section import SamplingSection, ServerSection
from motif_jax.contrib.judge.process import Judge

SAMPLING = SamplingSection(0.1, 0.95, 50, 200)
SINGLE = [Question(event) for event in EVENTS]
PAIRS = [Question(first, second) for first in EVENTS[:8] for second in EVENTS[:8]]


def ask(judge, prompt, questions, **options) -> dict:
    mode = SAMPLING if prompt.retry else None
    section = ServerSection(**({"url": judge.url, "in_flight": 16, "timeout_s": LONG_S} | options))
    server = ChatClient(section, judge.model, prompt, mode)
    try:
        return dict(server.answers(questions))
    finally:
        server.close()


@pytest.mark.parametrize(("goal", "mode", "version", "prefill"), [
    ("defaultgoal", "reason", "default", False), ("combat", "reason", "reworded", True),
    ("combat", "score", "default", True),
])  # fmt: skip
def test_its_answers_are_those_of_the_lexicon(goal, mode, version, prefill):
    lexicon = Lexicon(NETHACK, goal)
    for one, questions in ((True, SINGLE), (False, PAIRS)):
        prompt = make_prompt(NETHACK, mode, goal, version, one=one, system_role=not prefill)
        with Judge(goal, prompt, NETHACK, delay_s=0.0) as judge:
            answers = ask(judge, prompt, questions, prefill=prefill)
        assert set(answers) == set(questions)
        for question, answer in answers.items():
            expected = lexicon.answer(question)
            assert answer.yes == expected.yes, question
            assert answer.mass == 1.0
            assert mode == "score" or expected.said in answer.said


PARENT = """
    import os, signal, sys, time
    sys.path[:0] = {path!r}
    from nethack_texts import NETHACK
    from motif_jax.contrib.judge.process import Judge
    from motif_jax.annotation.prompts import make_prompt
    prompt = make_prompt(NETHACK, "reason", "defaultgoal", "default", one=True)
    judge = Judge("defaultgoal", prompt, NETHACK, delay_s=100.0)
    if os.fork() == 0:  # holds the other end of the judge's input
        time.sleep(1000)
    print(judge.process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_dies_with_its_parent():
    program = textwrap.dedent(PARENT.format(path=sys.path))
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, process_group=0)
    try:
        number = int(parent.stdout.readline())
        parent.wait()
        wait_for(lambda: number not in parents())
    finally:
        os.killpg(parent.pid, signal.SIGKILL)  # the process that it left
        parent.stdout.close()

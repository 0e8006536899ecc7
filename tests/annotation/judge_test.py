"""The embedded judge, over real HTTP."""

import pytest
from conftest import LONG_S
from nethack_texts import NETHACK
from small_dataset import EVENTS

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.client import ChatClient
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.annotation.prompts import make_prompt
from motif_jax.annotation.section import SamplingSection, ServerSection
from motif_jax.contrib.judge import Judge

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

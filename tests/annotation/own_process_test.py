"""A judge in a process of its own: it answers as it would in this one, nobody waits for it, and it may die."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from conftest import get_config, viewed, wait_for
from gated_judge import answer_to
from stream_test import NO_LIMIT, collect

from motif_jax.annotation.annotator import PAUSE, Question
from motif_jax.annotation.stream import TOGETHER, Item, OwnProcess
from motif_jax.envs.texts import texts_of
from motif_jax.rewards.online.source import backend_for, open_stream
from motif_jax.structs import UserCodeError

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("short_pauses")]
TEXTS = texts_of({"world": "nethack"}, "")
PAIR = Question("You kill the jackal!", "It's \ud800 a wall.")


def config_of(model):
    config = get_config("oni_quickstart.py", "reward_free,retrieval")
    config.annotate.update({"backend": "gated_judge:Gated", "model": str(model), "cache_dir": ""})
    return viewed(config)


@pytest.fixture
def opened(tmp_path):
    with contextlib.closing(OwnProcess(backend_for(config_of(tmp_path), TEXTS, "defaultgoal"))) as judge:
        yield judge


def open_gate(tmp_path):
    (tmp_path / "open").touch()


def test_many_questions_are_answered_as_in_this_process_also_after_ctrl_c(opened, tmp_path):
    judge = opened
    open_gate(tmp_path)
    assert judge.model == "gated"
    assert os.getpgid(judge._process.pid) == judge._process.pid  # a terminal's Ctrl-C does not reach it
    os.kill(judge._process.pid, signal.SIGINT)
    asked = [PAIR, *(Question("a" * number) for number in range(9 * TOGETHER + 1))]
    assert list(judge.answers([PAUSE, *asked[:5], PAUSE, PAUSE, *asked[5:]])) == [
        (one, answer_to(one)) for one in asked
    ]
    assert list(judge.answers([])) == list(judge.answers([PAUSE])) == []


def test_a_pause_does_not_wait_for_answers(opened, tmp_path):
    found = []

    def questions():
        yield from [PAIR, PAUSE, PAUSE]
        open_gate(tmp_path)  # never reached if a pause waited
        while not found:
            yield PAUSE
        yield PAIR.turned

    for question, _ in opened.answers(questions()):
        found.append(question)
    assert found == [PAIR, PAIR.turned]


def test_it_ends_with_its_parent_also_while_it_works(tmp_path):
    """Its parent's output is closed only when both have ended."""
    code = f"""if True:
        from own_process_test import TEXTS, OwnProcess, backend_for, config_of, until
        judge = OwnProcess(backend_for(config_of({str(tmp_path)!r}), TEXTS, "defaultgoal"))
        list(judge.answers(until({str(tmp_path / "busy")!r})))
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=False)
    assert done.returncode == 7


def until(path):
    """Asks one question, and ends the process once `path` exists."""
    yield PAIR
    while not os.path.exists(path):
        yield PAUSE
    os._exit(7)


def test_an_error_of_its_code_ends_the_training_that_asks(tmp_path):
    """It would come again, whereas a process that died is started again."""
    for file in ("exit", "open"):
        (tmp_path / file).touch()
    with contextlib.closing(open_stream(config_of(tmp_path), TEXTS, "defaultgoal", 0, at_once=True)) as judge:
        judge.plan([Item(0, 0, PAIR)], NO_LIMIT)
        with pytest.raises(UserCodeError, match=r"the judge 'gated_judge:Gated' failed with SystemExit: 0 \(--config"):
            wait_for(judge.answers)
        assert not judge.failures


def test_an_online_reward_opens_it_again_when_it_dies(tmp_path):
    with contextlib.closing(open_stream(config_of(tmp_path), TEXTS, "defaultgoal", 0, at_once=True)) as judge:
        questions = [Item(number, 0, Question(f"A {number}.")) for number in range(3)]
        judge.plan(questions, NO_LIMIT)
        wait_for((tmp_path / "busy").exists)
        os.kill(judge._asking.annotator._process.pid, signal.SIGKILL)
        wait_for(lambda: judge.failures)
        open_gate(tmp_path)
        found = {item.number: one.answer for item, one in collect(judge, 3)}
        assert found == {item.number: answer_to(item.question) for item in questions}

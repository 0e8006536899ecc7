"""Code of the user's that raises what is no `Exception`: the program names it, and a real Ctrl-C remains one."""

import signal
import sys

import jax
import pytest
from gym_world_test import Walk

from motif_jax.envs.own_code import PACKAGE, as_failure, reported
from motif_jax.envs.worlds import check_world
from motif_jax.launch import stopped_by_signals
from motif_jax.structs import Interrupted, UserCodeError

pytestmark = pytest.mark.quick


class Odd(BaseException):
    """An exception of the user's own."""


RAISED = [SystemExit(0), KeyboardInterrupt(), Odd(), StopIteration()]
ENV = {"world": "own_code_test:Leaving", "max_episode_steps": 20}
PLACES = ("__init__", "make", "reset", "step", "caption", "measure", "succeeded", "screen", "check", "game")


class Leaving(Walk):
    """Raises `error` in the method `place`."""

    place, error = "", None

    def fail(self, place):
        if place == type(self).place:
            raise self.error

    def __init__(self, **options):
        self.fail("__init__")
        super().__init__(goal=1, **options)

    def make(self):
        self.fail("make")
        env = super().make()
        reset, step = env.reset, env.step
        env.reset = lambda **options: [self.fail("reset"), reset(**options)][1]
        env.step = lambda action: [self.fail("step"), step(1)][1]
        return env


for name in set(PLACES) - {"__init__", "make", "reset", "step"}:

    def failing(self, *args, name=name, **options):
        self.fail(name)
        return getattr(Walk, name)(self, *args, **options)

    setattr(Leaving, name, failing)


@pytest.fixture(params=RAISED, ids=repr)
def leaving(request, monkeypatch):
    """Sets where and when the world raises the exception of this test; signals are handled as the program does."""

    def leave(place):
        monkeypatch.setattr(Leaving, "place", place)
        monkeypatch.setattr(Leaving, "error", request.param)

    with stopped_by_signals():
        yield leave


def named(caught):
    message = str(caught.value)
    return message.startswith("the world 'own_code_test:Leaving' failed with ") and "(--config.env.world)" in message


def test_exceptions_outside_exception_name_the_game(leaving):
    for place in PLACES:
        leaving(place)
        with pytest.raises(UserCodeError) as caught:
            check_world(ENV)
        assert named(caught), place


def test_errors_of_libraries_are_not_attributed_to_the_game():
    def called_by(file):
        code = compile("jax.numpy.zeros(2) + jax.numpy.zeros(3)", file, "exec")
        with pytest.raises(TypeError) as caught:
            exec(code, {"jax": jax})
        error = caught.value
        return as_failure(ENV, error.with_traceback(error.__traceback__.tb_next))  # without the frame of this test

    assert called_by(f"{PACKAGE}/policies/some.py") is None
    assert "failed with TypeError" in str(called_by("/home/jax/numpy/my_game.py"))


def interrupted_in_a_game(answer):
    with reported(ENV):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            answer()
            raise


def test_an_interrupt_passes_through_the_users_code():
    for answer in (lambda: None, lambda: sys.exit(0)):  # some games make another exception of it
        with pytest.raises(Interrupted), stopped_by_signals():
            interrupted_in_a_game(answer)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):  # outside the program
        interrupted_in_a_game(lambda: None)

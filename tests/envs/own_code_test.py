"""Whose error it is, and a real Ctrl-C in a user's code remains one."""

import signal
import sys

import jax
import pytest

from motif_jax.envs.own_code import PACKAGE, as_failure, reported
from motif_jax.launch import stopped_by_signals
from motif_jax.rewards.source import RewardSource
from motif_jax.rewards.sources import RewardSources, Weighted
from motif_jax.structs import Interrupted, UserCodeError

pytestmark = pytest.mark.quick


ENV = {"world": "own_worlds:Corridor", "max_episode_steps": 20}


def test_errors_of_libraries_are_not_attributed_to_the_game():
    def called_by(file):
        code = compile("jax.numpy.zeros(2) + jax.numpy.zeros(3)", file, "exec")
        with pytest.raises(TypeError) as caught:
            exec(code, {"jax": jax})
        error = caught.value
        return as_failure(ENV, error.with_traceback(error.__traceback__.tb_next))  # without the frame of this test

    assert called_by(f"{PACKAGE}policies/some.py") is None
    assert "failed with TypeError" in str(called_by(f"{PACKAGE[:-1]}_games.py"))
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


def test_errors_of_reward_sources_name_the_source():
    class Source(RewardSource):
        pass

    calls = {
        "moments": ({},), "shape": ({"own": {}},), "advance": (None, None), "arrays": (), "facts": (), "figures": (),
        "about": (), "close": (),
    }  # fmt: skip
    for method, arguments in calls.items():
        source = Source()
        setattr(source, method, lambda *args: sys.exit(0))
        sources = RewardSources([Weighted("own", "mine:Source", 1.0, source)])
        with pytest.raises(UserCodeError, match="the reward source 'mine:Source' failed with SystemExit: 0"):
            getattr(sources, method)(*arguments)

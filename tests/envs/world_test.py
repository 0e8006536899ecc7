"""Worlds: those of this package, and a user's own, which may be wrong in many ways; and whose error it is."""

import json
import signal
import sys

import jax
import numpy as np
import pool_test
import pytest
from conftest import refusal
from own_worlds import LENGTH

from benchmarks.random_policy import RandomPolicy
from motif_jax.actors.players import ScriptedPlayers
from motif_jax.actors.pool import ActorPool
from motif_jax.envs.own_code import PACKAGE, as_failure, reported
from motif_jax.envs.world import CAPTIONS, SCREEN_SHAPE, SeedStream, game_seed, is_text, to_row
from motif_jax.envs.worlds import check_world, make_world
from motif_jax.launch import stopped_by_signals
from motif_jax.names import WORLDS
from motif_jax.pages.players import END_NAMES
from motif_jax.replays.replay import END_WORDS
from motif_jax.rewards.source import RewardSource, RewardSources, Weighted
from motif_jax.structs import EndStatus, Interrupted, UserCodeError

pytestmark = pytest.mark.quick
OWN = "own_worlds:Corridor"
BABYAI = {"world": "babyai", "babyai": {"level": "MixedTrainLocal"}}
BUILT_IN = [
    {"world": "nethack"}, {"world": "nethack", "actions": "extended"}, {"world": "nethack", "task": "toy"},
    {"world": OWN}, {"world": "own_gym:Cart"}, BABYAI,
    *({"world": name} for name in WORLDS if name not in ("nethack", "babyai")),
]  # fmt: skip


def play(env, workers: int):
    world = make_world(env)
    keys = tuple(dict.fromkeys(("message", "event_message", *world.reads)))
    with ActorPool(env, keys, num_workers=workers, games_per_worker=2, rollout_length=20, seed=1) as pool:
        played = list(pool_test.play(pool, RandomPolicy(len(world.action_names)), 4))
    return [one.info for *_, ended in played for one in ended], [arrays for _, arrays, _ in played]


# ---- every world


@pytest.mark.parametrize("env", BUILT_IN, ids=str)
def test_the_members_of_every_world_fit_together(env):
    world = check_world(env)  # has all members of the protocol, and no figure of a name that is taken
    assert {*CAPTIONS} <= world.specs.keys()
    assert {*world.reads, *world.pairs, *(f"event_{key}" for key in world.pairs)} <= world.specs.keys()
    assert "random" in world.players
    assert len(set(world.action_names)) == len(world.action_names)
    ScriptedPlayers(",".join(world.players), world, 1)


@pytest.mark.parametrize("env", BUILT_IN, ids=str)
def test_a_game_of_every_world_is_played_again_and_shown(env):
    world, rng = make_world(env), np.random.default_rng(0)
    game, actions = world.game(), rng.integers(2, size=30).tolist()
    if is_text(world.action):
        actions = [to_row(game.draw(chance), world.action.shape[0]) for chance in rng.random(30)]
    seen = []
    for _ in range(2):
        game.reset(game_seed(3, SeedStream.EVALUATE, 5), 5)
        shown = []
        for action in actions:
            if not game.end:
                reward = game.step(action)
                screen = game.screen()
                assert (screen.chars.shape, screen.colors.shape, screen.cursor.shape) == (SCREEN_SHAPE,) * 2 + ((2,),)
                assert screen.chars.dtype == screen.colors.dtype == screen.cursor.dtype == np.uint8
                shown.append((reward, game.message, game.message_count, screen.chars.tobytes()))
        seen.append((shown, game.info()))
    assert seen[0] == seen[1]
    game.close()


# ---- a user's own


@pytest.mark.parametrize("workers", [0, 1])
def test_a_users_world_is_played(workers):
    env = {"world": OWN, "max_episode_steps": 30, "options": json.dumps({"length": LENGTH})}
    episodes, rollouts = play(env, workers)
    assert {type(info.figures[0]) for info in episodes} == {int}
    assert {info.figures[1] for info in episodes} == {0.5}
    assert max(info.steps for info in episodes) <= 30
    for arrays in rollouts:
        message = arrays["event_message"][arrays["terminated"]]
        assert all(bytes(line).startswith(b"You see the light.") for line in message)
        assert np.array_equal(arrays["place"][1:][~arrays["first"][1:]][:, 1], np.ones((~arrays["first"][1:]).sum()))


# ---- bad input


@pytest.mark.parametrize(("env", "message"), [
    ({"world": "nethak"}, r"^unknown world 'nethak' \(--config.env.world\): did you mean 'nethack'\?$"),
    ({"world": "no_such.module:World"}, r"cannot use the world 'no_such.module:World' \(--config.env.world\): No"),
    ({"world": "own_worlds:Corrido"}, r"module 'own_worlds' has no class 'Corrido': did you mean 'Corridor'\?"),
    ({"world": OWN, "options": '{"width": 5}'}, r"cannot be made with .*width.*'width' \(--config.env.options\)"),
    ({"world": "own_worlds:Half"}, r"the world 'own_worlds:Half' has no 'plays', which envs/world.py requires"),
    ({"world": "own_worlds:Counts"}, "has a figure 'steps': the name must not be taken"),
    ({"world": "own_worlds:Letters"}, "'action_names' of the world .* must be a tuple of names, not 'go'"),
    ({"world": "own_worlds:Numbered"}, "has a figure 3: the name must not be taken"),
    ({"world": "own_worlds:Told"}, "'about' of the world .* must be str, not b'a walk'"),
    ({"world": "own_worlds:Elsewhere"}, "'texts' of the world .* must be Path or NoneType, not '/texts'"),
    ({"world": "own_worlds:Narrow"}, "must have the observation 'message' as in CAPTIONS"),
    ({"world": "own_worlds:ListOfFigures"}, r"'figures' of the world .* must be .*, not \['luck'\] "),
    ({"world": "own_worlds:NameOfKind"}, "has a figure 'luck': .* it is a bool, int or float"),
    ({"world": "own_worlds:ListOfSpecs"}, r"'specs' of the world .* must be .*, not \['place'\] "),
    ({"world": "own_worlds:NoSpec"}, r"'place' in 'specs' of the world .* is \(2,\), no ArraySpec "),
    ({"world": "own_worlds:OneReading"}, "'reads' of the world .* must be a tuple of names, not 'place'"),
    ({"world": "own_worlds:Numbers"}, r"'players' of the world .* must be a tuple of names, not \(1,\)"),
    ({"world": "own_worlds:ListOfActions"}, r"'action' of the world .* must be .*, not \['back', 'on'\]"),
    ({"world": "own_worlds:Meant"}, "'luck'.* in 'meanings' of the world .* must be a Meaning .* side is higher"),
    ({"world": "own_worlds:MeantElsewhere"}, "'gold'.* in 'meanings' of the world .* must be a Meaning"),
    ({"world": "own_worlds:Many"}, "the action of the world .* must be CHOICE, .* or the spec of its `action_space`"),
    ({"world": "own_worlds:WrongShape"}, r"the observation 'place' of the world 'wrong' must be of shape \(2,\) and "
     r"type float32, as its spec says, not shape \(3,\) and type float64 \(--config.env.world\)"),
])  # fmt: skip
@pytest.mark.parametrize("workers", [0, 1])
def test_a_wrong_world_is_refused_with_one_sentence(env, message, workers):
    """At once or in its games."""
    refusal(lambda: play(env, workers), match=message)


def test_a_crash_of_the_users_module_has_its_traceback():
    message = "OverflowError: too many corridors"
    with pytest.raises(UserCodeError) as caught:
        make_world({"world": "raises_on_import:World"})
    assert caught.value.sentence.startswith(f"the world 'raises_on_import:World' failed with {message} (--config.env.w")
    assert "raises_on_import.py" in caught.value.details
    assert message in caught.value.details


def test_every_end_of_an_episode_has_words():
    ends = {status.name.lower() for status in EndStatus if status != EndStatus.RUNNING}
    assert {*END_NAMES} == {*END_WORDS} == ends


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


def interrupted_in_a_game(reply):
    with reported(ENV):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            reply()
            raise


def test_an_interrupt_passes_through_the_users_code():
    for reply in (lambda: None, lambda: sys.exit(0)):  # some games make another exception of it
        with pytest.raises(Interrupted), stopped_by_signals():
            interrupted_in_a_game(reply)
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

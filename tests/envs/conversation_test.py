"""Worlds as conversations: the same rewards as the games themselves, and a sentence for what cannot be played."""

import random

import numpy as np
import pytest
from conftest import refusal
from own_gym import ToldWorld

from motif_jax.envs.conversation import LONGEST, MOST_UNKNOWN, Conversation
from motif_jax.envs.world import SeedStream, game_seed
from motif_jax.envs.worlds import make_world
from motif_jax.structs import EndStatus

pytestmark = pytest.mark.quick
TOLD = {"world": "own_gym:ToldWorld"}
WORDS = "crane", "stone", "abide", "is it an animal?", "zzzzz", ""
BABYAI = {"world": "babyai", "babyai": {"level": "GoToLocal", "rewording": "synonyms"}}


def check_conversation(env):
    """The slow way: the game itself, by the numbers of the actions."""
    talk, world, rewards, draw = Conversation(env), make_world(env), [], random.Random(3)
    game, texts = world.game(), [draw.choice(world.action_names or WORDS) for _ in range(60)]
    for seed in (5, 6):
        assert not talk.begin(seed).done
        game.reset(game_seed(seed, SeedStream.TRAIN, 0), 0)
        for text in texts:
            heard = talk.say(f" {text.upper()} " if world.action_names else text)
            expected = game.step(world.action_names.index(text) if world.action_names else text)
            assert (heard.reward, heard.done) == (expected, game.end != EndStatus.RUNNING)
            assert heard.text.isprintable() or "\n" in heard.text
            rewards.append(heard.reward)
            if heard.done:
                break
    assert np.isfinite(rewards).all()
    talk.close()
    game.close()


@pytest.mark.parametrize("env", [BABYAI, *({"world": name} for name in ("nethack", "toy", "wordle"))])
def test_rewards_are_those_of_the_game(env):
    check_conversation(env)


def test_a_text_that_names_no_action_leaves_the_game_as_it_is():
    talk = Conversation({"world": "toy"})
    before = talk.begin(1)
    heard = talk.say("fly")
    assert heard.text.startswith("'fly' is not an action. Answer with one of: ")
    assert heard[1:] == (0.0, False)
    left, other = talk.say("west"), Conversation({"world": "toy"})
    assert other.begin(1) == before
    assert other.say("west") == left
    assert "Answer with one of" in talk.about
    for _ in range(2):  # too many of them end the episode
        assert not any(talk.say("fly").done for _ in range(MOST_UNKNOWN - 1))
        assert not talk.say("west").done
    assert [talk.say("fly").done for _ in range(MOST_UNKNOWN)] == [False] * (MOST_UNKNOWN - 1) + [True]
    refusal(lambda: talk.say("west"), "no episode is running")
    assert not talk.begin(1).done


def test_invalid_seeds_and_texts_are_refused():
    talk = Conversation({"world": "wordle"})
    for seed in (-1, 2**31, "7"):
        refusal(lambda: talk.begin(seed), "a seed is a whole number from 0")
    refusal(lambda: talk.say("crane"), "no episode is running")
    talk.begin(1)
    for text in (None, "a" * (LONGEST + 1), "\ud800"):
        refusal(lambda: talk.say(text), "a text of at most 100,000 Unicode characters")


@pytest.mark.parametrize(
    ("names", "played"),
    [
        (("Go", "go", "stop "), {"Go": 0, " go ": 1, "GO": None, "STOP": 2}),
        (("a", "A", "AB", "Ab", ""), {"a": 0, "A": 1, "ab": None, "AB": 2, "": 4}),
    ],
)
def test_actions_whose_names_differ_by_case_can_all_be_played(monkeypatch, names, played):
    monkeypatch.setattr(ToldWorld, "action_names", names)
    talk = Conversation(TOLD)
    talk.begin(1)
    for text, action in played.items():
        heard = talk.say(text)
        assert ("is not an action" in heard.text) == (action is None), text
        assert action in (None, heard.reward), text


def test_actions_with_the_same_name_are_refused(monkeypatch):
    for names in (("go", " go"), ("go", "go"), ("", " ")):
        monkeypatch.setattr(ToldWorld, "action_names", names)
        assert refusal(lambda: Conversation(TOLD), "two actions of the world").endswith("(--config.env.world)")
    monkeypatch.setattr(ToldWorld, "action_names", (1, 2))
    refusal(lambda: Conversation(TOLD), "must be a tuple of names, not (1, 2)")


def nested(depth, value):
    for _ in range(depth):
        value = [value]
    return value


WRONG = {  # the start of the sentence: sections
    "env must be an object such as ": [None, 5, "wordle", [], [["world", "wordle"]], nested(99_999, 1)],
    "env has no value ": [
        {"wrld": "wordle"}, {5: 1}, {"babyai": 5}, {"babyai": {"x": 1}}, {"nonsense": {}}, {"babyai": {"babyai": {}}},
    ],
    "unknown world ": [{"world": value} for value in (None, {}, {"a": {}}, nested(99_999, 1))],
    "level must be text of ": [{"world": "babyai", "babyai": {"level": {}}}],
    "options must be text of ": [{"world": "wordle", "options": value} for value in ({}, {"words": "small"}, None, [])],
    "options must be a JSON object": [{"world": "wordle", "options": text} for text in ("", "[]", "[" * 999)],
    "max_episode_steps must ": [
        {"world": world, "max_episode_steps": value}
        for world in ("nethack", "own_worlds:EchoWorld") for value in (0, 3.5, True, float("nan"), {})
    ],
    "the actions of the world ": [{"world": "own_gym:AimWorld"}],
    "window must ": [{"world": "babyai", "babyai": {"window": 65}}],
}  # fmt: skip


@pytest.mark.parametrize(("message", "envs"), WRONG.items(), ids=WRONG)
def test_invalid_values_of_a_client_are_refused_with_one_sentence(message, envs):
    for env in envs:
        assert refusal(lambda env=env: Conversation(env), "(--config.env").startswith(message), env

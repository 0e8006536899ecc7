"""Options are parsed into mixtures of rewards, and bad ones are refused with a sentence."""

import numpy as np
import pytest
from conftest import get_config

from motif_jax.envs.settings import make_world
from motif_jax.rewards.options import LENGTHS, find_plan, parse_plan
from motif_jax.stages import train_policy
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
NETHACK, TREASURE = (make_world({"world": world}).specs for world in ("nethack", "treasure"))


def test_options_are_mixtures_of_sources_readings_and_the_game():
    words = "score + learnt:0.1, health:10, down=stairs:20+tests.own:Mine:2, score:3"
    plan = parse_plan(words, "game:0.001+score", "auto", NETHACK)
    assert plan.names == ("score+learnt", "health", "down", "score")
    assert [choice.name for choice in plan.sources] == [
        "event_score", "learnt", "event_health", "event_stairs", "Mine",
    ]  # fmt: skip
    np.testing.assert_allclose(plan.factors, [
        [0, 1, 0.1, 0, 0, 0], [0, 0, 0, 10, 0, 0], [0, 0, 0, 0, 20, 2], [0, 3, 0, 0, 0, 0], [0.001, 1, 0, 0, 0, 0],
    ])  # fmt: skip
    assert plan.lengths == LENGTHS
    assert plan.controller == 4


def test_copies_of_an_option_are_numbered_and_a_fixed_length_is_the_only_one():
    plan = parse_plan("gold,gold:2,gold", "game", "7", TREASURE)
    assert plan.names == ("gold", "gold2", "gold3")
    assert plan.lengths == (7,)


def test_without_options_there_is_no_plan():
    assert parse_plan(" ", "", "auto", TREASURE) is None


@pytest.mark.parametrize(("options", "controller", "length", "sentence"), [
    ("gold", "game", "auto", "a controller chooses among at least two options, not 1: 'gold'"),
    ("gold,stares", "game", "auto", "unknown reward 'stares' (--config.policy.options): did you mean 'stairs'?"),
    ("gold,drawn", "game", "auto", "unknown reward 'drawn' (--config.policy.options)"),
    ("gold,stairs", "", "auto", "a controller needs a reward for its choices, such as game:0.1"),
    ("", "game", "auto", "a controller needs options to choose from"),
    ("gold,stairs", "game:0", "auto", "a controller whose rewards all have the factor 0 learns nothing"),
    ("gold:nan,stairs", "game", "auto", "the factor of a reward must be a number from -1e+06 to 1e+06, not 'nan'"),
    ("gold:1e9,stairs", "game", "auto", "the factor of a reward must be a number from -1e+06 to 1e+06, not '1e9'"),
    ("gold+gold:2,stairs", "game", "auto", "the reward 'event_gold' is named twice in 'gold+gold:2'"),
    ("a=gold,a=stairs,a2=gold", "game", "auto", "two options have the same name"),
    ("2 x=gold,stairs", "game", "auto", "the name of an option has letters, digits and underscores, not '2 x'"),
    ("gold,a.b:C:D:1", "game", "auto", "a reward of your own is written as module:Class, not 'a.b:C:D'"),
    ("gold,stairs", "game", "0", "the length of options must be auto or a number of game steps from 1 to 100,000"),
    ("gold,stairs", "game", "long", "the length of options must be auto or a number"),
    (",".join(["gold"] * 65), "game", "auto", "at most 64 options are possible, not 65"),
])  # fmt: skip
def test_bad_options_are_refused(options, controller, length, sentence):
    with pytest.raises(UserError) as refused:
        parse_plan(options, controller, length, TREASURE)
    assert sentence in str(refused.value)
    assert "--config.policy" in str(refused.value)


@pytest.mark.parametrize(("name", "value", "sentence"), [
    ("algorithm", "ppo", "options are learnt by appo and impala, not by 'ppo'"),
    ("sources", "event_gould:1", None),
    ("options", "gold,nothing.here:Mine", "No module named 'nothing'"),
])  # fmt: skip
def test_other_values_must_fit_options(name, value, sentence):
    config = get_config("options.py", "treasure")
    config.policy[name] = value
    if sentence is None:  # the list of sources has no effect beside options
        train_policy.check(config)
        return
    with pytest.raises(UserError) as refused:
        train_policy.check(config)
    assert sentence in str(refused.value)


def test_a_reading_can_reward_a_policy_without_options():
    config = get_config("options.py", "treasure")
    config.policy.options = config.policy.controller = ""
    config.policy.sources = "event_gold:0.1"
    train_policy.check(config)
    assert find_plan(config) is None
    config.policy.sources = "event_gould:0.1"
    with pytest.raises(UserError, match=r"unknown observation 'event_gould'.*did you mean 'event_gold'"):
        train_policy.check(config)

"""Options are parsed into mixtures of rewards, and bad ones are refused with a sentence."""

import numpy as np
import pytest

from motif_jax.envs.worlds import make_world
from motif_jax.rewards.mixtures import behaviours_of, find_behaviour, mixtures, named
from motif_jax.rewards.options import LENGTHS, parse_plan
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


@pytest.mark.parametrize(("options", "controller", "length", "sentence"), [
    ("gold", "game", "auto", "a controller chooses among at least two options, not 1: 'gold'"),
    ("gold,stares", "game", "auto", "unknown reward 'stares' (--config.policy.options): did you mean 'stairs'?"),
    ("event_gld:1,gold", "game", "auto", "unknown reward 'event_gld' (--config.policy.options): choose from game, "),
    ("a.b:game,gold", "game", "auto", "two rewards have the same name, 'game': 'a.b:game,gold'"),
    ("gold,stairs", "game:0", "auto", "rewards that all have the factor 0 teach nothing: 'game:0' (--config.policy.c"),
    ("controller=gold,stairs", "game", "auto", "an option needs another name than 'controller'"),
    ("gold+a.b:C,d.e:C", "game", "auto", "two rewards have the same name, 'C': 'gold+a.b:C,d.e:C'"),
    ("gold,stairs", "game", "0", "the length of options must be auto or a number of game steps from 1 to 100,000"),
    (",".join(["gold"] * 65), "game", "auto", "at most 64 options are possible, not 65"),
])  # fmt: skip
def test_bad_options_are_refused(options, controller, length, sentence):
    with pytest.raises(UserError) as refused:
        parse_plan(options, controller, length, TREASURE)
    assert sentence in str(refused.value)
    assert "--config.policy" in str(refused.value)


def test_mixtures_are_all_combinations_of_coefficients():
    found = mixtures((0.0, 0.5, 1.0), 2, sum_to_one=False)
    assert len(found) == 9
    assert found[0].tolist() == [0.5, 0.5]  # equal parts, where all coefficients are 0
    assert found[1:4].tolist() == [[0.0, 0.5], [0.0, 1.0], [0.5, 0.0]]
    sums = mixtures((0.0, 0.5, 1.0), 3, sum_to_one=True)
    assert np.allclose(np.sum(sums, 1), 1)
    assert named(("gold", "stairs"), found[3]) == "gold=0.5"


def test_a_mixture_is_paid_by_its_coefficients():
    plan = parse_plan("gold,down=stairs:20", "game:0.1", "8", TREASURE)._replace(coefficients=(0.0, 1.0, 3.0))
    assert plan.controller == 9
    mixture = behaviours_of(plan.record()).index("gold=0.25+down=0.75")
    np.testing.assert_allclose(plan.reward_factors[mixture], [0, 0.25, 15])
    np.testing.assert_allclose(plan.reward_factors[plan.controller], [0.1, 0, 0])


@pytest.mark.parametrize(("text", "weights"), [
    ("gold=1+down=0.25", (0.8, 0.2)), ("down", (0, 1)), (" down = 2 + gold = 2 ", (0.5, 0.5)),
])  # fmt: skip
def test_a_person_sets_any_mixture(text, weights):
    plan = parse_plan("gold,down=stairs:20", "game:0.1", "8", TREASURE)._replace(coefficients=(0.0, 1.0))
    assert find_behaviour(text, plan.record()) == pytest.approx(weights)
    assert find_behaviour("down=2", plan._replace(sum_to_one=False).record()) == (0, 2)

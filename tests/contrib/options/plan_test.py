"""The options of the config: sums of rewards and their mixtures, valid ones and refused ones."""

import numpy as np
import pytest
from conftest import get_config, refusal, viewed

from motif_jax import experiment
from motif_jax.contrib.options.plan import LENGTHS, behaviours_of, find_behaviour, mixtures, named, parse_plan
from motif_jax.envs.worlds import make_world
from motif_jax.learner.algorithms import Appo
from motif_jax.learner.losses import vtrace_targets
from motif_jax.stages import evaluate

pytestmark = pytest.mark.quick
NETHACK, TREASURE = (make_world({"world": world}).specs for world in ("nethack", "treasure"))


def test_options_are_mixtures_of_sources_readings_and_the_game():
    words = "score + learnt:0.1, code:a/way.reward:10, down=stairs:20+tests.own:Mine:2, score:3"
    plan = parse_plan(words, "game:0.001+score+code:a/way.reward", "auto", NETHACK)
    assert plan.names == ("score+learnt", "code_way", "down", "score")
    assert [choice.name for choice in plan.sources] == ["event_score", "learnt", "code_way", "event_stairs", "Mine"]
    np.testing.assert_allclose(plan.factors, [
        [0, 1, 0.1, 0, 0, 0], [0, 0, 0, 10, 0, 0], [0, 0, 0, 0, 20, 2], [0, 3, 0, 0, 0, 0], [0.001, 1, 0, 1, 0, 0],
    ])  # fmt: skip
    assert plan.lengths == LENGTHS
    assert plan.controller == 4


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
    refusal(lambda: find_behaviour("down=1+gold=1+down=0", plan.record()), "'down' is named twice")


AIMED = {
    "env.world": "own_gym:AimWorld", "env.options": '{"actions": "numbers"}', "options.rewards": "a=game,b=game:2",
}  # fmt: skip
ROWS = [
    ({"options.rewards": "gold"}, "among at least two options, all of different names, not 1: 'gold'"),
    ({"options.rewards": "gold2=stairs,gold,gold"}, "all of different names, not 3"),
    ({"options.rewards": "gold,stares"}, "'stares' (--config.options.rewards): did you mean 'stairs'?"),
    ({"options.rewards": "event_gld:1,gold"}, "'event_gld' (--config.options.rewards): choose from game, "),
    ({"options.rewards": "a.b:game,gold"}, "two rewards have the name 'game' in 'a.b:game,gold'"),
    ({"options.rewards": "controller=gold,stairs"}, "and is not 'controller': 'controller=gold'"),
    ({"options.rewards": "gold+a.b:C,d.e:C"}, "two rewards have the name 'C' in 'gold+a.b:C,d.e:C'"),
    ({"options.length": "0"}, "must be auto or a number of game steps from 1 to 99,999"),
    ({"options.controller": "game:0"}, "all have the factor 0 teach nothing: 'game:0' (--config.options.con"),
    ({"options.rewards": "a=gold:0+stairs:0,b=gold"}, "teach nothing: 'gold:0+stairs:0' (--config.options.rew"),
    ({"options.rewards": ""}, "a controller needs options to choose from"),
    ({"policy.algorithm": "ppo"}, "options are learnt by appo and impala and by networks that do not read prompts"),
    (AIMED, "are several choices or numbers, which options cannot choose"),
]


@pytest.mark.parametrize(("values", "said"), ROWS)
def test_options_that_cannot_work_are_refused_in_one_sentence(values, said, tmp_path):
    config = get_config("options.py", "treasure")
    config.update_from_flattened_dict(values)
    refusal(lambda: experiment.check(config.to_dict(), ["train_policy"], tmp_path), said, "--config.")


class Uncorrected(Appo):
    def targets(self, data, values, ratio, settings, acting):
        return vtrace_targets(data, values, ratio * 0 + 1, settings)


class OtherLoss(Appo):
    def policy_loss(self, inputs, settings):
        return -(inputs.log_pi * inputs.advantage * inputs.weight).sum()


def test_options_are_learnt_by_an_algorithm_of_ones_own_if_its_targets_are_those_of_what_acts(tmp_path):
    config = get_config("options.py", "treasure", policy__algorithm=f"{__name__}:OtherLoss")
    experiment.check(config.to_dict(), ["train_policy"], tmp_path)
    config.policy.algorithm = f"{__name__}:Uncorrected"
    refusal(lambda: experiment.check(config.to_dict(), ["train_policy"], tmp_path), "options are learnt by appo and")


def test_options_of_the_policy_that_is_trained_may_be_evaluated(tmp_path):
    config = get_config("options.py", "nethack")
    experiment.check(config.to_dict(), list(config.stages), tmp_path)


def test_an_evaluation_is_of_the_readings_that_paid(tmp_path):
    def stamp(rewards: str) -> str:
        config = get_config("options.py", "treasure", options__rewards=rewards)
        return evaluate.stamp(viewed(config, "evaluate"), tmp_path, evaluate.Contender("random", "", 0, False))

    assert stamp("a=gold,b=stairs") == stamp("a=gold,b=stairs") != stamp("a=gold,b=game")
    assert stamp("a=gold,b=game") != stamp("a=stairs,b=game")

from dataclasses import fields, replace

import jax
import pytest
from conftest import refusal
from linear_policy import make_params, make_rollouts, shape_rewards, unroll

from motif_jax import names
from motif_jax.config.table import table_of
from motif_jax.devices.mesh import make_mesh, map_update
from motif_jax.learner.algorithms import Appo, ClippedSurrogate, OnPolicy
from motif_jax.learner.losses import vtrace_targets
from motif_jax.learner.settings import LearnerSection, Settings, find_algorithm
from motif_jax.learner.update import init_state, make_policy_update
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
CHOICES = {name: row.kind.choices for name, row in table_of(LearnerSection).items() if hasattr(row.kind, "choices")}
ALGORITHMS = [name for name, target in names.ALGORITHMS.items() if target.startswith("motif_jax.learner.")]
ANNEALED = Settings(anneal_learning_rate_to=0.1, anneal_exploration_to=0.3, total_updates=10)


def program(settings: Settings) -> str:
    update = map_update(make_policy_update(unroll, shape_rewards, settings), make_mesh(1), 1, num_constants=1)
    return str(jax.make_jaxpr(update)(init_state(make_params(), settings), (), make_rollouts()))


@pytest.mark.parametrize("name", [field.name for field in fields(Settings)])
def test_every_setting_changes_the_update(name):
    """One that is declared, and then forgotten in the loss or the update, would be taken and have no effect."""
    value = getattr(ANNEALED, name)
    if name in CHOICES:
        others = [choice for choice in (ALGORITHMS if name == "algorithm" else CHOICES[name]) if choice != value]
    elif isinstance(value, bool):
        others = [not value]
    else:
        others = [2 * value or 1]
    for algorithm in ALGORITHMS:
        start = replace(ANNEALED, algorithm=algorithm)
        tried = {program(start), *(program(replace(start, **{name: other})) for other in others)}
        if len(tried) == 1 + len(others):
            return
    pytest.fail(f"{name} changes nothing in learner/update.py and learner/losses.py: {value} is as {others}")


class Untargeted(ClippedSurrogate):
    pass


class Unprepared(OnPolicy):
    pass


class Uncorrected(Appo):
    def targets(self, data, values, ratio, settings, acting):
        return vtrace_targets(data, values, ratio * 0 + 1, settings)


@pytest.mark.parametrize(("name", "missing"), [("Untargeted", "targets"), ("Unprepared", "once_per_update")])
def test_an_algorithm_of_ones_own_has_to_say_where_its_targets_come_from(name, missing):
    with pytest.raises(UserError, match=f"abstract method '?{missing}'?.*--config.policy.algorithm"):
        find_algorithm(f"{__name__}:{name}")


def test_an_algorithm_of_ones_own_learns_from_its_own_targets():
    own = f"{__name__}:Uncorrected"
    assert program(replace(ANNEALED, algorithm=own)) != program(ANNEALED)
    for wrong in (f"{__name__}:replace", "appoo"):
        refusal(lambda: find_algorithm(wrong), match=r"--config\.policy\.algorithm")

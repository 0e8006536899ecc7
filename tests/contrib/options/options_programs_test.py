"""The programs of options: one array each way has the bits of many, and updates lower for GPUs and TPUs."""

import pytest
from lowering_test import A, accelerator, lower_update  # noqa: F401  (a fixture)
from policy_acting_test import check_one_array_each_way, spaced
from small_options import options_of

from motif_jax.contrib.options.acting import Options
from motif_jax.contrib.options.plan import parse_plan

OPTIONS, MIXED = options_of(3, 2, (1, 4)), options_of(3, 2, (1, 4), (0.0, 1.0))


PLAN = parse_plan("game,learnt:0.1", "game", "auto", {})


@pytest.mark.quick
@pytest.mark.parametrize("acting", [OPTIONS, MIXED], ids=["options", "mixtures"])
def test_one_array_each_way_has_the_bits_of_many(acting, monkeypatch):
    check_one_array_each_way(spaced(3 + acting.more_outputs, acting=acting), monkeypatch)


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize(("network", "plan"), [("general", PLAN), ("small", PLAN._replace(coefficients=(0.0, 1.0)))])
def test_the_update_with_options_lowers(network, plan):
    acting = Options({"num_actions": A, "options": plan.record()})
    acting.plan = plan
    lower_update(network, "float32", "appo", acting=acting)

"""The plan of hosts against trainings that were measured on 16 cores and a GPU (docs/results/speed.md)."""

import pytest

from benchmarks.hosts import HERE, plan


@pytest.mark.quick
@pytest.mark.parametrize(("steps", "busy"), [(109_428, 0.71), (100_160, 0.73), (81_200, 0.83)])
def test_the_plan_has_the_rates_of_measured_trainings(steps, busy):
    # 15 workers of 128 games on the learner's host: as hosts of one core, without Ray between
    planned = plan(15, 1, 128, 15 * busy / steps, host=(0.0, 0.0), thread=HERE, latency=0.0)
    assert planned.steps == pytest.approx(steps, rel=0.02)
    assert planned.used["games"] == pytest.approx(busy, abs=0.02)


@pytest.mark.quick
def test_more_hosts_play_more_until_the_acting_thread_is_full():
    rates = [plan(hosts, 16, 128, 1e-4) for hosts in (1, 2, 4, 10, 30, 100)]
    assert sorted(rate.steps for rate in rates) == [rate.steps for rate in rates]
    assert rates[0].binds == "games"
    assert rates[-1].binds == "acting thread"
    assert all(share <= 1 for rate in rates for share in rate.used.values())

"""The audit as an instrument: it finds what is planted in a simulated experiment, and nothing where all is well.

Each kind of error touches a tenth of the answers or of the pay (a loop more: three tenths of the episodes, as a tenth
is what is tolerated). Ten experiments each, with the seeds 0 to 9.
"""

import numpy as np
import pytest
from simulated import Simulated, Wrong

from motif_jax.contrib.audit.findings import LEVEL, Check, Suspicion, binomial_tail, conclude, holm, normal_tail

SEEDS = 10
ERRORS = {  # by the check that must find it
    "answers at random": (Wrong(flips=0.1), {"both orders"}),
    "the same wrong answer each time": (Wrong(stubborn_flips=0.1), {"triples"}),
    "ties at random": (Wrong(ties=0.1), {"both orders"}),
    "the first is preferred": (Wrong(first_bias=0.1), {"both orders"}),
    "unreadable answers": (Wrong(unreadable=0.2), {"readable answers"}),
    "an exploit": (Wrong(exploit=0.1), {"pay for neutral captions"}),
    "an exploit, judged by answers": (Wrong(exploit=0.1, asked=True), {"pay for neutral captions"}),
    "a loop": (Wrong(loop=0.3), {"loops"}),
    "a small step that is paid like the best": (Wrong(inflated="finds a door"), {"inflation"}),
    "a good event that is disliked": (Wrong(inverted="hits"), {"inversions"}),
    "a bad event that is liked": (Wrong(inverted="is bitten"), {"inversions"}),
    "an agent that stands where it is paid": (Wrong(held=0.1), {"held pay"}),
    "an agent that plays worse than random play": (Wrong(skill=-0.2), {"worse than random play"}),
    "a judge that is wrong in a quarter of the questions": (Wrong(stubborn_flips=0.25), {"second opinion"}),
    "an agent that learns only the exploit": (Wrong(exploit=0.6, skill=0.0), {"pay for neutral captions", "loops"}),
}  # fmt: skip


def found_by(wrong: Wrong, seed: int) -> set[str]:
    return {one.check for one in Simulated(wrong, seed).audit().found}


@pytest.mark.parametrize("name", ERRORS)
def test_nine_of_ten_errors_are_found(name):
    wrong, checks = ERRORS[name]
    assert sum(checks <= found_by(wrong, seed) for seed in range(SEEDS)) >= 9


@pytest.mark.parametrize(
    "wrong", [Wrong(), Wrong(asked=True), Wrong(skill=0.15), Wrong(noise=0.25), Wrong(flips=0.01)],
    ids=["rules", "asked", "a weak agent", "a reward with more noise", "a judge with a few slips"],
)  # fmt: skip
def test_at_most_one_report_of_ten_has_a_false_alarm(wrong):
    assert sum(bool(found_by(wrong, seed)) for seed in range(SEEDS)) <= 1


def test_a_judge_that_answers_nothing_is_told_and_the_rest_stands():
    findings = Simulated(Wrong(unreadable=1.0, exploit=0.2), 0).audit()
    assert findings.found[0].sentence.startswith("the judge answers nothing: none of its")
    assert "pay for neutral captions" in {one.check for one in findings.found}  # by rules
    skipped = {check.name: check.skipped for check in findings.skipped}
    assert skipped["both orders"] == "0 pairs have answers in both orders, and 20 are needed"
    assert {"repeated questions", "triples", "whole episodes", "inversions"} <= skipped.keys()


def test_holm_keeps_the_order_and_multiplies_by_what_is_left():
    # Sorted 0.01, 0.02, 0.04 times 3, 2, 1: 0.03, 0.04, 0.04, never falling.
    assert holm([0.04, 0.01, 0.02], 3) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([], 0) == []
    assert holm([0.01], 4) == pytest.approx([0.04])  # the lowest of four
    checks = [Check("a", suspicions=(Suspicion("x", "y", 0.2, 0.03), Suspicion("z", "y", 0.1, 0.001))), Check("b")]
    findings = conclude(checks)
    assert [one.sentence for one in findings.found] == ["x", "z"]
    assert max(one.p for one in findings.found) <= LEVEL
    assert [check.name for check in findings.clear] == ["b"]
    assert not conclude([Check("a", suspicions=(Suspicion("x", "y", 0.2, 0.03),), tested=2)]).found  # 0.03 * 2 > 0.05


def test_tails_are_those_of_the_distributions():
    # Two or more of three fair coins: 4 of 8.
    assert binomial_tail(2, 3, 0.5) == pytest.approx(0.5)
    assert binomial_tail(0, 3, 0.1) == 1.0
    assert binomial_tail(3, 3, 0.1) == pytest.approx(0.001)
    assert normal_tail(0) == 0.5
    assert normal_tail(1.959964) == pytest.approx(0.025, abs=1e-6)
    exact, close = binomial_tail(120, 2000, 0.05), binomial_tail(120.0, 2001, 0.05)
    assert close == pytest.approx(exact, rel=0.3)
    assert np.isfinite(binomial_tail(90_000, 100_000, 0.5))

"""From probabilities of tokens to an answer."""

import math

import pytest

from motif_jax.annotation.verdict_tokens import shares, to_answer, verdict_of_token

pytestmark = pytest.mark.quick


def test_spellings_of_a_verdict():
    assert [verdict_of_token(token) for token in ("1", " 2", "▁1", "Ġ0", "(2", '"1')] == ["1", "2", "1", "0", "2", "1"]
    assert [verdict_of_token(token) for token in ("12", "", "(", "one", "None", "3")] == [None] * 6


def test_spellings_are_added_up():
    found = shares([("1", math.log(0.4)), (" 1", math.log(0.1)), ("2", math.log(0.2)), ("I", math.log(0.3))])
    assert found == pytest.approx({"1": 0.5, "2": 0.2, "0": 0.0})


def test_neither_counts_half_and_the_mass_is_kept():
    # (0.2 + 0.1 / 2) / (0.5 + 0.2 + 0.1) = 0.25 / 0.8
    answer = to_answer({"1": 0.5, "2": 0.2, "0": 0.1}, 300, 256, 1)
    assert answer.yes == pytest.approx(0.3125)
    assert answer.mass == pytest.approx(0.8)
    assert answer[3:6] == (300, 256, 1)


@pytest.mark.parametrize(
    "found", [{}, {"1": 0.0, "2": 0.0, "0": 0.0}, {"1": 1e-9}, {"1": float("nan"), "2": 0.1, "0": 0.0}]
)
def test_a_model_that_gives_no_verdict_has_given_none(found):
    answer = to_answer({"1": 0.0, "2": 0.0, "0": 0.0} | found, 1, 0, 1)
    assert answer.yes is None
    assert "no verdict" in answer.said

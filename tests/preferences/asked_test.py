"""Answers in one or both orders, and the labels that follow."""

import numpy as np
import pytest

from motif_jax.preferences.asked import Asked

pytestmark = pytest.mark.quick
NAN = float("nan")


def take(asked: Asked, *answers: tuple[int, bool, float]) -> int:
    numbers, turned, prob = zip(*answers, strict=True)
    return asked.take(np.array(numbers), np.array(turned), np.array(prob))


def test_both_orders_are_averaged_and_one_is_not_enough():
    asked = Asked(10, np.array([True, True, False]))
    wanted = np.ones(3, bool)
    assert list(asked.missing(np.flatnonzero(wanted))) == [
        (10, False),
        (10, True),
        (11, False),
        (11, True),
        (12, False),
    ]
    assert take(asked, (10, False, 0.9), (10, True, 0.3), (11, True, 0.2), (12, False, 1.0)) == 4
    # (0.9 + (1 - 0.3)) / 2 = 0.8
    np.testing.assert_allclose(asked.labels(), [0.8, NAN, 1.0], rtol=1e-6)
    assert list(asked.missing(np.flatnonzero(wanted))) == [(11, False)]
    np.testing.assert_allclose(asked.both_answers(), [[0.9, 0.7]], rtol=1e-6)


def test_what_is_not_wanted_or_not_ours_is_left_aside():
    asked = Asked(10, np.array([False, False]))
    assert take(asked, (-1, False, 1.0), (9, False, 1.0), (12, False, 1.0), (11, False, NAN)) == 0
    assert np.isnan(asked.labels()).all()
    assert list(asked.missing(np.array([0]))) == [(10, False)]


def test_labels_of_an_earlier_run_stand():
    asked = Asked(5, np.array([True, True]))
    asked.know(np.array([6, 5]), np.array([0.25, NAN]))
    np.testing.assert_allclose(asked.labels(), [NAN, 0.25])
    assert list(asked.missing(np.arange(2))) == [(5, False), (5, True)]

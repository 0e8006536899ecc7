"""Labels to learn from."""

import numpy as np
import pytest

from motif_jax.rewards import labels
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
NAN = float("nan")


def test_targets():
    codes = np.array([0, 1, 2, 3], np.int8)
    np.testing.assert_array_equal(labels.soft_target(codes, None), [0, 1, 0.5, NAN])
    prob = np.array([0.1, NAN, 0.55, NAN], np.float32)
    np.testing.assert_allclose(labels.soft_target(codes, prob), [0.1, 1, 0.55, NAN])


def test_several_annotators_are_mixed_and_all_must_know():
    weights = labels.parse_annotators("a:3,b")
    assert weights == {"a": 0.75, "b": 0.25}
    mixed = labels.mix({"a": np.array([0, 1, NAN, 0.5]), "b": np.array([1, 1, 0, NAN])}, weights)
    np.testing.assert_allclose(mixed, [0.25, 1, NAN, NAN])
    assert labels.parse_annotators("") == {}
    assert labels.parse_annotators("a") == {"a": 1.0}


def test_a_tie_of_all_annotators_stays_one():
    """Weights of 1/7, 2/7, 3/7 and 1/7 add up to 1 + 1.2e-7 in float32."""
    weights = labels.parse_annotators("a:1,b:2,c:3,d:1")
    targets = {name: labels.soft_target(np.array([2, 0, 1], np.int8), None) for name in weights}
    assert labels.mix(targets, weights).tolist() == [0.5, 0, 1]


@pytest.mark.parametrize("text", ["a:0", "a:x", "a,a", "a:nan", ".."])
def test_what_lists_no_annotators_is_refused(text):
    with pytest.raises(UserError, match="--config.reward.annotators"):
        labels.parse_annotators(text)


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ([NAN, NAN], "no pair has a label"),
        ([0.5, NAN, 0.5], "all 2 labels are ties"),
        ([0, 0.5], "all 1 preferences are for the first moment"),
    ],
)
def test_labels_that_teach_nothing_are_refused(target, sentence):
    with pytest.raises(UserError, match=sentence + r".*'mine' \(--config.reward.annotators\)"):
        labels.check_targets(np.array(target, np.float32), "mine")
    labels.check_targets(np.array([0, 1, 0.5, NAN], np.float32), "mine")


def test_the_split_is_that_of_the_seed():
    known = np.flatnonzero(np.arange(1000) % 7)
    split = labels.split_rows(known, 0.2, 5)
    assert sorted([*split.train, *split.validation]) == known.tolist()
    assert len(split.validation) == round(0.2 * len(known))
    again, other = labels.split_rows(known, 0.2, 5), labels.split_rows(known, 0.2, 6)
    assert (split.train == again.train).all()
    assert (split.train != other.train).any()

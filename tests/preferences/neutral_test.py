"""Questions about a moment without a message, where pairs rarely show one."""

import numpy as np
import pytest
from small_dataset import write_dataset

from motif_jax.preferences.neutral import ask_about, captions_to_ask, neutral_pairs
from motif_jax.preferences.store import PairDataset

pytestmark = pytest.mark.quick
COMMON = [("You kill the newt!", "It's a wall.")] * 150 + [("It's a wall.", "It's a wall.")] * 49


def captions(path, *more, length=1):
    pairs = [[[text] + [""] * (length - 1) for text in pair] for pair in [*COMMON, *more]]
    return PairDataset(write_dataset(path / "dataset", pairs)).captions()


def test_frequent_captions_are_asked_about_where_neutral_moments_are_rare(tmp_path):
    table, ids = captions(tmp_path, ("", "You die..."))
    # One of 200 pairs is below 1 %, and 1 % of 200 pairs are 2: those seen 249 and 150 times.
    assert [table.text(at) for at in captions_to_ask(table, ids)] == ["It's a wall.", "You kill the newt!"]


@pytest.mark.parametrize("more", [(), (("", "You die..."),) * 3], ids=["no neutral moment", "enough of them"])
def test_elsewhere_nothing_is_asked(tmp_path, more):
    assert len(captions_to_ask(*captions(tmp_path, *more))) == 0


def test_both_orders_are_asked_and_pairs_show_the_neutral_moment_on_either_side(tmp_path):
    table, ids = captions(tmp_path, ("", "You die..."), length=3)
    answers = {"It's a wall.": 0.4, "You kill the newt!": 0.9}

    def asks(pairs):  # with a liking of 0.1 for what is shown second, and none that can be read of "You die..."
        better = [answers.get(second, np.nan) if second else 1 - answers.get(first, np.nan) for first, second in pairs]
        return np.array(better) + 0.1

    asked = [table.messages.tolist().index(list(table.messages[at])) for at in captions_to_ask(table, ids)]
    die = next(at for at in range(len(table)) if table.text(at) == "You die...")
    ask_about(table, np.array([*asked, die]), asks, tmp_path)
    more, prob = neutral_pairs(tmp_path, table, ids)
    # 1 % of 200 pairs: in proportion 249 to 150 these are 1.2 and 0.8, so one of each.
    assert [[[table.text(at) for at in moment] for moment in pair] for pair in more] == [
        [["It's a wall.", "", ""], ["", "", ""]],
        [["", "", ""], ["You kill the newt!", "", ""]],
    ]
    assert prob.tolist() == pytest.approx([0.6, 0.9])

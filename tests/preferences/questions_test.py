"""Distinct questions, against a dictionary of sets; and those about a moment without a message."""

import numpy as np
import pytest
from small_dataset import EVENTS, write_dataset

from motif_jax.preferences import questions as asking
from motif_jax.preferences.questions import Questions, caption, captions_to_ask
from motif_jax.preferences.store import PairDataset

pytestmark = pytest.mark.quick


def stats(**values) -> list[int]:
    line = [0] * 27
    for name, value in values.items():
        line[{"depth": 12, "gold": 13, "hp": 10, "max_hp": 11, "level": 18, "hunger": 21}[name]] = value
    return line


@pytest.mark.parametrize(("messages", "text"), [
    (["a", "a", "", "a"], "a (x2)\na"), (["", ""], ""), (["a", "b", "b", "b", "", "", "c"], "a\nb (x3)\nc"),
])  # fmt: skip
def test_captions(messages, text):
    assert caption(messages) == text


def test_captions_with_the_bottom_line():
    first = stats(depth=1, gold=5, hp=9, max_hp=12, level=2, hunger=1)
    lines = [first, stats(depth=2, hunger=2), stats(depth=3, hunger=6)]
    assert asking.status(lines[0]) == "Dlvl:1 $:5 HP:9 (12) Xp:2 "
    assert caption(["a", "a", "b"], lines) == "a (x2) Dlvl:1 $:5 HP:9 (12) Xp:2 \nb Dlvl:3 $:0 HP:0 (0) Xp:0 Starved"
    assert caption(["", "b", ""], lines) == "b Dlvl:2 $:0 HP:0 (0) Xp:0 Hungry"
    assert caption(["", ""], lines) == "Dlvl:1 $:5 HP:9 (12) Xp:2 "  # nothing was said: the first step's status
    assert asking.status(stats(hunger=9)) == "Dlvl:0 $:0 HP:0 (0) Xp:0 "


@pytest.mark.parametrize("kind", asking.KINDS)
@pytest.mark.parametrize("length", [1, 3])
def test_pairs_that_ask_the_same_are_one_question(tmp_path, kind, length, monkeypatch):
    monkeypatch.setattr("motif_jax.preferences.questions.ROWS", 64)
    events = EVENTS if length == 1 else EVENTS[5:9]  # few, so that long moments are alike, too
    drawn = np.random.default_rng(1).integers(len(events), size=(300, 2, length))
    pairs = [[[events[number] for number in moment] for moment in pair] for pair in drawn]
    dataset = PairDataset(write_dataset(tmp_path / "dataset", pairs))
    questions = Questions(dataset, kind)

    # The slow way.
    texts = []
    for row, pair in enumerate(pairs):
        lines = dataset.data["blstats"][row].tolist()
        texts.append([caption(m, b if kind == "msg_minbl" else None) for m, b in zip(pair, lines, strict=True)])
    asked = [frozenset(pair) for pair in texts]
    distinct = {pair for pair in asked if len(pair) == 2}

    assert len(questions) == len(distinct)
    assert {frozenset(questions.text(number)) for number in range(len(questions))} == distinct
    for row, (first, second) in enumerate(texts):
        number = questions.of_pair[row]
        assert (number == -1) == (first == second)
        if number >= 0:
            shown = questions.text(number)
            assert (shown[::-1] if questions.turned[row] else shown) == (first, second)
    assert questions.counts.tolist() == [asked.count(frozenset(questions.text(n))) for n in range(len(questions))]


COMMON = [("You kill the newt!", "It's a wall.")] * 150 + [("It's a wall.", "It's a wall.")] * 49


def captions(path, *more, length=1):
    pairs = [[[text] + [""] * (length - 1) for text in pair] for pair in [*COMMON, *more]]
    return PairDataset(write_dataset(path / "dataset", pairs)).captions()


@pytest.mark.parametrize("neutral", [0, 1, 3])
def test_frequent_captions_are_asked_about_where_neutral_moments_are_rare_and_exist(tmp_path, neutral):
    table, ids = captions(tmp_path, *[("", "You die...")] * neutral)
    # One of 200 pairs is below 1 %, and 1 % of 200 pairs are 2: those seen 249 and 150 times.
    wanted = ["It's a wall.", "You kill the newt!"] if neutral == 1 else []
    assert [table.text(at) for at in captions_to_ask(table, ids)] == wanted


def test_both_orders_are_asked_and_pairs_show_the_neutral_moment_on_either_side(tmp_path):
    table, ids = captions(tmp_path, ("", "You die..."), length=3)
    asked = [table.messages.tolist().index(list(table.messages[at])) for at in captions_to_ask(table, ids)]
    die = next(at for at in range(len(table)) if table.text(at) == "You die...")
    # With a liking of 0.1 for what is shown second, and an answer about "You die..." that cannot be read.
    answers = [[0.4 + 0.1, 0.4 - 0.1], [0.9 + 0.1, 0.9 - 0.1], [np.nan, 0.1]]
    asking.write_neutral(tmp_path, np.array([*asked, die]), np.array(answers))
    more, prob = asking.neutral_pairs(tmp_path, table, ids)
    # 1 % of 200 pairs: in proportion 249 to 150 these are 1.2 and 0.8, so one of each.
    assert [[[table.text(at) for at in moment] for moment in pair] for pair in more] == [
        [["It's a wall.", "", ""], ["", "", ""]],
        [["", "", ""], ["You kill the newt!", "", ""]],
    ]
    assert prob.tolist() == pytest.approx([0.6, 0.9])

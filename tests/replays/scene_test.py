"""One moment on a sheet: everything is said, at any size, about any replay."""

import numpy as np
import pytest
from real_replay import NEEDED, made, play

from motif_jax.replays.canvas import Canvas
from motif_jax.replays.replay import COLUMNS, ROWS
from motif_jax.replays.scene import BESIDE, HELP, MESSAGES, View, compose
from motif_jax.replays.story import Story, describe

WORDS = ["Hello Agent!", "You see here a gold piece.", "You see here a gold piece.", "You die..."]


@pytest.fixture(scope="module")
def story() -> Story:
    replay = made(WORDS, reward=[-0.01, 20, 0], intrinsic=[0.5, 0.25, 0], action_names=["north", "far ne", "kick"])
    replay.probability[1], replay.value[1] = 0.42, 3.25
    return describe(replay)


def text(story: Story, view: View, rows: int, columns: int) -> list[str]:
    return compose(story, view, rows, columns, keys=True).text()


def words(line: str) -> str:
    """What stands in a line, without rules and gaps."""
    return " ".join(line.strip(" ─│").split())


@pytest.mark.quick
def test_below_the_game_stands_what_a_moment_is_worth(story):
    lines = text(story, View(1, True, 20.0), NEEDED[1] + 1, 80)[ROWS:]
    assert words(lines[0]) == "policy-7680, episode 17 (best) · killed by a jackal"
    assert words(lines[1]) == "▶ 20/s step 1 of 3 north → far ne 42% value +3.25"
    assert words(lines[2]) == "message You see here a gold piece."
    assert words(lines[3]) == "game -0.010 sum -0.010 learnt +1.00 seen 1x → +0.50 sum +0.50"
    assert set(lines[4].strip()) == {"·", "█", "▆"}  # sqrt(0.25 / 0.5) of 8 is 5.7
    assert "q quit" in lines[5]


@pytest.mark.quick
def test_the_probabilities_of_all_actions_are_shown_where_they_are_known(story):
    odds = np.array([[0.5, 0.25, 0.25], [0.58, 0.42, 0.0], [0.0, 0.0, 1.0]], np.float32)
    known = describe(story.replay._replace(odds=odds))
    lines = text(known, View(1), NEEDED[1] + 1, 80)[ROWS:]
    assert words(lines[4]) == "north 58% far ne 42% kick 0%"
    facts = [words(line[COLUMNS + 3 :]) for line in text(known, View(1), BESIDE[1] + 1, BESIDE[0])]
    (north,), (far,) = ([line for line in facts if line.startswith(name + " █")] for name in ("north", "far ne"))
    assert north.endswith(" 58%")
    assert north.count("█") > far.count("█") > 10
    assert "kick 0%" in facts
    assert "last rewards" not in "".join(facts)
    text(known, View(3), BESIDE[1] + 1, BESIDE[0])  # at the end no action follows


def test_no_size_is_too_small_for_any_of_it():
    real, short = describe(play()), describe(made([""], reward=[]))
    for rows in (1, 3, 24, 29, 60):
        for columns in (1, 7, 80, 124, 200):
            for over in ("", HELP, MESSAGES):
                for which, frame in ((real, 40), (short, 0)):
                    assert compose(which, View(frame, over=over), rows, columns, keys=True).chars.shape == (
                        rows,
                        columns,
                    )


@pytest.mark.quick
def test_what_somebody_elses_file_says_is_only_text():
    evil = "\x1b]0;evil\x07\n\x9b2J"
    replay = made([evil] * 3, reward=[0, 1], player=evil, cause=evil, chosen=[evil], action_names=[evil] * 2)
    for view in (View(1), View(2, over=MESSAGES)):
        for size in ((30, 80), (40, 140)):
            sheet: Canvas = compose(describe(replay), view, *size, keys=True)
            codes = set(sheet.chars.ravel().tolist())
            assert not codes & {*range(32), *range(127, 160)}

"""One moment on a sheet: everything is said, at any size, about any replay."""

import numpy as np
import pytest
from real_replay import NEEDED, Emulator, made, play

from motif_jax.replays.replay import ROWS, Story, describe, summary
from motif_jax.replays.scene import HELP, MESSAGES, TEXT, Canvas, View, changes, compose
from motif_jax.screens import screen_text


@pytest.fixture(scope="module")
def story() -> Story:
    said = ["Hello Agent!", "You see here a gold piece.", "You see here a gold piece.", "You die..."]
    replay = made(said, reward=[-0.01, 20, 0], intrinsic=[0.5, 0.25, 0], action_names=["north", "far ne", "kick"])
    replay.probability[1], replay.value[1] = 0.42, 3.25
    return describe(replay)


def words(line: str) -> str:
    """What stands in a line, without rules and gaps."""
    return " ".join(line.strip(" ─│").split())


@pytest.mark.quick
def test_status_lines_below_the_game(story):
    lines = compose(story, View(1, True, 20.0), NEEDED[1] + 1, 80, keys=True).text()[ROWS:]
    assert words(lines[0]) == "policy-7680, episode 17 (best) · killed by a jackal"
    assert words(lines[1]) == "▶ 20/s step 1 of 3 north → far ne 42% value +3.25"
    assert words(lines[2]) == "message You see here a gold piece."
    assert words(lines[3]) == "game -0.010 sum -0.010 learnt +1.00 seen 1x → +0.50 sum +0.50"
    assert set(lines[4].strip()) == {"·", "█", "▆"}  # sqrt(0.25 / 0.5) of 8 is 5.7
    assert "q quit" in lines[5]


def test_sheets_of_any_size():
    real, short = describe(play()), describe(made([""], reward=[]))
    for rows in (1, 3, 24, 29, 60):
        for columns in (1, 7, 80, 124, 200):
            for over in ("", HELP, MESSAGES):
                for which, frame in ((real, 40), (short, 0)):
                    sheet = compose(which, View(frame, over=over), rows, columns, keys=True)
                    assert sheet.chars.shape == (rows, columns)


@pytest.mark.quick
def test_texts_of_other_peoples_replays_are_escaped():
    evil = "\x1b]0;evil\x07\n\x9b2J"
    replay = made([evil] * 3, reward=[0, 1], player=evil, cause=evil, chosen=[evil], action_names=[evil] * 2)
    for view in (View(1), View(2, over=MESSAGES)):
        for size in ((30, 80), (40, 140)):
            sheet: Canvas = compose(describe(replay), view, *size, keys=True)
            codes = set(sheet.chars.ravel().tolist())
            assert not codes & {*range(32), *range(127, 160)}


# ---- what is said about an episode


@pytest.mark.quick
def test_sums_are_those_of_all_steps_so_far_and_the_summary_lists_messages_by_frequency():
    said = ["Hello Agent!", "", "You see here a gold piece.", "", "$ - 7 gold pieces."]
    story = describe(made(said, reward=[-1, 2, 0, 7], intrinsic=[0, 1.5, 0, 2]))
    assert story.earned.tolist() == [0, -1, 1, 1, 8]
    assert story.gained.tolist() == [0, 0, 1.5, 1.5, 3.5]
    assert story.learnt
    assert story.rewarded.tolist() == [2, 4]
    lines = summary(story, 2).splitlines()
    assert lines[0] == "policy-7680, episode 17: killed by a jackal after 4 steps"
    assert lines[1] == "return of the game +8.00, learnt +3.50, score 12, max depth 1"
    assert lines[3].split() == ["times", "reward", "message"]
    assert [line.split() for line in lines[4:]] == [
        ["2", "0", "(none)"], ["1", "+3.00", "You", "see", "here", "a", "gold", "piece."],
    ]  # fmt: skip


@pytest.mark.quick
def test_changes_turn_any_sheet_into_any_other():
    rng = np.random.default_rng(0)
    terminal, before = Emulator(7, 19), None
    for share in (1, 0.02, 0.3, 0, 0.9, 0.05):
        sheet = Canvas(7, 19)
        if before is not None:
            sheet.chars[:], sheet.styles[:] = before.chars, before.styles
        changed = rng.random((7, 19)) < share
        sheet.chars[changed] = rng.choice([ord(letter) for letter in " ab@▁│"], changed.sum())
        sheet.styles[changed] = rng.integers(32, size=changed.sum())
        terminal.feed(changes(before, sheet))
        terminal.assert_shows(sheet)
        before = sheet
    assert changes(before, before) == ""


@pytest.mark.quick
def test_texts_become_one_line_without_control_sequences():
    sheet = Canvas(1, 40)
    sheet.put(0, 0, ("a\x1b[2Jb\x07c\x9b1md\ne\x7ff\u200bg\u202eh漢i\u0301j\xad", TEXT))
    assert sheet.text() == ["a [2Jb c 1md e f g h i j".ljust(40)]
    assert changes(None, sheet).count("\033") == 5  # style, clear, place, style, style: all of them ours


@pytest.mark.quick
def test_screens_of_games_have_no_control_sequences():
    codes = np.arange(256, dtype=np.uint8).reshape(4, 64)
    sheet = Canvas(4, 64)
    sheet.put_screen(codes, np.full((4, 64), 7, np.uint8), (0, 0))
    for text in ("".join(sheet.text()), screen_text(codes).replace("\n", "")):
        assert text[:128] == " " * 32 + bytes(range(32, 127)).decode() + " "
        assert text[128:161].isspace()
        assert text[161:] == "".join(map(chr, range(161, 256))).replace("\xad", " ")

"""Sheets: what is sent to a terminal makes it show them, and nothing in them can do anything else."""

import numpy as np
import pytest
from emulator import Emulator

from motif_jax.replays.canvas import Canvas, changes
from motif_jax.screens import screen_text

pytestmark = pytest.mark.quick
HOSTILE = "a\x1b[2Jb\x07c\x9b1md\ne\x7ff\u200bg\u202eh漢i\u0301j\xad"


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


def test_texts_become_one_line_without_control_sequences():
    sheet = Canvas(1, 40)
    sheet.put(0, 0, HOSTILE)
    assert sheet.text() == ["a [2Jb c 1md e f g h i j".ljust(40)]
    assert changes(None, sheet).count("\033") == 5  # style, clear, place, style, style: all of them ours


def test_screens_of_games_have_no_control_sequences():
    codes = np.arange(256, dtype=np.uint8).reshape(4, 64)
    sheet = Canvas(4, 64)
    sheet.put_screen(codes, np.full((4, 64), 7, np.uint8), (0, 0))
    for text in ("".join(sheet.text()), screen_text(codes).replace("\n", "")):
        assert text[:128] == " " * 32 + bytes(range(32, 127)).decode() + " "
        assert text[128:161].isspace()
        assert text[161:] == "".join(map(chr, range(161, 256))).replace("\xad", " ")

"""Foreign texts on a terminal."""

import pytest

from motif_jax.console import clean


@pytest.mark.quick
@pytest.mark.parametrize(("text", "shown"), [
    ("plain, with ümlaut", "plain, with ümlaut"),
    ("\x1b[2Jgone\x07", "\\x1b[2Jgone\\x07"),
    ("two\nlines\r\t", "two\\nlines\\r\\t"),
    ("\udcff", "\\udcff"),  # of a file name that is no UTF-8
    ("\u202etxt.exe", "\\u202etxt.exe"),  # would be shown backwards
])  # fmt: skip
def test_control_characters_are_shown_as_escapes(text, shown):
    assert clean(text) == shown


@pytest.mark.quick
def test_long_texts_lose_their_middle():
    shown = clean("a" * 1000 + "b" * 1000, 101)
    assert shown == "a" * 48 + " ... " + "b" * 48

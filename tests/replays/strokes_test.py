"""The font of pictures."""

import string

import numpy as np
import pytest
from conftest import ROOT

from motif_jax.replays.painter import BLOCKS, RULES, draw

BOX = draw("\u3042")


@pytest.mark.quick
def test_all_that_replays_show_is_drawn_and_no_two_letters_look_alike():
    own = {character for file in (ROOT / "motif_jax/replays").glob("*.py") for character in file.read_text()}
    own = {character for character in own - {*BLOCKS, *RULES} if not character.isascii() and character.isprintable()}
    assert "▶" in own
    assert not any((draw(character) == BOX).all() for character in own)
    plain = [character for character in string.printable if character.isprintable()]
    assert len(plain) == 95
    assert len({draw(character).tobytes() for character in [*plain, "é", "É", "è", "ü", "\u3042"]}) == 100


@pytest.mark.quick
def test_strokes_are_lines_of_the_width_they_should_have():
    letter = draw("L")  # "13 1d 7d": down column 1 from row 3 to row 13, then along that row to column 7
    assert (letter[3:14, 1] == 1).all()
    assert (letter[13, 1:8] == 1).all()
    np.testing.assert_allclose(letter[5:10, 2], 0.65 + 0.5 - 1)  # one pixel beside the line
    assert not letter[:2].any()
    assert not letter[3:12, 4:].any()
    arc = draw("o")  # a closed curve through the middles of the sides of the square "16 76 7d 1d"
    assert arc[6, 4] == arc[13, 4] == 1
    assert not arc[9, 4]
    np.testing.assert_allclose(arc, arc[:, ::-1], atol=1e-9)  # columns 1 and 7 are alike

"""Environments of gymnasium that draw themselves: what they return that is wrong, and pictures in replays."""

import gymnasium
import numpy as np
import pytest
from gym_world_test import Corridor, Walk
from PIL import Image

from motif_jax.envs.gym_world import encode_picture, pieces_of_ansi
from motif_jax.envs.world import game_seed
from motif_jax.replays.film import open_picture
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
PIXELS = np.zeros((400, 800, 3), np.uint8)


class Drawing(Corridor):
    """Draws what `drawn` says."""

    metadata = {"render_modes": ["human", "ansi", "rgb_array"]}
    drawn = None

    def __init__(self, render_mode=None, **options):
        super().__init__(**options)
        self.render_mode = render_mode

    def render(self):
        if isinstance(self.drawn, Exception):
            raise self.drawn
        return PIXELS + np.uint8(self.place) if self.drawn is None else self.drawn


class Drawn(Walk):
    drawn = None

    def make(self):
        env = Drawing(render_mode=self.render_mode, goal=9)
        env.drawn = self.drawn
        return env


def game_of(shown=True, **attributes):
    world = type("World", (Drawn,), attributes)()
    game = world.game(shown=shown)
    game.reset(game_seed(0, 0, 0), 0)
    return game


def test_rendering_errors_are_shown_on_the_screen():
    game = game_of(drawn=gymnasium.error.DependencyNotInstalled("pygame is not installed"))
    assert game.picture() == b""
    assert b"no picture: pygame is not installed" in game.screen().chars.tobytes()


def test_wrong_pictures_and_texts_are_refused_in_one_sentence():
    for drawn in ("text", [[1]], PIXELS[..., :1], PIXELS[:0], PIXELS.astype(float), np.zeros((9000, 1, 3), np.uint8)):
        with pytest.raises(UserError, match=r"render\(\) of the world .* must return a picture of shape") as refused:
            game_of(drawn=drawn).picture()
        assert "\n" not in str(refused.value)
    for drawn in (b"a", PIXELS):
        with pytest.raises(UserError, match=r"render\(\) of the world .* must return text, not"):
            game_of(picture="ansi", drawn=drawn).screen()


def test_colours_of_terminals_become_pieces():
    assert pieces_of_ansi("\n+-\033[34;1mG\033[0m|\n\033[43m \033[0m\033[2J\a") == [
        [("+-", 7), ("G", 4), ("|", 7)],
        [(" ", 3 + 16)],
    ]
    assert pieces_of_ansi(f"\033[{'1' * 9999}mx") == [[("x", 7)]]
    assert pieces_of_ansi("\033[97;7mx\033[my\033[999;38m") == [[("x", 15 + 16), ("y", 7)]]
    assert pieces_of_ansi("\033[31;38;5;7mx\033[48;2;0;34;7;58;5;32;1my") == [
        [("x", 1), ("y", 1)]
    ]  # of a larger palette


def test_pictures_of_replays_are_opened_with_care(tmp_path):
    whole = encode_picture(PIXELS)
    png = tmp_path / "a.png"
    Image.fromarray(PIXELS).save(png)
    Image.new("RGB", (2000, 2)).save(tmp_path / "large.webp")
    for packed in (b"x", whole[:-50], png.read_bytes(), (tmp_path / "large.webp").read_bytes()):
        with pytest.raises(ValueError, match="a picture of a replay"):
            open_picture(packed)

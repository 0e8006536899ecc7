"""What an environment of gymnasium and its world may return or raise: each is refused with one sentence; pictures."""

import gymnasium
import numpy as np
import pytest
from conftest import refusal
from gym_world_test import EVERYTHING, Corridor, Walk
from gymnasium import spaces
from PIL import Image

from motif_jax.envs.gym_world import encode_picture, pieces_of_ansi
from motif_jax.envs.world import game_seed
from motif_jax.envs.worlds import check_world
from motif_jax.launch import stopped_by_signals
from motif_jax.replays.film import open_picture
from motif_jax.structs import UserCodeError, UserError

pytestmark = pytest.mark.quick
NAN, HUGE = float("nan"), 10**400
GIVEN = "the observation"


class Wrong(Walk):
    """One of its methods returns `value`."""

    method, value = "", None

    def answer(self, method, right):
        if self.method == method and isinstance(self.value, BaseException):
            raise self.value
        return self.value if self.method == method else right

    def caption(self, observation, env):
        return self.answer("caption()", "")

    def screen(self, env):
        return self.answer("screen()", ["a", [("b", 3)]])

    def measure(self, env):
        return self.answer("measure()", (0,))

    def succeeded(self, reward, env):
        return self.answer("succeeded()", True)

    def make(self):
        env = Corridor()
        look = env.look

        def changed():
            name, value = self.value if self.method == GIVEN else ("", None)
            observation = look() | ({name: value} if name else {})
            return {key: kept for key, kept in observation.items() if value is not KeyError or key != name}

        env.look = changed
        env.step = lambda action: self.answer("step()", (env.look(), *self.answer("parts", (0.0, True, False)), {}))
        if self.method == "reset()":
            env.reset = lambda **options: self.answer("reset()", None)
        for name in ("observation_space", "action_space"):
            if self.method == name:
                setattr(env, name, self.value)
        if self.method == "get_action_meanings()":
            env.get_action_meanings = lambda: self.value
        return self.answer("make()", env)


def given(name, *values):
    return [(name, value) for value in values]


OBSERVATION = EVERYTHING.sample() | {"note": ""}
WRONG = {  # by method: what it returns
    "reset()": [None, "ab", OBSERVATION, (OBSERVATION, {}, 0), (7, {}), ({}, {})],
    "step()": [None, (OBSERVATION, 0.0, False, {}), "abcde"],
    "parts": [
        *((reward, False, False) for reward in ("1", 1j, NAN, 1e39, HUGE, np.zeros(2))),
        *((0.0, flag, False) for flag in ("no", np.zeros(2))),
        *((0.0, False, flag) for flag in (None, [False])),
    ],
    GIVEN: [
        *given("position", KeyError, "a", [1, [2]], [NAN, 0], [1e300, 0], ["a", "b"], np.array([0, 1j]), np.zeros(3)),
        *given("board", np.full((8, 8), 13), np.full((8, 8), 0.5), np.full((8, 8), 2**40), np.zeros((8, 7))),
        *given("facing", 0, 2.5, 7.0, [1], HUGE),
        *given("hands", [0, 5], [9.0, 0.0], "ab"),
        *given("note", b"at 0"),
        *given("inner", KeyError, 7, {"speed": NAN}),
        *given("camera", np.full((16, 16, 3), 256), np.zeros((16, 16))),
    ],
    "caption()": [None, b"a"],
    "screen()": [None, [7], [["ab", 3]], [[("a",)]], [[("a", 16)]], [b"a"]],
    "measure()": [None, (1, 2), ("1",), (NAN,), {"place": 1}, (HUGE,), np.array(1.0)],
    "succeeded()": [None, np.zeros(2)],
    "make()": [None, EVERYTHING],
    "observation_space": [None, spaces.Dict({"message": spaces.Discrete(2)})],
    "action_space": [
        2, spaces.Discrete(3, start=1), spaces.Discrete(10**9), spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(0, 9, (2,), np.int64),
    ],
    "get_action_meanings()": [7, ("left",)],
    "action_names": ["ab", ("left",), (1, 2)],
    "kinds": [None, {"camra": "grid"}],
    "name": [7], "about": [b"a"], "players": ["random", (1,)], "reads": ["position", ("radar",)],
    "pairs": [7], "texts": [7], "figures": [None, {"steps": int}, {"place": str}, {7: int}],
}  # fmt: skip


RIGHT = Wrong


def refused(method="", value=None, kind=None) -> str:
    """The sentence with which a world is refused whose method or attribute is wrong."""
    global Wrong
    Wrong = type(
        "Wrong", (RIGHT,), {"method": method, "value": value} | {method: value for _ in [0] if method.isidentifier()}
    )
    try:
        return refusal(lambda: check_world({"world": "gym_answers_test:Wrong"}), "(--config.env.world)", kind=kind)
    finally:
        Wrong = RIGHT


def test_wrong_return_values_are_refused_with_one_sentence():
    check_world({"world": "gym_answers_test:Wrong"})
    for method, values in WRONG.items():
        for value in values:
            sentence = refused(method, value)
            assert len(sentence) < 400
            if method in ("reset()", "step()", "caption()", "screen()", "measure()", "succeeded()", "make()"):
                assert sentence.startswith(f"{method} of the world 'gym_answers_test:Wrong' must return "), sentence


class Odd(BaseException):
    """An exception of the user's own."""


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), Odd(), StopIteration()], ids=repr)
def test_whatever_a_method_raises_names_the_world(error):
    for method in ("reset()", "step()", "caption()", "screen()", "measure()", "succeeded()", "make()"):
        with stopped_by_signals():
            sentence = refused(method, error, UserCodeError)
        assert sentence.startswith("the world 'gym_answers_test:Wrong' failed with "), method


def test_errors_about_non_finite_numbers_name_method_and_value():
    assert refused(GIVEN, ("position", np.array([0, NAN]))) == (
        "reset() of the world 'gym_answers_test:Wrong' must return the observation 'position' as its space says: "
        "finite numbers of shape (2,) and type float32, not array([ 0., nan]) (--config.env.world)"
    )


PIXELS = np.zeros((400, 800, 3), np.uint8)


class Drawing(Corridor):
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
        with pytest.raises(UserError, match="a picture of a replay"):
            open_picture(packed)

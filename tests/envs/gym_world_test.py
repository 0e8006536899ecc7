"""Any environment of gymnasium as a world: what it records, and what is refused of its values and errors; pictures."""

import functools

import gymnasium
import numpy as np
import pytest
from conftest import refusal
from gymnasium import spaces
from own_gym import ACTIONS, AimWorld
from PIL import Image

from motif_jax.captions import decode
from motif_jax.envs.gym_world import GymWorld, GymWorldGame, action_parts_of, encode_picture, pieces_of_ansi
from motif_jax.envs.toy import ToyWorld
from motif_jax.envs.world import CAPTIONS, ActionSpace, SeedStream, game_seed, space_from, space_of, step_specs
from motif_jax.envs.worlds import check_world, make_world
from motif_jax.launch import stopped_by_signals
from motif_jax.replays.replay import open_picture
from motif_jax.structs import ArraySpec, EndStatus, UserCodeError, UserError

pytestmark = pytest.mark.quick
EVERYTHING = spaces.Dict({
    "position": spaces.Box(-np.inf, np.inf, (2,), np.float64),
    "camera": spaces.Box(0, 255, (16, 16, 3), np.uint8),
    "board": spaces.Box(0, 12, (8, 8), np.int64),
    "buttons": spaces.MultiBinary(3),
    "hands": spaces.MultiDiscrete([3, 5], start=[1, -2]),
    "facing": spaces.Discrete(4, start=1),
    "note": spaces.Text(300),
    "inner": spaces.Dict({"speed": spaces.Box(0, 1, (), np.float32)}),
})  # fmt: skip


class Corridor(gymnasium.Env):
    """Walk right to the goal at `goal`, or left into a pit at -1; prints what it does, as some environments do."""

    observation_space = EVERYTHING
    action_space = spaces.Discrete(2)

    def __init__(self, goal: int = 3, cut: int = 0):
        self.goal, self.cut = goal, cut

    def reset(self, *, seed=None, options=None):
        print("a new corridor")
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(self.goal)), 0
        return self.look(), {}

    def step(self, action):
        self.place += 1 if action else -1
        self.steps += 1
        done, fell = self.place >= self.goal, self.place < 0
        return self.look(), float(done), done or fell, bool(self.cut) and self.steps >= self.cut, {}

    def look(self):
        self.observation_space.seed(self.place + 7)
        sample = self.observation_space.sample()
        own = {"position": np.array([self.place, 0.0]), "note": f"at {self.place}"}
        return sample | own | {"buttons": sample["buttons"].tolist()}  # gymnasium takes lists, too


class Walk(GymWorld):
    about = "a corridor"
    figures = {"place": int}

    def make(self):
        return Corridor(**self.options)

    def caption(self, observation, env):
        return f"You are at {int(observation['position'][0])}.  "

    def measure(self, env):
        return (env.place,)


Stroll = functools.partial(Walk, goal=2)  # worlds of other names than their classes
Few = functools.partial(ToyWorld, max_episode_steps=20)


def rows_of(world, num_games, names):
    specs = {name: world.specs[name] for name in names} | step_specs()
    return {name: np.zeros((num_games, *spec.shape), spec.dtype) for name, spec in specs.items()}


def play(world, actions, episode=0, seed=0) -> GymWorldGame:
    game = world.game()
    game.reset(game_seed(seed, SeedStream.TRAIN, episode), episode)
    for action in actions:
        game.step(action)
    return game


def test_specs_follow_from_the_spaces():
    plain = {
        "position": ArraySpec((2,), "float32", "vector"),
        "camera": ArraySpec((16, 16, 3), "uint8", "image"),
        "board": ArraySpec((8, 8), "int32", "grid", 13),
        "buttons": ArraySpec((3,), "int32", "category", 2),
        "hands": ArraySpec((2,), "int32", "category", 5),
        "facing": ArraySpec((), "int32", "category", 4),
        "note": ArraySpec((256,), "uint8", "text"),
        "inner_speed": ArraySpec((), "float32", "vector"),
    }
    assert Walk().specs == CAPTIONS | plain | {f"event_{name}": spec for name, spec in plain.items()}
    assert set(Walk().reads) == {*plain, "message"}


@pytest.mark.parametrize("name", ["gym_world_test:Stroll", "gym_world_test:Walk", "gym_world_test:Few"])
def test_a_policy_plays_the_world_that_the_config_named_when_it_was_trained(name):
    world = make_world({"world": name})
    metadata = {"config": {"env": {"world": name, "screen": "map"}}, "model": {"num_actions": len(world.action_names)}}
    assert world.plays(metadata) == ""
    other = metadata | {"config": {"env": {"world": "other:Walk"}}}
    assert "was trained in the world 'other:Walk'" in world.plays(other)


def test_a_group_records_steps_and_starts_new_episodes(capsys):
    world = Walk()
    names = ("position", "facing", "note", "message", "message_count")
    names += ("event_message", "event_message_count", "event_position")
    vector = world.vector(2, names, seed=3, stream=SeedStream.TRAIN)
    rows = rows_of(world, 2, names)
    vector.reset()
    assert vector.first.all()
    ended = []
    for _ in range(40):
        vector.observe(rows)
        places = rows["position"][:, 0].astype(int)
        assert [decode(text) for text in rows["note"]] == [f"at {place}" for place in places]
        assert [decode(text) for text in rows["message"]] == [f"You are at {place}." for place in places]
        assert (rows["facing"] < 4).all()
        assert (rows["facing"] >= 0).all()  # the environment counts from 1
        rows["terminated"][:] = rows["truncated"][:] = False
        vector.step([1, 0], rows)
        came = places + np.array([1, -1])
        assert [decode(text) for text in rows["event_message"]] == [f"You are at {place}." for place in came]
        assert (rows["event_position"][:, 0] == came).all()  # also of a step that ends an episode
        assert (rows["terminated"] == ((came >= 3) | (came < 0))).all()
        assert (vector.first == rows["terminated"]).all()
        assert (rows["reward"] == (came >= 3)).all()
        ended += vector.finished
    assert {info.end_status for game, info in ended if game == 0} == {EndStatus.TASK_SUCCESSFUL}
    assert {info.end_status for game, info in ended if game == 1} == {EndStatus.ENDED}
    assert all(info.success == (info.figures == (3,)) for _, info in ended)
    assert len({info.episode for _, info in ended}) == len(ended) > 10
    assert capsys.readouterr().out == ""  # environments keep quiet


def test_each_episode_has_a_seed_of_its_own_and_streams_share_none(monkeypatch):
    game, seeds = Walk(goal=50).game(), []
    reset = game._env.reset
    monkeypatch.setattr(game._env, "reset", lambda seed: (seeds.append(seed), reset(seed=seed))[1])
    for stream in (SeedStream.TRAIN, SeedStream.EVALUATE):
        for episode in range(20):
            game.reset(game_seed(1, stream, episode), episode)
    assert len({*seeds}) == 40
    assert [seed % 2 for seed in seeds] == [0] * 20 + [1] * 20


def test_time_limits_truncate_and_ends_terminate():
    for world in (Walk(max_episode_steps=2, goal=9), Walk(goal=9, cut=2)):
        game = play(world, [1, 0], episode=2)
        assert (game.end, game.cause) == (EndStatus.ABORTED, "")
        rows = rows_of(world, 1, ())
        vector = world.vector(1, (), seed=0, stream=0, next_episode=lambda _: 2)
        vector.reset()
        vector.step([1], rows)
        vector.step([0], rows)
        assert (rows["truncated"], rows["terminated"]) == ([True], [False])
    game = play(Walk(goal=1), [1])  # the goal is reached in the last step that the environment allows
    assert (game.end, game.info().success) == (EndStatus.TASK_SUCCESSFUL, True)
    assert play(Walk(goal=1, cut=1), [1]).end == EndStatus.TASK_SUCCESSFUL
    game = play(Walk(goal=1), [0])
    assert (game.end, game.cause, game.info().success) == (EndStatus.ENDED, "the game ended", False)


def test_a_caption_is_cut_at_256_characters_and_never_holds_a_zero():
    long = type("Long", (Walk,), {"caption": lambda self, observation, env: "\0snow \u2603 " + "x" * 300})
    game = play(long(), [])
    assert len(game.message) == 256
    assert game.message.startswith(b"snow ? x")


SPACES = {
    "numbers": ActionSpace((), (-1.0, 0.0), (1.0, float(np.float32(0.1)))),
    "choices": ActionSpace((3, 2)),
    "switches": ActionSpace((2, 2)),
}


@pytest.mark.parametrize("actions", SPACES)
def test_a_world_records_what_its_game_can_take(actions):
    world = AimWorld(actions=actions)
    space = space_of(world)
    assert space == SPACES[actions] == space_from({"action_space": space.record(), "num_actions": space.outputs})
    assert world.action == space.spec == ArraySpec((2,), "float32" if actions == "numbers" else "int32")
    assert space.outputs == {"numbers": 4, "choices": 5, "switches": 4}[actions]
    assert world.action_names == ()
    world.check()
    game = world.game(shown=False)
    chances = np.random.default_rng(0).random(300)
    drawn = [game.draw(chance) for chance in chances]
    assert drawn == [game.draw(chance) for chance in chances]
    convert = action_parts_of(ACTIONS[actions], "")[1]
    for number, action in enumerate(drawn):
        recorded = np.array(action, world.action.dtype)
        assert ACTIONS[actions].contains(convert(recorded))
        game.reset(game_seed(0, SeedStream.TRAIN, number), number)
        assert game.step(recorded.tolist()) <= 0
    low, high = np.min(drawn, 0), np.max(drawn, 0)
    if actions == "numbers":
        np.testing.assert_allclose([low, high], [space.low, space.high], atol=0.05)
        assert ACTIONS[actions].contains(convert(np.float32(space.high)))  # 0.1 is more in float32 than in float64
    else:
        assert (low == 0).all()
        assert (high == np.array(space.sizes) - 1).all()


@pytest.mark.parametrize("record", [{}, {"low": [0.0, 0.0], "high": [1.0]}, {"sizes": [4, 2]}])
def test_metadata_that_does_not_fit_is_refused(record):
    with pytest.raises(ValueError, match="action_space"):
        space_from({"action_space": record, "num_actions": 5})


# ---- wrong values

NAN, HUGE = float("nan"), 10**400
OBSERVATION = EVERYTHING.sample() | {"note": ""}
METHODS = {"reset", "step", "get_action_meanings"}, {"caption", "screen", "measure", "succeeded", "make"}
Wrong = Walk


def shown(name, *values):
    return [(OBSERVATION | {name: value}, {}) for value in values]


OF_ENVIRONMENT = {  # values that are refused
    "reset": [
        None, "ab", OBSERVATION, (OBSERVATION, {}, 0), (7, {}), ({}, {}),
        *shown("position", "a", [1, [2]], [NAN, 0], [1e300, 0], ["a", "b"], np.array([0, 1j]), np.zeros(3)),
        *shown("board", np.full((8, 8), 13), np.full((8, 8), 0.5), np.full((8, 8), 2**40), np.zeros((8, 7))),
        *shown("facing", 0, 2.5, 7.0, [1], HUGE),
        *shown("hands", [0, 5], [9.0, 0.0], "ab"),
        *shown("note", b"at 0"),
        *shown("inner", {}, 7, {"speed": NAN}),
        *shown("camera", np.full((16, 16, 3), 256), np.zeros((16, 16))),
    ],
    "step": [
        None, (OBSERVATION, 0.0, False, {}), "abcde",
        *((OBSERVATION, reward, False, False, {}) for reward in ("x", 1j, HUGE, np.zeros(2))),
        *((OBSERVATION, 0.0, flag, False, {}) for flag in ("no", np.zeros(2))),
        *((OBSERVATION, 0.0, False, flag, {}) for flag in (None, [False, True])),
    ],
    "observation_space": [None, spaces.Dict({"message": spaces.Discrete(2)})],
    "action_space": [
        2, spaces.Discrete(3, start=1), spaces.Discrete(10**9), spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(0, 9, (2,), np.int64),
    ],
    "get_action_meanings": [7, ("left",)],
}  # fmt: skip
OF_WORLD = {
    "caption": [None, b"a"],
    "screen": [None, [7], [["ab", 3]], [[("a",)]], [b"a"]],
    "measure": [None, (1, 2), (NAN,), {"place": 1}, (HUGE,), np.array(1.0)],
    "succeeded": [None, np.zeros(2)],
    "make": [None, EVERYTHING],
    "action_names": [("left",)],
    "kinds": [{"camra": "grid"}],
    "figures": [{"steps": int}],
}


def refused(name, value, kind=UserError) -> str:
    """The sentence with which a world is refused that has, or whose environment has, this value or method."""
    global Wrong

    def give(*_, **__):
        if isinstance(value, BaseException):
            raise value
        return value

    class Wrong(Walk):
        def make(self):
            env = Corridor(goal=1)
            env.place = env.steps = 0
            if name in OF_ENVIRONMENT:
                setattr(env, name, give if name in METHODS[0] else value)
            return env

    if name in OF_WORLD:
        setattr(Wrong, name, give if name in METHODS[1] else value)
    with pytest.raises(kind) as caught:
        check_world({"world": "gym_world_test:Wrong"})
    sentence = getattr(caught.value, "sentence", str(caught.value))
    assert sentence.endswith("(--config.env.world)")
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(("name", "values"), (OF_ENVIRONMENT | OF_WORLD).items())
def test_wrong_values_are_refused_with_one_sentence(name, values):
    for right in (("reset", (OBSERVATION, {})), ("step", (OBSERVATION, 0.0, np.array([False]), [False], {}))):
        with pytest.raises(pytest.fail.Exception):
            refused(*right)
    for value in values:
        refused(name, value)


def test_a_flag_of_an_episode_is_no_nan():
    class Flagged(Walk):
        figures = {"lucky": bool}

        def measure(self, env):
            return (NAN,)

    with pytest.raises(ValueError, match="finite numbers of float32"):  # and not True
        Flagged().game().measure()


class Odd(BaseException):
    """An exception of the user's own."""


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), Odd(), StopIteration()], ids=repr)
def test_whatever_a_method_raises_names_the_world(error):
    for method in METHODS[0] | METHODS[1]:
        with stopped_by_signals():
            sentence = refused(method, error, UserCodeError)
        assert sentence.startswith("the world 'gym_world_test:Wrong' failed with "), method


def test_errors_about_observations_name_them():
    assert refused("reset", *shown("position", np.array([0, NAN]))) == (
        "the world 'gym_world_test:Wrong' gives an observation 'position' that is not as its space says, of shape (2,) "
        "and type float32: ValueError: not all numbers are finite (--config.env.world)"
    )


PIXELS = np.zeros((400, 800, 3), np.uint8)


class Drawing(Corridor):
    metadata = {"render_modes": ["human", "ansi", "rgb_array"]}

    def __init__(self, drawn, render_mode):
        super().__init__(goal=9)
        self.drawn, self.render_mode = drawn, render_mode

    def render(self):
        if isinstance(self.drawn, Exception):
            raise self.drawn
        return self.drawn


def game_of(drawn, **attributes):
    attributes["make"] = lambda self: Drawing(drawn, self.render_mode)
    game = type("World", (Walk,), attributes)().game()
    game.reset(game_seed(0, 0, 0), 0)
    return game


def test_what_cannot_be_drawn_is_shown_on_the_screen():
    error = gymnasium.error.DependencyNotInstalled("pygame is not installed")
    for drawn in (error, "text", [[1]], PIXELS[..., :1], PIXELS[:0], PIXELS.astype(float)):
        game = game_of(drawn)
        assert game.picture() == b""
        why = b"pygame is not installed" if drawn is error else b""
        assert b"no picture: " + why in game.screen().chars.tobytes()
    for drawn in (b"a", PIXELS):
        game = game_of(drawn, picture="ansi")
        game.screen()
        assert b"no picture: " in game.screen().chars.tobytes()


def test_a_picture_is_given_when_it_has_changed():
    game = game_of(PIXELS)
    assert open_picture(game.picture()).size == (320, 160)
    assert game.picture() == b""
    game._env.drawn = PIXELS + np.uint8(1)
    assert game.picture()


def test_colours_of_terminals_become_pieces():
    assert pieces_of_ansi("\n+-\033[34;1mG\033[0m|\n\033[43m \033[0m\033[2J\a") == [
        [("+-", 7), ("G", 4), ("|", 7)],
        [(" ", 3 + 16)],
    ]
    assert pieces_of_ansi(f"\033[{'1' * 9999}mx") == [[("x", 7)]]
    assert pieces_of_ansi("\033[97;7mx\033[my\033[999;38m") == [[("x", 15 + 16), ("y", 7)]]
    larger_palette = "\033[31;38;5;7mx\033[48;2;0;34;7;58;5;32;1my"
    assert pieces_of_ansi(larger_palette) == [[("x", 1), ("y", 1)]]


def test_pictures_of_replays_are_opened_with_care(tmp_path):
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    Image.new("RGB", (2000, 2)).save(tmp_path / "large.webp")
    files = [(tmp_path / name).read_bytes() for name in ("a.png", "large.webp")]
    for packed in (b"x", encode_picture(PIXELS)[:-50], *files):
        refusal(lambda: open_picture(packed), "a picture of a replay")

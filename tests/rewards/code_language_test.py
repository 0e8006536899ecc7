"""The language of reward programs: its grammar, its types, what worlds let it read, and the sentences of its errors."""

from types import SimpleNamespace

import numpy as np
import pytest
from code_slow import SMALL_WORLD
from conftest import ROOT, get_config

from motif_jax.envs.world import Viewpoint
from motif_jax.envs.worlds import make_world
from motif_jax.rewards.code.checking import check
from motif_jax.rewards.code.grammar import OPERATORS
from motif_jax.rewards.code.names import FLAG, MOMENT, NUMBER, Entry, Readable, find_readable
from motif_jax.rewards.code.running import Runner
from motif_jax.rewards.code.source import read_program
from motif_jax.rewards.code.tokens import ProgramError
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
READABLE = find_readable(SMALL_WORLD)


NAMES = {name: Entry(NUMBER, MOMENT, name) for name in "abc"} | {name: Entry(FLAG, MOMENT, name) for name in "pqrs"}


def written(one):
    """The tree with all its parentheses."""
    args = [written(part) for part in one.args]
    if one.kind in ("number", "text", "read"):
        return f"{one.value:g}" if one.kind == "number" else one.text
    if one.kind in ("negative", "not"):
        return f"({one.kind} {args[0]})"
    if one.kind in OPERATORS:
        return f"({args[0]} {one.kind} {args[1]})"
    return f"{one.kind}({', '.join(args)})"


@pytest.mark.parametrize(("text", "tree"), [
    ("a + b * c", "(a + (b * c))"),
    ("a - b - c", "((a - b) - c)"),
    ("a / 2 * b", "((a / 2) * b)"),
    ("-a * b", "((negative a) * b)"),
    ("a - -b", "(a - (negative b))"),
    ("not a < 1 and p", "((not (a < 1)) and p)"),
    ("p or q and not r or s", "((p or (q and (not r))) or s)"),
    ("a + 1 < b * 2", "((a + 1) < (b * 2))"),
    ("(a + b) * c", "((a + b) * c)"),
    ("max(a, min(b, c), 1e-3)", "max(a, min(b, c), 0.001)"),
    ("a # a comment, also with 'quotes'\n  + 2. # and another", "(a + 2)"),
    ("still()", "still()"),
])  # fmt: skip
def test_operators_bind_as_in_python(text, tree):
    assert written(check(text, Readable(NAMES, {}, ("a",))).root) == tree


@pytest.mark.parametrize(("text", "column", "said"), [
    ("", 1, "the program is empty: write an expression such as gained"),
    ("gold gold", 6, "expected an operator or the end, not 'gold': a program is one expression, without statements"),
    ("(gold", 6, r"expected '\)' to close the parenthesis of line 1, column 1, not the end"),
    ("1 < gold < 3", 10, "a comparison has two sides: write 1 < x and x < 3, not 1 < x < 3"),
    ("g\u043eld", 2, r"a program is printable ASCII, without '\\u043e' \(U\+043E\)"),
    ("1 + glod", 5, "unknown name 'glod': did you mean 'gold'?"),
    ("exec(gold)", 1, "unknown function 'exec': choose from gained, record"),
    ("gained(gold, 1)", 1, r"gained is written as gained\(gold\), not with 2 arguments"),
    ("gained(2)", 8, "gained needs a value that changes, not a constant"),
    ("once(gold)", 6, "once needs a flag, such as x > 0, not a number: compare it, as in x > 0"),
    ("view", 1, "a reward is a number or a flag, not a grid"),
    ("gold / level", 8, "the divisor must be a number other than 0"),
    ("at(view, 0.5, 0)", 10, "is a number from 0 to 2"),
])  # fmt: skip
def test_errors_name_the_column_and_the_fix(text, column, said):
    with pytest.raises(ProgramError, match=said) as caught:
        check(text, READABLE)
    assert caught.value.place.column == column
    assert "\n" not in str(caught.value)


# ---- what a program pays, by hand


def one_game(**arrays):
    """Rollouts of one game of SMALL_WORLD: the given values, [T + 1] or [T], and zeros."""
    steps = len(next(iter(arrays.values()))) - 1
    found = {}
    for name, spec in SMALL_WORLD.specs.items():
        found[name] = np.zeros((steps + (not name.startswith("event_")), 1, *spec.shape), spec.dtype)
    for name, values in arrays.items():
        if name == "gold":
            found["stats"][:, 0, 0] = values
            found["event_stats"][:, 0, 0] = values[1:]
        else:
            found[name][:, 0] = np.reshape(values, found[name][:, 0].shape)
    ends = {name: np.zeros((steps, 1), bool) for name in ("terminated", "truncated")}
    first = np.zeros((steps + 1, 1), bool)
    first[0] = True
    game = {"reward": np.zeros((steps, 1), np.float32), "action": np.zeros((steps, 1), np.int32)}
    return found | ends | game | {"first": first, "game": np.array([[0]])}


def pays(text, **arrays):
    return Runner(check(text, READABLE)).rewards(one_game(**arrays))[:, 0].tolist()


def test_a_game_that_is_first_seen_within_an_episode_begins_there():
    rollouts = one_game(gold=[5, 6, 8])
    rollouts["first"][:] = False
    runner = Runner(check("record(gold)", READABLE))
    assert runner.rewards(rollouts)[:, 0].tolist() == [1, 2]
    assert runner.rewards(rollouts)[:, 0].tolist() == [0, 0]  # the same game goes on, and its best is 8
    rollouts["game"] = np.array([[1]])
    assert runner.rewards(rollouts)[:, 0].tolist() == [1, 2]


# ---- worlds


def world(**attributes):
    return SimpleNamespace(**{**vars(SMALL_WORLD), **attributes})


@pytest.mark.parametrize(("attributes", "said"), [
    ({"numbers": {"gold": ("stats", 4)}}, "'numbers' of the world 'small' must be names .* not {'gold'"),
    ({"numbers": ["gold"]}, "'numbers' of the world 'small' must be a dictionary"),
    ({"viewpoints": {"view": Viewpoint("line", 1)}}, "'viewpoints' of the world 'small'"),
    ({"still": ("event_found",)}, "'still' of the world 'small' must be names of values of a moment"),
])  # fmt: skip
def test_what_a_world_declares_is_checked(attributes, said):
    with pytest.raises(UserError, match=said) as caught:
        find_readable(world(**attributes))
    assert "--config.env.world" in str(caught.value)


@pytest.mark.parametrize(("name", "game"), [
    ("gold", "nethack"), ("stairs", "treasure"), ("pickup", "babyai"),
    ("doorkey", "examples.minigrid.door_key:DoorKey"), ("doorkey", "examples.code_rewards.worlds:DoorKey8"),
    ("keycorridor", "examples.code_rewards.worlds:KeyCorridor"),
])  # fmt: skip
def test_the_examples_fit_their_worlds(name, game, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    config = get_config(argument="toy")
    config.env.world = game
    read_program(str(ROOT / f"examples/rewards/{name}.reward"), make_world(config.env.to_dict()))

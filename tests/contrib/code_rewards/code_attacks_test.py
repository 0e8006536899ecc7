"""The language of reward programs: how it binds, errors, what worlds declare; and attacks on it."""

import os
import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from code_slow import SMALL_WORLD, STEPS, play, program_text
from conftest import ROOT, get_config, refusal

from motif_jax.contrib.code_rewards.grammar import ProgramError, check
from motif_jax.contrib.code_rewards.names import FLAG, MOMENT, NUMBER, Entry, Readable, find_readable
from motif_jax.contrib.code_rewards.running import Runner
from motif_jax.contrib.code_rewards.source import CodeReward, read_program
from motif_jax.envs.world import Viewpoint
from motif_jax.envs.worlds import make_world
from motif_jax.rewards.registry import FLAG as SOURCES_FLAG
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
READABLE = find_readable(SMALL_WORLD)

CODE = [  # of Python and other languages
    "__import__('os').system('id')", "eval(gold)", "lambda: 1", 'open("/etc/passwd")', "import os", "gold.__class__",
    "().__class__.__bases__[0].__subclasses__()", "[x for x in view]", "{1: 2}", 'f"{gold}"', '"""x"""',
    "gold if lit else 1", "x := 1", "gold = 2", "gold; gold", "print(gold)", 'getattr(gold, "x")', "9 ** 9 ** 9",
    "gold << 2", "~gold", "gold[0]", "*gold", "gained(x=gold)", "$(id)", "lit && lit", "not", "gold or", "yield gold",
    "None", "True", "...", "__builtins__", "np.inf", "os", "breakpoint()", "gold()()", "(gold)(1)", '"a"(1)',
    '"a" * 1000000', '"%s" % gold', "", "# only", "<script>", "../../etc/passwd", "\\x00", 'says("\\x41")',
    'says("a" "b")', "says(')", 'says("a', "says()",
]  # fmt: skip
NUMBERS = [
    "nan", "-inf", "1e999", "1e7", "9" * 4000, "1e" + "9" * 50, "0x10",
    "1j", "1.2.3", ".5", "1e+", "gold/0.0", "gold/(1-1)", "gold/0e5", "gold/gold", "gold / lit", "1 / min(1, 2)",
]  # fmt: skip
UNICODE = [
    "g\u043eld", "\uff47old", "gold\u200b", "\u202egold", "gold \u2212 1", "\ufeffgold", "\u0661",
    'says(\u201ckill\u201d)', "gold # \u202e", "\U0001d420old", "gold\u2028+ 1", "gold\x00", "\x1b[3gold", "\ud800gold",
]  # fmt: skip
SIZES = [
    "(" * 10**6, "(" * 10**6 + "1" + ")" * 10**6, "-" * 10**6 + "1", "not " * 10**5 + "lit", "gained(" * 10**5,
    "abs(" * 13 + "1" + ")" * 13, "1+" * 64 + "1", "x" * 10**6, "1" * 10**6, 'says("' + "a" * 101 + '")', "#" * 10**6,
    "min(" + "1," * 9 + "1)", "gold<" * 1000 + "gold", '"' * 10**6, "((" * 2047 + "1", "(" * 4096, "gold or (" * 450,
]  # fmt: skip


def mutations():
    """Programs with a character replaced, removed or put in, of which most are wrong."""
    chances = random.Random(0)
    for seed in range(400):
        text = program_text(seed)
        for _ in range(3):
            at = chances.randrange(len(text))
            middle = chances.choice(
                ["", "(", ")", ",", '"', "..", "__", "=", "@", "\x00", "\u0435", "1e9", "lambda ", "[", " and "]
            )
            yield text[:at] + middle + text[at + chances.randrange(2) :]


def attacks():
    inner = [one for one in CODE + NUMBERS if one.strip() and not one.startswith("#")]
    around = ("gained(gold) + ({})", "{}\n# a harmless comment")
    return [*CODE, *NUMBERS, *UNICODE, *SIZES, *(text.replace("{}", one) for text in around for one in inner)]


def refused(text):
    """The error of a text is one short sentence with a place."""
    assert len(refusal(lambda: check(text, READABLE), match=r"^line \d+, column \d+: ", kind=ProgramError)) < 400


def test_hundreds_of_attacks_are_refused_in_one_sentence(monkeypatch):
    texts = attacks()
    monkeypatch.setattr("os.system", lambda *_: pytest.fail("a command was run"))
    before = set(sys.modules)
    for text in texts:
        refused(text)
    assert set(sys.modules) == before  # nothing was imported


def test_a_changed_program_is_refused_or_pays_finite_rewards():
    batch, wrong, right = play(0) | {"game": np.array([[0, 1, 2]])}, 0, 0
    for text in mutations():
        try:
            program = check(text, READABLE)
        except ProgramError:
            refused(text)
            wrong += 1
        else:
            right += 1
            found = Runner(program).rewards(batch)
            assert np.isfinite(found).all()
            assert np.abs(found).max() <= 1e6
    assert wrong > 500
    assert right > 50


def file_error(file):
    sentence = refusal(lambda: read_program(str(file), SMALL_WORLD), SOURCES_FLAG)
    assert str(file) in sentence or "..." in sentence or "…" in sentence
    return sentence


def test_files_that_are_not_programs_are_refused(tmp_path):
    good = tmp_path / "good.reward"
    good.write_text("gained(gold)")
    read_program(str(good), SMALL_WORLD)
    assert "No such file" in file_error(tmp_path / "missing.reward")
    os.mkfifo(tmp_path / "pipe.reward")
    assert "it is not a regular file" in file_error(tmp_path / "pipe.reward")
    (tmp_path / "zero.reward").symlink_to("/dev/zero")
    assert "it is not a regular file" in file_error(tmp_path / "zero.reward")
    with open(tmp_path / "hole.reward", "wb") as file:
        file.truncate(2**40)  # a terabyte of nothing
    assert "a hole" in file_error(tmp_path / "hole.reward")
    for data in b"", b"\x00" * 100, b"\xff\xfe\x67\x00", b"#!/bin/sh\nid", b"\xef\xbb\xbfgold", b"a" * 4097:
        good.write_bytes(data)
        file_error(good)


GRID = ["grid", "moment", "stats", [4], [], ""]  # where the program reads a number
FACTS = CodeReward(check("gained(gold) + still() + distance(map, 1)", READABLE), "gold.reward").facts()


@pytest.mark.parametrize("changes", [
    {"program": 3}, {"program": "__import__('os')"}, {"program": "(" * 10**6}, {"file": None}, {"uses": []},
    {"uses": {"entries": {}, "viewpoints": {}, "still": []}},
    {"uses": {**FACTS["uses"], "viewpoints": {"map": [1e300, 0, None, False]}}},
    {"uses": {**FACTS["uses"], "entries": FACTS["uses"]["entries"] | {"gold": GRID}}}, {"uses": None},
    {"uses": {"entries": {}, "viewpoints": {"view": [1.5, "x", None, False]}, "still": []}},
])  # fmt: skip
def test_a_damaged_checkpoint_is_refused(changes):
    CodeReward.rebuild({}, FACTS)
    said = refusal(lambda: CodeReward.rebuild({}, {**FACTS, **changes}), "the checkpoint has a damaged reward program")
    assert len(said) < 600


def test_a_checkpoint_of_another_world_is_refused():
    facts = {**FACTS, "uses": {**FACTS["uses"], "entries": {
        name: [kind, of, observation, [size + 7 for size in shape], cell, after]
        for name, (kind, of, observation, shape, cell, after) in FACTS["uses"]["entries"].items()
    }}}  # fmt: skip
    source = CodeReward.rebuild({}, facts)
    refusal(lambda: source.rewards(play(0) | {"game": np.array([[0, 1, 2]])}), "but the program was checked with")


NAMES = {name: Entry(NUMBER, MOMENT, name) for name in "abc"} | {name: Entry(FLAG, MOMENT, name) for name in "pqrs"}


def written(one):
    return f"({one.kind} {' '.join(map(written, one.args))})" if one.args else one.text or f"{one.value:g}"


@pytest.mark.parametrize(("text", "tree"), [
    ("a + b * c", "(+ a (* b c))"),
    ("a - b - c", "(- (- a b) c)"),
    ("a / 2 * b", "(* (/ a 2) b)"),
    ("-a * b", "(* (negative a) b)"),
    ("a - -b", "(- a (negative b))"),
    ("not a < 1 and p", "(and (not (< a 1)) p)"),
    ("p or q and not r or s", "(or (or p (and q (not r))) s)"),
    ("a + 1 < b * 2", "(< (+ a 1) (* b 2))"),
    ("(a + b) * c", "(* (+ a b) c)"),
    ("max(a, min(b, c), 1e-3)", "(max a (min b c) 0.001)"),
    ("a # a comment, also with 'quotes'\n  + 2. # and another", "(+ a 2)"),
])  # fmt: skip
def test_operators_bind_as_in_python(text, tree):
    assert written(check(text, Readable(NAMES, {}, ("a",))).root) == tree


@pytest.mark.parametrize(("text", "column", "said"), [
    ("(gold", 6, r"expected '\)' for '\(' of line 1, column 1, not the end"),
    ("1 + glod", 5, "unknown name 'glod': did you mean 'gold'?"),
    ("1 + zzz", 5, "unknown name 'zzz': this world has body, column, "),
    ("still", 1, r"unknown name 'still': write still\(\)"),
    ("gained(gold, 1)", 1, r"gained is written as gained\(gold\), not with 2 arguments"),
    ("once(gold)", 6, "once needs a flag that changes, such as x > 0, as in .*, not a number .moment.: compare it"),
    ("1 < gold < 3", 10, "1 < x and x < 3"),
    ("at(view, 0.5, 0)", 1, r"view has the shape \(3, 4\): write at\(view, i, j\), from 0"),
])  # fmt: skip
def test_errors_name_the_column_and_the_fix(text, column, said):
    refusal(lambda: check(text, READABLE), match=f"^line 1, column {column}: .*{said}", kind=ProgramError)


def test_a_game_that_is_first_seen_within_an_episode_begins_there():
    rollouts = {name: array[: 3 if len(array) > STEPS else 2, :1] for name, array in play(0).items()}
    for name in ("first", "terminated", "truncated"):
        rollouts[name][:] = False
    rollouts["stats"][:, 0, 0], rollouts["event_stats"][:, 0, 0], rollouts["action"][:] = [5, 6, 8], [6, 8], 2
    rollouts["game"] = np.array([[0]])
    runner = Runner(check("record(gold)", READABLE))
    assert runner.rewards(rollouts)[:, 0].tolist() == [1, 2]
    assert runner.rewards(rollouts)[:, 0].tolist() == [0, 0]  # the same game goes on, and its best is 8
    rollouts["game"] = np.array([[1]])
    assert runner.rewards(rollouts)[:, 0].tolist() == [1, 2]


@pytest.mark.parametrize("attributes", [
    {"numbers": {"gold": ("stats", 4)}}, {"numbers": {"found": ("event_stats", 0)}}, {"numbers": {"and": ("stats", 0)}},
    {"numbers": {"gold": ("stats", True)}}, {"numbers": ["gold"]}, {"numbers": {"gold": "ab"}}, {"still": 3},
    {"viewpoints": {"view": Viewpoint("line", 1)}}, {"viewpoints": {"view": (1, 1)}}, {"still": ("event_found",)},
])  # fmt: skip
def test_what_a_world_declares_is_checked(attributes):
    with pytest.raises(UserError, match=r"of the world 'small' do not fit its observations: .*\(--config.env.world\)"):
        find_readable(SimpleNamespace(**{**vars(SMALL_WORLD), **attributes}))


@pytest.mark.parametrize(("name", "game"), [
    ("gold", "nethack"), ("stairs", "treasure"), ("pickup", "babyai"),
    ("doorkey", "examples.minigrid.door_key:DoorKey"), ("doorkey", "examples.code_rewards.worlds:DoorKey8"),
    ("keycorridor", "examples.code_rewards.worlds:KeyCorridor"),
])  # fmt: skip
def test_the_examples_fit_their_worlds(name, game, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    config = get_config(argument="toy", env__world=game)
    read_program(str(ROOT / f"examples/rewards/{name}.reward"), make_world(config.env.to_dict()))

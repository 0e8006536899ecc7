"""Texts and files that try to break the parser of reward programs, or to run code: each is refused in one sentence."""

import os
import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from code_slow import SMALL_WORLD, play, program_text

from motif_jax.rewards.code.checking import check
from motif_jax.rewards.code.names import find_readable
from motif_jax.rewards.code.running import Runner
from motif_jax.rewards.code.source import CodeReward, read_program
from motif_jax.rewards.code.tokens import ProgramError
from motif_jax.rewards.registry import FLAG
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
    "nan", "-inf", "1e999", "1e7", "9" * 4000, "1e" + "9" * 50, "0." + "0" * 200 + "1", "1e-" + "9" * 80, "0x10",
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
    """The error of a text, which is one short sentence with a place."""
    with pytest.raises(ProgramError) as caught:
        check(text, READABLE)
    sentence = str(caught.value)
    assert sentence.startswith(f"line {caught.value.place.line}, column {caught.value.place.column}: ")
    assert "\n" not in sentence
    assert sentence.isprintable()
    assert len(sentence) < 400, sentence
    return sentence


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


# ---- files


@pytest.fixture
def world():
    return SimpleNamespace(**vars(SMALL_WORLD))


def file_error(file, world):
    with pytest.raises(UserError) as caught:
        read_program(str(file), world)
    sentence = str(caught.value)
    assert FLAG in sentence
    assert "\n" not in sentence
    assert str(file) in sentence or "..." in sentence or "…" in sentence
    return sentence


def test_files_that_are_not_programs_are_refused(tmp_path, world):
    good = tmp_path / "good.reward"
    good.write_text("gained(gold)")
    read_program(str(good), world)
    assert "No such file" in file_error(tmp_path / "missing.reward", world)
    os.mkfifo(tmp_path / "pipe.reward")
    assert "it is not a regular file" in file_error(tmp_path / "pipe.reward", world)
    (tmp_path / "zero.reward").symlink_to("/dev/zero")
    assert "it is a link" in file_error(tmp_path / "zero.reward", world)
    with open(tmp_path / "hole.reward", "wb") as file:
        file.truncate(2**40)  # a terabyte of nothing
    assert "a hole" in file_error(tmp_path / "hole.reward", world)


@pytest.mark.parametrize("data", [
    b"", b"\x00" * 100, b"\xff\xfe\x67\x00", b"#!/bin/sh\nid", b"\x80\x04\x95", b"\xef\xbb\xbfgold", b"a" * 4097,
])  # fmt: skip
def test_bytes_that_are_not_programs_are_refused(tmp_path, world, data):
    file = tmp_path / "odd.reward"
    file.write_bytes(data)
    assert file_error(file, world).isprintable()


# ---- checkpoints

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
    with pytest.raises(UserError, match="the checkpoint has a damaged reward program") as caught:
        CodeReward.rebuild({}, {**FACTS, **changes})
    assert len(str(caught.value)) < 600


def test_a_checkpoint_of_another_world_is_refused():
    facts = {**FACTS, "uses": {**FACTS["uses"], "entries": {
        name: [kind, of, observation, [size + 7 for size in shape], cell, after]
        for name, (kind, of, observation, shape, cell, after) in FACTS["uses"]["entries"].items()
    }}}  # fmt: skip
    source = CodeReward.rebuild({}, facts)
    with pytest.raises(UserError, match=r"has the shape \(.*\), but the program was checked with"):
        source.rewards(play(0) | {"game": np.array([[0, 1, 2]])})

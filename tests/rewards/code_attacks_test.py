"""Texts and files that try to break the parser of reward programs, or to run code: each is refused in one sentence."""

import contextlib
import os
import random
import socket
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from code_slow import SMALL_WORLD, play, program_text

from motif_jax.rewards.choice import FLAG, parse_sources
from motif_jax.rewards.code import parsing, tokens
from motif_jax.rewards.code.checking import check
from motif_jax.rewards.code.names import find_readable
from motif_jax.rewards.code.running import Runner
from motif_jax.rewards.code.source import CodeReward, read_program
from motif_jax.rewards.code.tokens import MOST_BYTES, ProgramError
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
READABLE = find_readable(SMALL_WORLD)

CODE = [  # of Python and other languages
    "__import__('os').system('id')", '__import__("os")', "eval(gold)", 'exec("x")', "lambda: 1", "lambda x: x(x)",
    "open('/etc/passwd')", 'open("/etc/passwd")', "import os", "from os import *", "gold.__class__", "gold.__class__()",
    "().__class__.__bases__[0].__subclasses__()", "[x for x in view]", "{1: 2}", "{gold}", "f'{gold}'", 'f"{gold}"',
    'b"x"', "r'x'", 'u"x"', "'''x'''", '"""x"""', "gold if lit else 1", "while True: pass", "for x in view: pass",
    "def f(): return 1", "class A: pass", "x := 1", "x = 1", "gold = 2", "gold += 1", "gold; gold", "gold\n;gold",
    "del gold", "print(gold)", "globals()", "locals()", "vars(gold)", "getattr(gold, \"x\")", "setattr(gold, \"x\", 1)",
    "gold @ gold", "gold ** gold", "9 ** 9 ** 9", "gold // 2", "gold % 2", "gold << 2", "gold >> 2", "~gold", "gold[0]",
    "view[0, 0]", "view[:]", "*gold", "**gold", "gained(*gold)", "gained(x=gold)", "gained(gold=1)", "gold -> 1",
    "gold ? 1 : 2", "$gold", "`id`", "$(id)", "gold && lit", "gold || lit", "!lit", "not", "and", "gold or",
    "yield gold",
    "await gold", "async gold", "raise gold", "assert gold", "return gold", "try: gold", "with gold: 1", "global gold",
    "nonlocal gold", "pass", "break", "continue", "None", "True", "False", "Ellipsis", "...", "NotImplemented",
    "__name__",
    "__builtins__", "__doc__", "_", "self", "cls", "np.inf", "numpy", "jax", "os", "sys", "type(gold)", "dir()",
    "help()",
    "input()", "compile(gold)", "breakpoint()", "exit()", "quit()", "gold()()", "gained(gold)(gold)", "(gold)(1)",
    "1(2)", '"a"(1)', '"a" + "b"', '"a" * 1000000', '"%s" % gold', '"{}".format(gold)', "#", "", " ", "\n\n", "# only",
    "<script>", "${gold}", "{{gold}}", "' or 1=1 --", "gold -- 1;", "../../etc/passwd", "%00", "\\", "\\x00", "\\u0041",
    'says("\\x41")', 'says("a" "b")', 'says("', 'says(")', "says(')", 'says("a', "says(a\")", "says()", "says(\"\")",
]  # fmt: skip
NUMBERS = [
    "nan", "inf", "-inf", "NaN", "Infinity", "1e999", "1e7", "9" * 400, "9" * 4000, "1e" + "9" * 50,
    "0." + "0" * 200 + "1",
    "1e-" + "9" * 80, "0x10", "0b1", "0o7", "1_000", "1j", "1.5j", "1.2.3", "1..2", ".5", "1e", "1e+", "1.e", "--1e9",
    "1/0", "gold/0", "gold/0.0", "gold/(1-1)", "gold/-0", "gold/0e5", "gold/gold", "gold/event_found", "1000001", "01x",
    "gold / lit", "1 / (gold)", "1 / min(1, 2)", "1 / --0",
]  # fmt: skip
UNICODE = [
    "g\u043eld", "\uff47old", "gold\u200b", "\u202egold", "gold \u2212 1", "gold \u00d7 2", "\uff08gold\uff09",
    "gold\u00a0+ 1",
    "\ufeffgold", "\u0661", "\u00b2", "gold \u2264 1", 'says(\u201ckill\u201d)', 'says("k\u0131ll")', "gold # \u202e",
    "\U0001d420old",
    "gold\u2028+ 1", "gold\x0b", "gold\x0c", "\x00", "gold\x00", "\x1b[31mgold", "\x7f", "gold\x08", "# \x00\ngold",
    'says("\x00")',
    'says("a\tb")', "\x85gold", "gold\x1a", "\ud800gold",
]  # fmt: skip
SIZES = [
    "(" * 10**6, "(" * 10**6 + "1" + ")" * 10**6, ")" * 10**6, "-" * 10**6 + "1", "not " * 10**5 + "lit", "[" * 10**6,
    "gained(" * 10**5, "abs(" * 13 + "gold" + ")" * 13, "1+" * 10**6 + "1", "1+" * 64 + "1", "x" * 10**6, "1" * 10**6,
    'says("' + "a" * 10**6 + '")', 'says("' + "a" * 101 + '")', "#" * 10**6, " " * 10**6, "\n" * 10**6,
    "min(" + "1," * 10**5 + "1)",
    "min(" + "1," * 9 + "1)", "gold<" * 1000 + "gold", "gold and " * 1000 + "lit", '"' * 10**6, "," * 10**6,
    "(gold" * 20, "()" * 10,
    "-(" * 10 + "gold" + ")" * 10, "(" * 13 + "gold" + ")" * 13, "((" * 2047 + "1", "1-" * 2000 + "1", "abs(" * 1000,
    "not(" * 1000, "-" * 4000, "(" * 4096, "a" * 61, "abs(abs" * 300, "gold*(" * 500, "gold or (" * 450,
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
    around = ("gained(gold) + ({})", "lit and any(view == {})", "{}\n# a harmless comment")
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
    assert len(set(texts)) >= 500
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


def test_random_characters_are_refused_or_parsed_in_bounded_work(monkeypatch):
    """The parser takes each token at most once, and makes no more nodes than it may."""
    taken = []
    monkeypatch.setattr(parsing._Parser, "_take", counting(parsing._Parser._take, taken))
    chances = random.Random(1)
    pieces = ["(", ")", "-", "not ", "gold", "1", "+", "<", ",", "abs(", "and ", '"a"', "min(", "#\n", " ", "/"]
    for _ in range(300):
        text = "".join(chances.choices(pieces, k=chances.randint(1, 900)))[:MOST_BYTES]
        taken.clear()
        with contextlib.suppress(ProgramError):
            check(text, READABLE)
        assert len(taken) <= len(text) + 1
        assert len(taken) <= 20 * tokens.MOST_NODES  # it stops as soon as the tree is too large


def counting(function, calls):
    def wrapper(*arguments):
        calls.append(1)
        return function(*arguments)

    return wrapper


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
    (tmp_path / "folder.reward").mkdir()
    os.mkfifo(tmp_path / "pipe.reward")
    (tmp_path / "zero.reward").symlink_to("/dev/zero")
    (tmp_path / "loop.reward").symlink_to("loop.reward")
    for name in ("folder", "pipe"):
        assert "it is not a regular file" in file_error(tmp_path / f"{name}.reward", world)
    for name in ("zero", "loop"):
        assert "it is a link" in file_error(tmp_path / f"{name}.reward", world)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s.reward"))
        assert "it is not a regular file" in file_error(tmp_path / "s.reward", world)
    with open(tmp_path / "hole.reward", "wb") as file:
        file.truncate(2**40)  # a terabyte of nothing
    assert "a hole" in file_error(tmp_path / "hole.reward", world)
    assert "Not a directory" in file_error(good / "in.reward", world)
    assert "too long" in file_error(tmp_path / f"{'a' * 300}.reward", world)


@pytest.mark.parametrize("data", [
    b"", b"\x00" * 100, b"\xff\xfe\x67\x00", b"\x80gold", b"\x1f\x8b\x08\x00", b"PK\x03\x04", b"\x7fELF",
    b"#!/bin/sh\nid",
    b"\x80\x04\x95", b"gold\xc0\xaf", b"\xef\xbb\xbfgold", b"a" * 4097, b"(" * 4096, "gold \u2212 1".encode(),
    b"gold\r\r+",
])  # fmt: skip
def test_bytes_that_are_not_programs_are_refused(tmp_path, world, data):
    file = tmp_path / "odd.reward"
    file.write_bytes(data)
    assert file_error(file, world).isprintable()


@pytest.mark.parametrize("name", [
    "", " ", "/", ".", "..", "a.py", "a.reward.py", "a b.reward", "a-b.reward", "\u0430.reward", ".reward",
    "a\x00.reward",
    f"{'a' * 61}.reward", "a/\n.reward", "x.REWARD", "$(id).reward", "~.reward", "*.reward", "a..reward",
])  # fmt: skip
def test_names_that_are_not_files_of_programs_are_refused(name):
    with pytest.raises(UserError, match="a program is a file NAME.reward") as caught:
        parse_sources(f"code:{name}", 0.1)
    assert FLAG in str(caught.value)


# ---- checkpoints

GRID = ["grid", "moment", "stats", [4], [], ""]  # where the program reads a number
FACTS = CodeReward(check("gained(gold) + still() + distance(map, 1)", READABLE), "gold.reward").facts()


@pytest.mark.parametrize("changes", [
    {"program": None}, {"program": 3}, {"program": "__import__('os')"}, {"program": "health"}, {"program": "(" * 10**6},
    {"file": None}, {"uses": None}, {"uses": []}, {"uses": {"entries": {}, "viewpoints": {}, "still": []}},
    {"uses": {**FACTS["uses"], "still": []}},
    {"uses": {**FACTS["uses"], "viewpoints": {"map": [1e300, 0, None, False]}}},
    {"uses": {**FACTS["uses"], "entries": FACTS["uses"]["entries"] | {"gold": GRID}}},
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

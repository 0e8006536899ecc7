"""Prompts that ask for other words than the built-in ones, and say by patterns how answers are read."""

import re
from pathlib import Path

import pytest
from conftest import ROOT
from nethack_texts import NETHACK

from motif_jax.annotation.prompts import MOST_WAYS, SPECIAL, make_prompt, pattern_problem
from motif_jax.structs import UserError

pytestmark = pytest.mark.quick
BLOCKS = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/oni.md").read_text(), re.DOTALL)
PUBLISHED = next(block for block in BLOCKS if "answers.yes" in block)
PLACES = {True: "{caption}", False: "{first} or {second}"}


def write(folder: Path, one: bool, **answers: str) -> str:
    """A prompt file with these patterns, which are written as they are."""
    lines = ["reason = 'What of it? {goal}'", f"captions = '{PLACES[one]}'", "retry = 'Well?'", "score = '{goal}'"]
    file = folder / "own.toml"
    file.write_text("\n".join([*lines, *(f"answers.{name} = {value}" for name, value in answers.items())]))
    return str(file)


def make(file: str, one: bool, mode: str = "reason"):
    return make_prompt(NETHACK, mode, "gold", "default", file, one=one)


@pytest.mark.differs(
    "oni",
    there="prompts are those of the publication",
    here="prompts are our own; a [file](../oni.md#a-prompt-with-its-own-answer-words) can have the published ones",
)
@pytest.mark.parametrize(("reply", "yes"), [  # three tagged fields: knowledge, an analysis of one sentence, the label
    ("<knowledge>Doors open.</knowledge>\n<analysis>A level is gained.</analysis>\n<label>FOO</label>", 1.0),
    ("**Knowledge**: gold is score.\n**Analysis**: gold was picked up.\n**Label**: FOO", 1.0),
    ("<analysis>It might be FOO, but a wall helps nobody.</analysis><label>\nBAR\n</label>", 0.0),
    ("<label>FOO</label> No, on reflection: <label>BAR</label>", 0.0),  # the last counts
    ("FOO", None),
    ('("helpful": yes)', None),  # the built-in words are not asked for
    ("", None),
])  # fmt: skip
def test_replies_in_the_published_form_are_read_as_the_docs_say(tmp_path, reply, yes):
    (tmp_path / "published.toml").write_text(PUBLISHED)
    assert make(str(tmp_path / "published.toml"), True).read(reply) == yes


def test_of_two_captions_the_first_match_counts(tmp_path):
    prompt = make(write(tmp_path, False, first="'LEFT'", second="'RIGHT'", neither="'EVEN'"), False)
    replies = {"LEFT": 0.0, "RIGHT, I say RIGHT, not LEFT": 1.0, "EVEN": 0.5, '("best_description": 1)': None}
    assert {reply: prompt.read(reply) for reply in replies} == replies
    forced = make(write(tmp_path, False, first="'LEFT'", second="'RIGHT'"), False)
    assert (forced.read("RIGHT"), forced.read("EVEN")) == (1.0, None)


BAD = {
    "'['": "not a regular expression",
    "''": "matches an empty text",
    "'(a+)+$'": "without a bound",
    "'(a{1,20}){1,20}b'": "repeats a group",
    "'a{0,99}a{0,99}b'": "ways",
    "'" + "x" * 201 + "'": "longer than",
}
GOOD = (
    "FOO", r"\bFOO\b", r"label\W{0,20}FOO", "(?i)label: foo", r"(?:is|=)\s{0,9}FOO", r"[*+?]{1,3}FOO", r"\*\+FOO",
    r"(?<!not )FOO", r"[]*]FOO", "FOO{2}", "(FOO)?BAR", "FO{1,9}?",
)  # fmt: skip


@pytest.mark.parametrize(("pattern", "problem"), BAD.items())
def test_patterns_that_cannot_work_are_refused_by_file_and_field(tmp_path, pattern, problem):
    with pytest.raises(UserError, match=rf"own.toml': 'answers.no' .*{problem}.*prompt_file\)$"):
        make(write(tmp_path, True, yes="'yes'", no=pattern), True)


def test_patterns_that_are_read_quickly_pass():
    assert {pattern: pattern_problem(pattern) for pattern in GOOD} == dict.fromkeys(GOOD, "")
    assert [pattern for pattern in GOOD if not SPECIAL.search(pattern)] == ["FOO"]
    most = f"a{{0,{MOST_WAYS - 1}}}b"
    assert pattern_problem(most) == ""
    assert re.search(most, "a" * 20_000) is None  # the worst text for it

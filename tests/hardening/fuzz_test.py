"""Anything may stand in flags, captions and arrays: it is read as it is, or refused in one sentence."""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nethack_texts import NETHACK

from motif_jax.actors.players import parse_scripted
from motif_jax.annotation.backends import read_json
from motif_jax.annotation.prompts import make_prompt
from motif_jax.captions import decode, encode
from motif_jax.envs.worlds import make_world
from motif_jax.policies.choice import parse_mixture, parse_one
from motif_jax.rewards.labels import parse_annotators
from motif_jax.structs import UserError
from motif_jax.system.arrays import read_array
from motif_jax.system.http import check_address, retry_after_s

SETTINGS = settings(
    derandomize=True, deadline=None, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
WORDS = st.sampled_from([
    "explorer", "random", "runs/a", ":", "@", ",", "all", "last", "0.3", "1e999", "nan", "-1", "7", "/", " ", "é", "\0",
    "\n", "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT THREE}", "9" * 5000,
])  # fmt: skip
GRAMMAR = st.one_of(st.text(max_size=30), st.lists(WORDS, max_size=8).map("".join))


def refused(attempt: Callable[[], object]) -> bool:
    """Whether it was refused, which must be in one sentence."""
    try:
        attempt()
    except UserError as error:
        return len(str(error).splitlines()) == 1
    return False


def scripted(text):
    return parse_scripted(text, make_world({}))


@SETTINGS
@given(GRAMMAR)
def test_who_plays_is_understood_or_refused(text):
    for parse in (scripted, lambda text: parse_mixture(text, "--flag"), lambda text: parse_one(text, "--flag"),
                  parse_annotators, lambda text: read_json(text, "x"), lambda text: check_address(text, "x"),
                  lambda text: make_prompt(NETHACK, "reason", text or "gold", "default")):  # fmt: skip
        refused(lambda parse=parse: parse(text))
    assert 0 <= retry_after_s(text) <= 600
    if not refused(lambda: scripted(text)):
        assert sum(scripted(text).values()) == pytest.approx(1)


@SETTINGS
@given(st.text())
def test_any_text_becomes_a_caption_and_any_caption_a_text(text):
    shown = decode(encode(text))
    assert decode(encode(shown)) == shown
    if text.isascii() and "\0" not in text:
        assert shown == text[:256]


def damage(rng: random.Random, file: Path, truncated: bool) -> None:
    """Flips some bits, most of them in the head, or cuts the file off."""
    data = bytearray(file.read_bytes())
    if truncated:
        file.write_bytes(data[: rng.randrange(len(data))])
        return
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(min(len(data), 130) if rng.random() < 0.7 else len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


@SETTINGS
@given(
    st.sampled_from([np.int8, np.float32, np.uint8]),
    st.integers(0, 2**32),
    st.booleans(),
    st.booleans(),
)
def test_an_array_is_an_array_or_a_value_error(dtype, seed, truncated, mapped):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.npy")
        np.save(file, np.arange(40).astype(dtype))
        size = file.stat().st_size
        damage(random.Random(seed), file, truncated)
        told = ""
        try:
            assert isinstance(read_array(file, mapped), np.ndarray)
        except ValueError as error:
            told = str(error)
        assert len(told.splitlines()) <= 1
        assert file.stat().st_size <= size

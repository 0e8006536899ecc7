"""Anything may stand in files: it is read as it is, or refused in one sentence; fuzz_words_test.py has the rest."""

import random
import tempfile
from pathlib import Path

import numpy as np
from fuzzing import SETTINGS
from hypothesis import given
from hypothesis import strategies as st

from motif_jax.annotation.parsing import KEYS, read_verdict, shares, to_answer
from motif_jax.captions import decode, encode
from motif_jax.system.files import read_array

# ---- verdicts


@SETTINGS
@given(st.one_of(st.text(), st.lists(st.sampled_from(
    ["best", "BEST", "_", "description", "message", " ", "\n", '"', ":", "(", "1", "2", "None", "none", "is", "é", "\0"]
)).map("".join)))  # fmt: skip
def test_a_verdict_is_one_of_three_or_none(text):
    for key, other in (KEYS, KEYS[::-1]):
        verdict = read_verdict(text, key)
        assert verdict in (None, 0.0, 0.5, 1.0)
        if verdict is not None:  # what comes later under the other key changes nothing
            assert read_verdict(f'{text} ("{other}": 1)', key) == verdict


def test_long_answers_are_read_in_no_time():
    for part in (
        "best ",
        "best_",
        "best description ",
        "best_" * 3 + "description ",
        " ",
        "\n",
        "best description is ",
        "bestdescription",
        "best_message_" * 2,
    ):
        for key in KEYS:
            read_verdict(part * 20_000, key)


@SETTINGS
@given(st.lists(st.tuples(st.text(max_size=6) | st.sampled_from(["1", "2", "0", "(", " 1"]),
                          st.floats(max_value=0.0, allow_nan=False)), max_size=8))  # fmt: skip
def test_shares_of_verdicts_are_shares(tokens):
    found = shares(tokens)
    better = to_answer(found, 0, 0, 0).yes
    assert better is None or 0 <= better <= 1


# ---- captions


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
    st.sampled_from(["", "r", "r+"]),
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

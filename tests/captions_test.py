import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motif_jax.captions import WIDTH, CaptionIndex, CaptionTable, decode, encode

pytestmark = pytest.mark.quick


@given(st.lists(st.binary(max_size=256), max_size=40))
def test_interning_is_np_unique(texts):
    rows = np.frombuffer(b"".join(text.ljust(256, b"\0") for text in texts), np.uint8).reshape(-1, 256)
    table = CaptionTable()
    ids = table.intern(rows)
    unique, counts = np.unique(rows, axis=0, return_counts=True) if len(rows) else (rows, np.zeros(0))
    assert len(table) == len(unique)
    assert sorted(table.counts.tolist()) == sorted(counts.tolist())
    assert np.array_equal(table.messages[ids], rows)


@given(st.binary(max_size=256))
def test_any_bytes_decode(data):
    text = decode(np.frombuffer(data.ljust(256, b"\0"), np.uint8))
    assert len(text) == sum(byte != 0 for byte in data)
    assert decode(encode(text)) == text


@pytest.mark.differs(
    "oni",
    there="two messages that differ by zero bytes within the text are one message",
    here="they are two captions with one text",
)
def test_messages_that_differ_by_a_zero_byte_are_two_captions_with_one_text():
    table = CaptionTable()
    messages = np.stack([np.frombuffer(text.ljust(WIDTH, b"\0"), np.uint8) for text in (b"A newt.", b"A \0newt.")])
    assert table.intern(messages).tolist() == [0, 1]
    assert [table.text(number) for number in range(2)] == ["A newt.", "A newt."]


def test_a_saved_table_goes_on(tmp_path):
    table = CaptionTable()
    table.intern(np.stack([encode("a"), encode("b"), encode("a")]))
    table.save(tmp_path)
    loaded = CaptionTable.load(tmp_path)
    assert loaded.counts.tolist() == [2, 1]
    assert [loaded.text(number) for number in range(2)] == ["a", "b"]
    assert loaded.intern(np.stack([encode("c"), encode("a")])).tolist() == [2, 0]


def test_an_index_finds_what_a_dictionary_finds():
    rng, index, known = np.random.default_rng(1), CaptionIndex(), {}
    pool = np.concatenate([rng.integers(256, size=(200, WIDTH), dtype=np.uint8), np.zeros((1, WIDTH), np.uint8)])
    pool[:100, rng.integers(1, 60) :] = 0  # short ones, as most are
    older = []
    for _ in range(30):
        asked = pool[rng.integers(len(pool), size=12)]
        assert index.lookup.find(asked).tolist() == [known.get(bytes(message), -1) for message in asked]
        new = list({bytes(message): message for message in asked if bytes(message) not in known}.values())
        if new:
            assert index.add(np.stack(new)).tolist() == list(range(len(new)))
            known |= {bytes(message): len(known) + number for number, message in enumerate(new)}
        older.append((index.lookup, dict(known)))
    assert [bytes(message) for message in index.messages] == list(known)
    for lookup, then in older:  # what was taken earlier is as it was
        assert lookup.find(pool).tolist() == [then.get(bytes(message), -1) for message in pool]

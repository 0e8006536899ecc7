"""Files of tensors: as the format's own library writes and reads them, and every lie is refused in one line."""

import json

import ml_dtypes
import numpy as np
import pytest

from motif_jax.devices.tensor_file import LONGEST_HEADER, NAMES, tensors_from_bytes, tensors_to_bytes

pytestmark = pytest.mark.quick


def some_tensors():
    rng = np.random.default_rng(0)
    found = {}
    for name in NAMES:
        dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
        found[f"net.{name}"] = rng.integers(0, 2, (2, 3)).astype(dtype)
    return found | {"one": np.array(7, ">f4"), "none": np.zeros((0, 4), np.int32), "ä.0": np.arange(5)}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert (array.dtype.name, array.shape) == (other[name].dtype.name, other[name].shape)
        assert np.array_equal(array, other[name])


def test_what_is_written_is_read_back():
    tensors = some_tensors()
    data = tensors_to_bytes(tensors, {"made by": "a test"})
    found, metadata = tensors_from_bytes(data)
    assert_same(found, tensors)
    assert metadata == {"made by": "a test"}
    assert tensors_to_bytes(dict(reversed(tensors.items())), metadata) == data
    assert tensors_from_bytes(tensors_to_bytes({})) == ({}, {})
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T  # not in the order of its memory
    assert np.array_equal(tensors_from_bytes(tensors_to_bytes({"a": turned}))[0]["a"], turned)


def test_the_formats_own_library_reads_and_writes_the_same():
    library = pytest.importorskip("safetensors.numpy", reason="needs safetensors: bash launch/test.sh installs it")
    tensors = {name: array for name, array in some_tensors().items() if array.dtype.name != "bfloat16"}
    assert_same(library.load(tensors_to_bytes(tensors)), tensors)
    found, metadata = tensors_from_bytes(library.save(tensors, {"a": "b"}))
    assert_same(found, tensors)
    assert metadata == {"a": "b"}


def file_with(header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


def entry(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)} | more


EIGHT = bytes(8)


@pytest.mark.parametrize(("data", "sentence"), [
    (b"", "cut off or too long"),
    (bytes(7), "cut off or too long"),
    (file_with({}, length=2**63), "cut off or too long"),
    (file_with({}, length=LONGEST_HEADER + 1), "cut off or too long"),
    (file_with(b"[]"), "no JSON object"),
    (file_with(b"\xff\xff"), "not JSON"),
    (file_with(b"[" * 100_000), "not JSON"),
    (file_with(b'{"a":1,"a":2}'), "has 'a' twice"),
    (file_with({"__metadata__": {"a": 1}}), "no dictionary of texts"),
    (file_with({"__metadata__": []}), "no dictionary of texts"),
    (file_with({"a": 1}), "not described by"),
    (file_with({"a": entry(more=1)}, EIGHT), "not described by"),
    (file_with({"a": entry(dtype="F3")}, EIGHT), "unknown dtype 'F3'"),
    (file_with({"a": entry(dtype=["F32"])}, EIGHT), "unknown dtype"),
    (file_with({"a": entry(shape=(-2,))}, EIGHT), "has the shape"),
    (file_with({"a": entry(shape=(2.0,))}, EIGHT), "has the shape"),
    (file_with({"a": entry(shape=(True, 2))}, EIGHT), "has the shape"),
    (file_with({"a": entry(shape=(2**61, 2**61))}, EIGHT), "lies at 0 to 8"),
    (file_with({"a": entry(shape=(3,))}, EIGHT), "lies at 0 to 8, where 0 to 12 is due"),
    (file_with({"a": entry(offsets=(0, 8, 9))}, EIGHT), "data_offsets"),
    (file_with({"a": entry(offsets=(8, 0))}, EIGHT), "lies at 8 to 0"),
    (file_with({"a": entry(offsets=(0, 8))}), "lies at 0 to 8"),
    (file_with({"a": entry(offsets=(4, 12))}, bytes(12)), "lies at 4 to 12"),
    (file_with({"a": entry(), "b": entry()}, EIGHT), "lies at 0 to 8, where 8 to 16 is due"),
    (file_with({"a": entry()}, bytes(9)), "1 bytes at its end are of no tensor"),
])  # fmt: skip
def test_a_file_that_lies_is_refused_in_one_line(data, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        tensors_from_bytes(data)
    assert len(str(error.value).splitlines()) == 1


def test_whatever_byte_is_changed_it_is_refused_or_read_as_a_file_of_tensors():
    data = tensors_to_bytes({"a": np.arange(6, dtype=np.float32), "b.c": np.arange(3, dtype=np.uint8)})
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            try:
                tensors_from_bytes(bytes(changed))
            except ValueError:
                continue
        with pytest.raises(ValueError):
            tensors_from_bytes(data[:at])

"""Tensors in the safetensors format, which holds arrays and text and nothing that could be executed.

    8 bytes                 length of the header, little endian
    header                  {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
    data                    the raw bytes of all tensors; offsets count from its first byte

The header may have an entry "__metadata__", a dictionary of texts. The format is small enough to be read here with
every claim checked: tensors of known types, of exactly the bytes that their shapes need, that fill the data without a
gap or an overlap. The format's own library reads what is written here, and the reverse
(tests/devices/tensor_file_test.py).
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

LONGEST_HEADER = 2**24  # bytes
METADATA = "__metadata__"
NAMES = {  # of types: NumPy's, and the format's
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "float16": "F16", "bfloat16": "BF16",
    "uint32": "U32", "int32": "I32", "float32": "F32", "uint64": "U64", "int64": "I64", "float64": "F64",
}  # fmt: skip
TYPES = {theirs: ours for ours, theirs in NAMES.items()}


def tensors_to_bytes(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a file with these tensors and texts. The same tensors give the same bytes."""
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    parts, end = [], 0
    for name, array in sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):  # aligned
        part = array.astype(array.dtype.newbyteorder("<")).tobytes()
        offsets, end = [end, end + len(part)], end + len(part)
        header[name] = {"dtype": NAMES[array.dtype.name], "shape": list(array.shape), "data_offsets": offsets}
        parts.append(part)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def tensors_from_bytes(data: bytes | mmap.mmap) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors and texts of a file. Arrays are views of `data`, and so read-only.

    `data` may be a file that is mapped into memory: then a tensor takes memory only while it is used.

    Raises ValueError, with one line, for anything that is not exactly this format.
    """
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(LONGEST_HEADER, len(data) - 8):
        raise ValueError("it is no file of tensors: its header is cut off or too long")
    try:
        header = json.loads(data[8 : 8 + length].decode(), object_pairs_hook=_without_doubles)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError("it is no file of tensors: its header is not JSON") from error
    if not isinstance(header, dict):
        raise ValueError("it is no file of tensors: its header is no JSON object")
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError(f"its {METADATA} is no dictionary of texts")
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: _offsets(*item)):
        start, stop = _offsets(name, entry)
        dtype, shape = _type_and_shape(name, entry)
        size = math.prod(shape) * dtype.itemsize
        if start != end or stop - start != size or stop > len(data) - 8 - length:
            raise ValueError(f"the tensor {name!r:.80} lies at {start} to {stop}, where {end} to {end + size} is due")
        tensors[name] = np.frombuffer(data, dtype, math.prod(shape), 8 + length + start).reshape(shape)
        end = stop
    if 8 + length + end != len(data):
        raise ValueError(f"{len(data) - 8 - length - end} bytes at its end are of no tensor")
    return tensors, metadata


def _without_doubles(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"its header has {name!r:.80} twice")
        found[name] = value
    return found


def _offsets(name: str, entry: Any) -> tuple[int, int]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"the tensor {name!r:.80} is not described by dtype, shape and data_offsets")
    offsets = entry["data_offsets"]
    if not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError(f"the tensor {name!r:.80} has the data_offsets {offsets!s:.80}")
    return offsets[0], offsets[1]


def _type_and_shape(name: str, entry: dict[str, Any]) -> tuple[np.dtype, tuple[int, ...]]:
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in TYPES:
        raise ValueError(f"the tensor {name!r:.80} has the unknown dtype {entry['dtype']!r:.80}")
    if not _are_counts(entry["shape"]) or len(entry["shape"]) > 32:
        raise ValueError(f"the tensor {name!r:.80} has the shape {entry['shape']!s:.80}")
    if TYPES[entry["dtype"]] == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16), tuple(entry["shape"])
    return np.dtype(TYPES[entry["dtype"]]).newbyteorder("<"), tuple(entry["shape"])


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**62 for value in values)

"""One annotation of all its shards, in the published form.

preference/<name>.npy            int8 [N] codes of `Preference`
preference/<name>/prob.npy       float32 [N] P(second is better), NaN where unknown
preference/<name>/merged.json    what it is made of, with checksums
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from motif_jax.files import write_array, write_json
from motif_jax.preferences.shards import Part, checksum, count, read_labels, read_record, rows_of
from motif_jax.preferences.store import PairDataset, Preference
from motif_jax.structs import UserError


def check_free(dataset: PairDataset, name: str) -> None:
    """Refuses to write over an annotation that somebody else made."""
    file = dataset.path / "preference" / f"{name}.npy"
    if file.exists() and not (dataset.path / "preference" / name / "merged.json").exists():
        raise UserError(
            f"annotation {name!r} is in the dataset already and was not made by this stage: choose another "
            "--config.annotate.custom_name"
        )


class Merged(NamedTuple):
    """What a merge came to."""

    counts: dict[str, int]
    missing: list[int]  # shards that are not there, or not finished
    written: bool
    logs: dict[str, Any]  # of the shards


def is_merged(dataset: PairDataset, name: str, facts: Mapping[str, Any]) -> bool:
    """Whether the merged labels are there, whole, and of all shards."""
    try:
        record = json.loads((dataset.path / "preference" / name / "merged.json").read_text())
        codes = np.load(dataset.path / "preference" / f"{name}.npy", allow_pickle=False)
        prob = np.load(dataset.path / "preference" / name / "prob.npy", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return False
    written = {"codes": checksum(codes), "prob": checksum(prob)}
    return record["facts"] == facts and not record["missing_shards"] and record["checksums"] == written


def merge(
    dataset: PairDataset, name: str, num_shards: int, of_pair: np.ndarray, facts: Mapping[str, Any], partial: bool
) -> Merged:
    """Puts the shards together, if all are finished or if a `partial` annotation is wished.

    Two jobs may do this at the same time: they write the same.
    """
    folder = dataset.path / "preference" / name
    codes = np.full(len(dataset), Preference.UNKNOWN, np.int8)
    prob = np.full(len(dataset), np.nan, np.float32)
    missing, logs = [], {}
    for part in (Part(number, num_shards) for number in range(num_shards)):
        file = folder / f"{part.stem}.json"
        record = read_record(file) if file.exists() else None
        if record is not None and record["facts"] == facts:  # those of other facts wait to be made anew
            rows = rows_of(part, of_pair)
            codes[rows], prob[rows] = read_labels(folder, part, len(rows), record)
            logs[part.stem] = record["log"]
        if part.stem not in logs or record is None or not record["finished"]:
            missing.append(part.number)
    merged = Merged(count(codes), missing, partial or not missing, logs)
    if merged.written:
        record = {"facts": dict(facts), "missing_shards": missing, "counts": merged.counts, "shards": logs}
        record["checksums"] = {"codes": checksum(codes), "prob": checksum(prob)}
        write_json(folder / "merged.json", record)
        write_array(folder / "prob.npy", prob)
        write_array(folder.with_suffix(".npy"), codes)
    return merged

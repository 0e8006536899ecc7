"""Merges the shards of an annotation into the published format.

dataset/preference/<name>.npy     int8 [N] codes of `Preference`
annotations/<name>/prob.npy       float32 [N] P(second is better), NaN where unknown
annotations/<name>/merged.json    metadata of dataset and config, counts, logs of the shards

Pairs that were never asked have the label UNKNOWN, as published; the record has their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from motif_jax.files import read_json, write_array, write_json
from motif_jax.preferences.shards import Part, check_same, count, folder_lock, read_labels, rows_of
from motif_jax.preferences.store import PairDataset, Preference, annotation_folder, labels_file
from motif_jax.structs import UserError

NOT_ASKED = "not_asked"  # key in the log of a shard and in a merge's record: number of pairs that were not asked


def check_free(dataset: PairDataset, name: str) -> None:
    """Raises UserError if the name belongs to labels from elsewhere, which must not be overwritten."""
    merged = annotation_folder(dataset.path, name) / "merged.json"
    if labels_file(dataset.path, name).exists() and not merged.exists():
        raise UserError(
            f"annotation {name!r} is in the dataset already and was not made by this stage: choose another "
            "--config.annotate.custom_name"
        )


class Merged(NamedTuple):
    """The result of a merge."""

    counts: dict[str, int]  # labels by kind, pairs that were not asked apart; empty if nothing was written
    missing: list[int]  # shards that do not exist or are not finished
    written: bool
    logs: dict[str, Any]  # by shard


def is_merged(dataset: PairDataset, name: str, metadata: Mapping[str, Any]) -> bool:
    """Whether the merged labels of all shards exist and have this metadata."""
    file = annotation_folder(dataset.path, name) / "merged.json"
    if not (file.exists() and labels_file(dataset.path, name).exists()):
        return False
    record = read_json(file)
    return bool(record["facts"] == metadata and record["written"] and not record["missing_shards"])


def merge(
    dataset: PairDataset, name: str, num_shards: int, of_pair: np.ndarray, metadata: Mapping[str, Any], partial: bool
) -> Merged:
    """Merges the shards if all are finished; with `partial`, merges the existing ones.

    Args:
      dataset, name: the dataset, and the name of the annotation.
      of_pair: the question of each pair, or -1. [N]
      metadata: of dataset and config. Shards with another one count as missing, or raise UserError with `partial`.
      partial: whether to merge before all shards are finished; the missing labels are unknown.
    """
    folder = annotation_folder(dataset.path, name)
    if not folder.is_dir() or (partial and not any(folder.glob("shard-*.json"))):
        raise UserError(f"annotation {name!r} has no shards to merge (--config.annotate.custom_name, .merge)")
    with folder_lock(folder):
        records = {file.stem: read_json(file) for file in sorted(folder.glob("shard-*.json"))}
        if partial:
            for record in records.values():
                check_same(folder, record, metadata)
        records = {stem: record for stem, record in records.items() if record["facts"] == metadata}
        parts = [Part(number, num_shards) for number in range(num_shards)]
        missing = [part.number for part in parts if not records.get(part.stem, {}).get("finished")]
        logs = {part.stem: records[part.stem]["log"] for part in parts if part.stem in records}
        if missing and not partial:
            return Merged({}, missing, False, logs)

        codes = np.full(len(dataset), Preference.UNKNOWN, np.int8)
        prob = np.full(len(dataset), np.nan, np.float32)
        not_asked = 0
        for part in parts:
            rows, shard = rows_of(part, of_pair), records.get(part.stem)
            if shard:
                codes[rows], prob[rows] = read_labels(folder, part, len(rows))
            not_asked += logs[part.stem].get(NOT_ASKED, 0) if shard else len(rows)
        counts = count(codes)
        summary: dict[str, Any] = {"facts": dict(metadata), "missing_shards": missing, "counts": counts}
        summary |= {"shards": logs, NOT_ASKED: not_asked}
        write_json(folder / "merged.json", summary | {"written": False})  # first: `check_free` needs it beside labels
        write_array(folder / "prob.npy", prob)
        write_array(labels_file(dataset.path, name), codes)
        write_json(folder / "merged.json", summary | {"written": True})
        return Merged(_by_kind(counts, not_asked), missing, True, logs)


def last_merge(dataset: PairDataset, name: str) -> Merged:
    """The result of the last merge, also of one where the dataset comes from."""
    record = read_json(annotation_folder(dataset.path, name) / "merged.json")
    counts = _by_kind(record["counts"], record.get(NOT_ASKED, 0))
    return Merged(counts, record["missing_shards"], True, record["shards"])


def _by_kind(counts: dict[str, int], not_asked: int) -> dict[str, int]:
    """The labels by kind; those that were not asked apart."""
    apart = min(not_asked, counts["unknown"])
    return counts | {"unknown": counts["unknown"] - apart, "not asked": apart}

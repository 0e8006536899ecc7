"""A shard of an annotation: the labels of one job, and their files.

    annotations/<name>/shard-00003-of-00016.prob.npy    float32 [M] P(second is better), NaN where unknown
    annotations/<name>/shard-00003-of-00016.json        metadata of dataset and config, log

At first all labels are unknown. Every commit replaces the files; a killed job loses the labels since its last commit.
`merge` combines all shards into one annotation, and computes the codes of its labels.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from motif_jax.config.table import shown
from motif_jax.files import Held, read_json, take, write_array, write_json
from motif_jax.preferences.store import PairDataset, Preference, annotation_folder, labels_file
from motif_jax.structs import UserError

FILE = r"shard-\d+-of-\d+(\.npy|\.prob\.npy|\.json)"  # a shard's own, also of 0.2; others beside it are kept
ORDER = "order.json"  # questions in the order in which they are asked, if disagreement decides it
ROUNDING = 1e-6  # of probabilities, so that a pair and its turned copy fall on the same side of a margin
TRY = "choose another --config.annotate.custom_name, or --config.annotate.ignore_existing=True to make it anew"


class Part(NamedTuple):
    """One part of an annotation: the number of the shard, and the number of shards."""

    number: int
    of: int

    @property
    def stem(self) -> str:
        return f"shard-{self.number:05d}-of-{self.of:05d}"


class Shard:
    """The labels of some rows, new or from an earlier run, locked against other jobs; a context manager."""

    def __init__(
        self, folder: Path, part: Part, rows: np.ndarray, metadata: Mapping[str, Any], replaces: Path | None = None
    ):
        """Opens the shard, whose `rows` of the dataset [M] have `prob`, P(second is better). [M] float32, NaN: unknown

        `metadata`: of dataset and config, a flat dict; equal in all shards of an annotation.
        `replaces`: the merged labels, to delete them and existing shards; None: go on with these.
        """
        self.folder, self.part = folder, part
        self._record_file = folder / f"{part.stem}.json"
        folder.mkdir(parents=True, exist_ok=True)
        # The folder's lock first, because jobs that hold it briefly take the locks of other shards.
        with folder_lock(folder), contextlib.ExitStack() as on_error:
            self._lock = on_error.enter_context(take_lock(folder, part))
            if replaces:
                self._clear(replaces)
            self._check_others(metadata)
            new = {"facts": dict(metadata), "finished": False, "log": {}}
            self.record: dict[str, Any] = read_json(self._record_file) if self._record_file.exists() else new
            self.prob = read_prob(folder, part, len(rows))
            if not self.record["log"] and (folder / "prob.npy").exists():  # it is new, and labels came with the dataset
                self.prob = np.load(folder / "prob.npy")[rows]
            on_error.pop_all()

    def commit(self, finished: bool, log: Mapping[str, Any]) -> None:
        """Writes the labels to disk. `log`: counts, times and versions of this job.

        `finished`: all questions of the shard were asked. It is written last, because others may then merge the shard.
        """
        self.record |= {"finished": finished, "log": dict(log)}
        with folder_lock(self.folder):
            if not self._record_file.exists():  # a job with other settings, opened at the same time, may have committed
                self._check_others(self.record["facts"])
            write_json(self._record_file, self.record | {"finished": False})
            write_array(self.folder / f"{self.part.stem}.prob.npy", self.prob)
            if finished:
                write_json(self._record_file, self.record)

    def __enter__(self) -> Shard:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _check_others(self, metadata: Mapping[str, Any]) -> None:
        """Raises UserError if a job with other settings has committed labels, here or where the dataset comes from."""
        for other in sorted(self.folder.glob("shard-*.json")) or self.folder.glob("merged.json"):
            check_same(self.folder, read_json(other), metadata)

    def _clear(self, labels: Path) -> None:
        """Deletes this shard, all of another division, and the merged labels. Records go first: they promise labels."""
        files = [file for file in self.folder.glob("shard-*") if re.fullmatch(FILE, file.name)]
        own = [file for file in files if file.name.startswith(f"{self.part.stem}.")]
        others = [file for file in files if f"-of-{self.part.of:05d}." not in file.name]
        for part in {Part(*map(int, re.findall(r"\d+", file.name))) for file in others}:
            take_lock(self.folder, part).close()  # raises if a job is writing it
        names = ("prob.npy", "merged.json", *(("neutral.json", ORDER) if self.part.number == 0 else ()))
        merged = [self.folder / name for name in names]
        for file in sorted((labels, *merged, *own, *others), key=lambda file: file.suffix != ".json"):
            file.unlink(missing_ok=True)


def take_lock(folder: Path, part: Part) -> IO[bytes]:
    """Locks a shard against other jobs; closing the returned file releases the lock."""
    try:
        return take(folder / f".{part.stem}.lock")
    except Held as held:
        what = f"shard {part.number} of {part.of} of annotation {folder.name!r}"
        raise UserError(f"{what} is being written by {held.holder} (--config.annotate.shard)") from None


def folder_lock(folder: Path) -> IO[bytes]:
    """The annotation's lock, for a `with` in which files are changed, or several are read."""
    return take(folder / ".lock", wait=True)


def question_range(part: Part, num_questions: int) -> tuple[int, int]:
    """The first question of a shard, and the number after its last."""
    return num_questions * part.number // part.of, num_questions * (part.number + 1) // part.of


def rows_of(part: Part, of_pair: np.ndarray) -> np.ndarray:
    """The rows of a shard, ascending [M]: all pairs of its questions, and its share of the pairs without a question.

    So every question belongs to one job, and neighbouring questions, which share the first caption, stay together.
    `of_pair`: the question of each pair, or -1. [N]
    """
    low, high = question_range(part, int(of_pair.max(initial=-1)) + 1)
    silent = np.flatnonzero(of_pair < 0)
    first, last = (len(silent) * number // part.of for number in (part.number, part.number + 1))
    return np.sort(np.concatenate([np.flatnonzero((of_pair >= low) & (of_pair < high)), silent[first:last]]))


def to_codes(prob: np.ndarray, tie_margin: float) -> np.ndarray:
    """Codes of P(second is better): TIE within the margin around 1/2, UNKNOWN for NaN. [K] -> [K] int8"""
    codes = np.where(prob > 0.5, Preference.SECOND, Preference.FIRST)
    codes = np.where(np.abs(prob - 0.5) <= tie_margin + ROUNDING, Preference.TIE, codes)
    return np.where(np.isnan(prob), Preference.UNKNOWN, codes).astype(np.int8)


def soft_target(codes: np.ndarray, prob: np.ndarray | None) -> np.ndarray:
    """P(second is better): the annotator's own where known, else 0, 1 or 1/2 from the code; NaN: unknown. [N]"""
    target = np.array([0, 1, 0.5, np.nan], np.float32)[codes]
    if prob is not None:
        target = np.where(np.isnan(prob) | np.isnan(target), target, prob)
    return target


def mix(targets: dict[str, np.ndarray], weights: dict[str, float]) -> np.ndarray:
    """The weighted mean of the targets; NaN where any of them is NaN. [N]"""
    # In float64, whose rounding errors vanish in float32: a tie of all annotators must give exactly 1/2.
    parts = [weights[name] * target.astype(np.float64) for name, target in targets.items()]
    return np.sum(parts, 0).astype(np.float32)


def count(codes: np.ndarray) -> dict[str, int]:
    """The number of labels by kind, in lower case."""
    return {kind.name.lower(): int((codes == kind).sum()) for kind in Preference}


def read_prob(folder: Path, part: Part, num_rows: int) -> np.ndarray:
    """The probabilities of a shard, unknown before its first commit. [M] float32"""
    file = folder / f"{part.stem}.prob.npy"
    return np.load(file) if file.exists() else np.full(num_rows, np.nan, np.float32)


def check_same(folder: Path, record: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Raises UserError if a shard's labels come from another dataset or other settings."""
    before = record["facts"]
    for key in metadata | before:
        if before.get(key) != metadata.get(key):
            old, new = (shown(values.get(key)) for values in (before, metadata))
            raise UserError(f"annotation {folder.name!r} has {key} = {old}, not {new}: {TRY}")


# Merges the shards of an annotation into the published format.
#
# dataset/preference/<name>.npy     int8 [N] codes of `Preference`
# annotations/<name>/prob.npy       float32 [N] P(second is better), NaN where unknown
# annotations/<name>/merged.json    metadata of dataset and config, counts, logs of the shards
#
# Pairs that were never asked have the label UNKNOWN, as published; the record has their number.

NOT_ASKED = "not_asked"  # key in the log of a shard and in a merge's record: number of pairs that were not asked


def check_free(dataset: PairDataset, name: str) -> None:
    """Raises UserError if the name belongs to labels from elsewhere, which must not be overwritten."""
    merged = annotation_folder(dataset.path, name) / "merged.json"
    if labels_file(dataset.path, name).exists() and not merged.exists():
        what = f"annotation {name!r} is in the dataset already and was not made by this stage"
        raise UserError(f"{what}: choose another --config.annotate.custom_name")


def is_merged(dataset: PairDataset, name: str, metadata: Mapping[str, Any]) -> bool:
    """Whether the labels of all shards are merged, with this metadata."""
    file = annotation_folder(dataset.path, name) / "merged.json"
    if not (file.exists() and labels_file(dataset.path, name).exists()):
        return False
    record = read_json(file)
    return bool(record["facts"] == metadata and record["written"] and not record["missing_shards"])


def merge(
    dataset: PairDataset, name: str, num_shards: int, of_pair: np.ndarray, metadata: Mapping[str, Any], partial: bool
) -> list[int]:
    """Merges the shards if all are finished; with `partial`, the existing ones. Returns those that are not finished.

    `of_pair`: the question of each pair, or -1. [N] `metadata`: of dataset and config. Shards with another one count as
    missing, or raise UserError with `partial`.
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
            return missing

        prob = np.full(len(dataset), np.nan, np.float32)
        not_asked = 0
        for part in parts:
            rows, log = rows_of(part, of_pair), logs.get(part.stem)
            not_asked += len(rows) if log is None else log.get(NOT_ASKED, 0)
            if log is not None:
                prob[rows] = read_prob(folder, part, len(rows))
        codes = to_codes(prob, metadata.get("tie_margin", 0.0))  # 0: of rules and oracles
        summary: dict[str, Any] = {"facts": dict(metadata), "missing_shards": missing, "counts": count(codes)}
        summary |= {"shards": logs, NOT_ASKED: not_asked}
        write_json(folder / "merged.json", summary | {"written": False})  # first: `check_free` needs it beside labels
        write_array(folder / "prob.npy", prob)
        write_array(labels_file(dataset.path, name), codes)
        write_json(folder / "merged.json", summary | {"written": True})
    return missing


def last_merge(dataset: PairDataset, name: str) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """The labels of the last merge by kind, pairs that were not asked apart; and the logs of its shards."""
    record = read_json(annotation_folder(dataset.path, name) / "merged.json")
    counts = record["counts"]
    not_asked = min(record.get(NOT_ASKED, 0), counts["unknown"])
    counts |= {"unknown": counts["unknown"] - not_asked, "not asked": not_asked}
    return counts, list(record["shards"].values())

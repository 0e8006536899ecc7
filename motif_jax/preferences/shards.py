"""The state of an annotation, a file of lines for each job; and its labels, which are computed from all of them.

    annotations/<name>/answers-00003-of-00016.jsonl    of job 3 of 16: lines are appended, and a torn last one is cut

    {"metadata": {...}}                          first: everything that decides labels, equal in all jobs
    {"given": [5], "yes": [0.75]}                labels of questions that came with the dataset; they are not asked
    {"ask": [34, 36, 35]}                        wanted from here on, in this order: a round
    {"asked": [34, 36], "yes": [0.9, null]}      answers, P(second is better) in the order shown; null: no verdict
    {"again": [36]}                              asked without a verdict, and wanted again
    {"log": {...}}                               counts, times and versions of this job so far; the last one counts

`ask`, `asked` and `again` have the number 2 * question, or 2 * question + 1 with its captions in the other order.
Questions are those of `questions.py`, whose texts lie in the dataset, and after them the captions of its caption table,
each asked beside a moment without a message.

The label of a question is the mean of the answers in its wanted orders; it is unknown if one of them has no verdict.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from motif_jax.config.table import shown
from motif_jax.files import Held, LineFile, read_json, read_lines, take, write_array, write_json
from motif_jax.preferences.questions import NEUTRAL, Questions, write_neutral
from motif_jax.preferences.store import PairDataset, Preference, annotation_folder, labels_file
from motif_jax.structs import UserError

FILE = r"(answers|shard)-\d+-of-\d+(\.jsonl|\.json|\.npy|\.prob\.npy)"  # a job's own, also of earlier versions
OPENED = "opened"  # the part of the metadata that is known once the judge is opened
ROUNDING = 1e-6  # of probabilities, so that a pair and its turned copy fall on the same side of a margin
TRY = "choose another --config.annotate.custom_name, or --config.annotate.ignore_existing=True to make it anew"


class Part(NamedTuple):
    """One part of an annotation: the number of the shard, and the number of shards."""

    number: int
    of: int

    @property
    def stem(self) -> str:
        return f"answers-{self.number:05d}-of-{self.of:05d}"

    def questions(self, count: int) -> tuple[int, int]:
        """Its first question of `count`, and the number after its last: neighbours share the first caption."""
        return count * self.number // self.of, count * (self.number + 1) // self.of


class Answers:
    """What is wanted and answered, by the lines of some files. C: number of questions, captions included.

    wanted, asked  [C, 2] bool: in the question's own order, and in the other one
    yes            [C, 2] float64: P(second is better), of the question's own order; NaN: no verdict
    given          [C] float32: labels that came with the dataset; else NaN
    rounds         the questions of each round, in the order in which they are wanted
    """

    def __init__(self, count: int):
        self.wanted, self.asked = np.zeros((2, count, 2), bool)
        self.yes, self.given = np.full((count, 2), np.nan), np.full(count, np.nan, np.float32)
        self.rounds: list[list[int]] = []
        self.metadata: dict[str, Any] = {}
        self.log: dict[str, Any] = {}

    def read(self, file: Path) -> None:
        """Applies the lines of a file, of which most are single answers: those in a row together."""
        asked: dict[str, list[Any]] = {"asked": [], "yes": []}
        for line in read_lines(file):
            if "asked" in line:
                for name, values in asked.items():
                    values += line[name]
            else:
                self.apply(asked)
                self.apply(line)
                asked = {"asked": [], "yes": []}
        self.apply(asked)

    def apply(self, line: Mapping[str, Any]) -> None:
        match line:
            case {"metadata": metadata}:
                self.metadata = metadata
            case {"given": numbers, "yes": yes}:
                self.given[numbers] = yes
            case {"ask": spots}:
                self.wanted.reshape(-1)[spots] = True
                if own := [spot // 2 for spot in spots if not spot % 2]:
                    self.rounds.append(own)
            case {"asked": spots, "yes": yes} if spots:
                self.asked.reshape(-1)[spots] = True
                yes = np.array(yes, np.float64)
                self.yes.reshape(-1)[spots] = np.where(np.array(spots) % 2, 1 - yes, yes)
            case {"again": spots}:
                self.asked.reshape(-1)[spots] = False
            case {"log": log}:
                self.log = log

    def open_spots(self, numbers: np.ndarray) -> np.ndarray:
        """What is wanted of these questions and was not asked, in their order. [K]"""
        rows, turned = np.nonzero(self.wanted[numbers] & ~self.asked[numbers])
        return 2 * numbers[rows] + turned

    def labels(self) -> np.ndarray:
        """P(second is better) of each question. [C] float32"""
        own, turned = self.yes.astype(np.float32).T
        return np.where(np.isnan(self.given), np.where(self.wanted[:, 1], (own + turned) / 2, own), self.given)

    def unfinished(self) -> np.ndarray:
        """Which questions have no label and were not, or not yet in all wanted orders, asked. [C] bool"""
        return np.isnan(self.given) & ~(self.wanted[:, 0] & (self.asked >= self.wanted).all(1))


class AnswerFile(Answers):
    """The answers in one file, to which they are appended. Nothing is written before the first verdict.

    Until then the file would bind later runs to settings that may not work.
    """

    def __init__(self, file: Path, count: int):
        super().__init__(count)
        self.file = file
        self._lines: LineFile | None = None
        self._new: list[dict[str, Any]] = []  # lines that are not written
        self._has_verdict = False  # among these
        if file.exists():
            self.read(file)
        self.is_new = not self.metadata

    def append(self, line: dict[str, Any]) -> None:
        self.apply(line)
        self._new.append(line)

    def want(self, spots: np.ndarray) -> None:
        """Begins a round with those that were not wanted before, unless their label came with the dataset."""
        new = ~self.wanted.reshape(-1)[spots] & np.isnan(self.given[spots // 2])
        if new.any():
            self.append({"ask": spots[new].tolist()})

    def add(self, spot: int, yes: float | None) -> None:
        """Adds an answer; it is appended to the last line, if that is not written and has answers, too."""
        number, turned = divmod(spot, 2)
        self.asked[number, turned] = True
        if yes is not None:
            self.yes[number, turned] = 1 - yes if turned else yes
            self._has_verdict = True
        last = self._new[-1] if self._new else {}
        if "asked" not in last:
            self._new.append(last := {"asked": [], "yes": []})
        last["asked"].append(spot)
        last["yes"].append(yes)

    def save(self, metadata: Mapping[str, Any], ended: bool = False, sync: bool = False) -> None:
        """Writes new lines; a new file begins with the metadata. `ended`: also without a verdict."""
        if self.is_new and not (ended or self._has_verdict):
            return
        with self._beginning(metadata) if self.is_new else contextlib.nullcontext():
            self._lines = self._lines or LineFile(self.file)
            if self.is_new:
                self.metadata, self.is_new = dict(metadata), False
                self._new.insert(0, {"metadata": self.metadata})
            self._lines.add(self._new, sync)
        self._new = []

    def _beginning(self, metadata: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
        """The context in which a new file gets its first lines."""
        return contextlib.nullcontext()

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()


class Shard(AnswerFile):
    """The answers of one job, new or from an earlier run, locked against other jobs; a context manager."""

    def __init__(self, folder: Path, part: Part, questions: Questions, metadata: Mapping[str, Any], anew: bool = False):
        """`metadata`: of dataset and config, a flat dict. `anew`: deletes the labels and this shard."""
        self.folder, self.part = folder, part
        self.low, self.high = part.questions(len(questions))
        folder.mkdir(parents=True, exist_ok=True)
        # The folder's lock first, because jobs that hold it briefly take the locks of other shards.
        with folder_lock(folder), contextlib.ExitStack() as on_error:
            self._lock = on_error.enter_context(take_lock(folder, part))
            if anew:
                clear(questions.dataset, folder.name, part)
            check_others(folder, metadata)
            super().__init__(folder / f"{part.stem}.jsonl", count_all(questions))
            if self.is_new and (folder / "prob.npy").exists():  # labels that came with the dataset
                labels = questions.labels(np.load(folder / "prob.npy"))[self.low : self.high]
                known = np.flatnonzero(~np.isnan(labels))
                if len(known):
                    self.append({"given": (self.low + known).tolist(), "yes": labels[known].tolist()})
            on_error.pop_all()

    @contextlib.contextmanager
    def _beginning(self, metadata: Mapping[str, Any]) -> Iterator[None]:
        with folder_lock(self.folder):
            check_others(self.folder, metadata)  # a job with other settings, opened at the same time, may have begun
            yield

    def __enter__(self) -> Shard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._lock.close()


def count_all(questions: Questions) -> int:
    """The number of questions about pairs, and of those about a caption beside a moment without a message."""
    return len(questions) + len(questions.dataset.captions()[0])


def clear(dataset: PairDataset, name: str, part: Part) -> None:
    """Deletes the labels, this shard, and all of another division or of earlier versions."""
    folder = annotation_folder(dataset.path, name)
    files = [file for file in folder.iterdir() if re.fullmatch(FILE, file.name)]
    others = [file for file in files if f"-of-{part.of:05d}.jsonl" not in file.name]
    for file in others:
        if file.suffix == ".jsonl":  # raises if a job is writing it
            take_lock(folder, Part(*map(int, re.findall(r"\d+", file.name)))).close()
    names = ("prob.npy", "merged.json", f"{part.stem}.jsonl", *(("order.json", NEUTRAL) if part.number == 0 else ()))
    for file in (labels_file(dataset.path, name), *(folder / one for one in names), *others):
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


# ---- may these labels be gone on with, or used as they are?


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The values of the metadata that differ, in words; those of an opened judge, if both have been opened."""
    skipped = () if OPENED in before and OPENED in now else (OPENED,)
    keys = [key for key in {**now, **before} if key.partition(".")[0] not in skipped]
    return [
        f"{key} = {shown(before.get(key))}, not {shown(now.get(key))}"
        for key in keys
        if before.get(key) != now.get(key)
    ]


def check_others(folder: Path, metadata: Mapping[str, Any]) -> None:
    """Raises UserError if a job with other settings, or an earlier version, began the annotation."""
    begun = [next(read_lines(file), {}).get("metadata") for file in sorted(folder.glob("answers-*.jsonl"))]
    for before in filter(None, begun or [read_json(file)["facts"] for file in folder.glob("merged.json")]):
        if values := differences(before, metadata):
            raise UserError(f"annotation {folder.name!r} has {'; '.join(values)}: {TRY}")
    if old := sorted(file.name for file in folder.glob("shard-*") if re.fullmatch(FILE, file.name)):
        raise UserError(
            f"annotation {folder.name!r} was begun and not finished by an earlier version of motif_jax ({old[0]}): "
            f"finish it with that version, {TRY}"
        )


def check_free(dataset: PairDataset, name: str) -> None:
    """Raises UserError if the name belongs to labels from elsewhere, which must not be overwritten."""
    merged = annotation_folder(dataset.path, name) / "merged.json"
    if labels_file(dataset.path, name).exists() and not merged.exists():
        what = f"annotation {name!r} is in the dataset already and was not made by this stage"
        raise UserError(f"{what}: choose another --config.annotate.custom_name")


def is_merged(dataset: PairDataset, name: str, metadata: Mapping[str, Any]) -> bool:
    """Whether all labels are there, with this metadata."""
    file = annotation_folder(dataset.path, name) / "merged.json"
    if not (file.exists() and labels_file(dataset.path, name).exists()):
        return False
    record = read_json(file)
    return bool(record["written"] and not record["missing_shards"]) and not differences(record["facts"], metadata)


# ---- labels in the published format, computed from the shards
#
# dataset/preference/<name>.npy     int8 [N] codes of `Preference`
# annotations/<name>/prob.npy       float32 [N] P(second is better), NaN where unknown
# annotations/<name>/neutral.json   P(better than a moment without a message) of captions, if these were asked
# annotations/<name>/merged.json    metadata, counts, logs of the shards
#
# Pairs that were never asked have the label UNKNOWN, as published; the record has their number.

NOT_ASKED = "not_asked"  # key in the record: number of pairs that were not asked
NOTHING = "annotation {!r} has no shards to merge (--config.annotate.custom_name, .merge)"


def merge(questions: Questions, name: str, num_shards: int, metadata: Mapping[str, Any], partial: bool) -> list[int]:
    """Computes the labels if all is answered; with `partial`, those that are. Returns the shards that are not finished.

    `metadata`: of dataset and config; raises UserError if the shards have another one.
    """
    dataset, size = questions.dataset, len(questions)
    folder = annotation_folder(dataset.path, name)
    if not folder.is_dir():
        raise UserError(NOTHING.format(name))
    with folder_lock(folder):
        check_others(folder, metadata)
        answers, logs = Answers(count_all(questions)), {}
        for file in sorted(folder.glob("answers-*.jsonl")):
            answers.log = {}
            answers.read(file)
            logs[file.stem] = answers.log
        if partial and not logs:
            raise UserError(NOTHING.format(name))
        left = answers.unfinished()
        left[size:] &= answers.wanted[size:, 0]  # beside a moment without a message: of the first job
        owned = [np.arange(*Part(number, num_shards).questions(size)) for number in range(num_shards)]
        owned[0] = np.append(owned[0], np.arange(size, len(left)))
        missing = [number for number, own in enumerate(owned) if left[own].any()]
        if missing and not partial:
            return missing

        labels = np.append(answers.labels()[:size], np.float32(0.5))[questions.of_pair]  # -1: the last, of a tie
        prob = np.where(questions.turned, 1 - labels, labels)
        asked = np.append(answers.asked[:size].any(1), True)[questions.of_pair]
        if captions := [number - size for numbers in answers.rounds for number in numbers if number >= size]:
            write_neutral(folder, np.array(captions), answers.yes[size:][captions])
        not_asked = int((np.isnan(prob) & ~asked).sum())
        write_labels(dataset, name, prob, answers.metadata or metadata, missing, logs, not_asked)
    return missing


def write_labels(
    dataset: PairDataset, name: str, prob: np.ndarray, metadata: Mapping[str, Any], missing: list[int],
    logs: Mapping[str, Any], not_asked: int,
) -> None:  # fmt: skip
    """Writes labels, P(second is better) [N] float32; others must not write them at the same time."""
    folder, codes = annotation_folder(dataset.path, name), to_codes(prob, metadata.get("tie_margin", 0.0))
    summary: dict[str, Any] = {
        "facts": dict(metadata),
        "missing_shards": missing,
        "counts": count(codes),
        "shards": logs,
    }
    summary[NOT_ASKED] = not_asked
    write_json(folder / "merged.json", summary | {"written": False})  # first: `check_free` needs it beside labels
    write_array(folder / "prob.npy", prob)
    write_array(labels_file(dataset.path, name), codes)
    write_json(folder / "merged.json", summary | {"written": True})


def last_merge(dataset: PairDataset, name: str) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """The labels of the last merge by kind, pairs that were not asked apart; and the logs of its shards."""
    record = read_json(annotation_folder(dataset.path, name) / "merged.json")
    counts = record["counts"]
    not_asked = min(record.get(NOT_ASKED, 0), counts["unknown"])
    counts |= {"unknown": counts["unknown"] - not_asked, "not asked": not_asked}
    return counts, list(record["shards"].values())


# ---- labels as arrays


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

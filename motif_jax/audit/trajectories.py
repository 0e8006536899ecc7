"""Reads the trajectories of anybody's agent: one JSON object per line, for a step or for a whole episode.

    {"episode": 0, "step": 3, "reward": 1.0, "caption": "You open the door.", "ended": false}

docs/trajectories.md has all columns. A file whose name ends with .csv is read as a monitor.csv of Stable-Baselines3;
rows of rollouts, in JSON lines or Parquet, are those of TRL or verifiers. The file comes from outside, so
each value is checked, within the limits below.
"""

from __future__ import annotations

import contextlib
import csv
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from motif_jax.audit.findings import without_digits
from motif_jax.config.table import shown
from motif_jax.structs import UserError
from motif_jax.system.foreign import check_regular

# Rows of rollouts that others record, of which each is one episode, whose text is what the model said:
#
# - TRL, `log_completions=True`: a folder of Parquet files, one per logged step, or the same rows as JSON lines, with
#   the columns step, prompt, completion, advantage, and a number for each reward function.
# - verifiers, `vf-eval --save-results`: results.jsonl with example_id, prompt and completion as messages, reward, and
#   metrics by name, which are no pay of their own. A rollout with an error counts as unfinished.

SUFFIX = ".parquet"
AT_ONCE = 64  # rows that are decoded together
LARGEST_ROWS = AT_ONCE * 2**20  # bytes of their values
LARGEST_GROUP = 200_000_000  # bytes of a row group's columns; a reader needs four times as much
NO_REWARDS = {"step", "advantage", "advantages"}  # numbers of TRL's rows that are no rewards


def row_of(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The row of an episode; raises ValueError for one that has no text. Its reward may be {}: none applies."""
    prompt = row.get("prompt")
    if not isinstance(prompt, str):
        prompt = json.dumps(prompt, sort_keys=True, default=repr)
    known = {"episode": number, "text": text_of(row["completion"]), "prompt": prompt, "outcome": row.get("outcome")}
    if "example_id" in row and "reward" in row:
        whole = row.get("error") is None
        return known | {"reward": row["reward"] if whole else row["reward"] or 0.0, "ended": whole}
    rewards = {name: value for name, value in row.items()
               if type(value) in (int, float) and name not in NO_REWARDS | {"outcome"}}  # fmt: skip
    # A reward function that does not apply to a row gives None, which pandas makes NaN.
    return known | {"reward": {name: value for name, value in rewards.items() if value == value}}


def text_of(said: Any) -> str:
    """What the model said: a text, or the contents of its messages, of which the roles of others are left out."""
    if isinstance(said, str):
        return said
    if not isinstance(said, list) or not all(isinstance(message, dict) for message in said):
        raise ValueError(f"completion is {shown(said)}, not a text or a list of messages")
    parts: list[Any] = []
    for message in said:
        if message.get("role", "assistant") == "assistant":
            content = message.get("content")  # a text, or a list of parts, some of which are texts
            parts += content if isinstance(content, list) else [{"text": content}]
    return "\n".join(one["text"] for one in parts if isinstance(one, dict) and isinstance(one.get("text"), str))


# ---- Parquet


def parquet_rows(files: Sequence[Path]) -> Iterator[tuple[int, Any]]:
    """Yields the rows of all files with their numbers."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"reading {files[0].name!r} needs pyarrow: pip install pyarrow") from None
    number = 0
    for file in files:
        try:
            check_regular(file)
            texts = _texts_of(parquet.read_metadata(file), file.name)
            with parquet.ParquetFile(file, read_dictionary=texts) as opened:
                for rows in _parts(opened):
                    if sum(map(_size, rows.columns)) > LARGEST_ROWS:
                        after = f"{len(rows)} rows after row {number:,}"
                        raise ValueError(f"{file.name}: {after} have more than {LARGEST_ROWS:,} bytes")
                    yield from enumerate(rows.to_pylist(), number + 1)
                    number += len(rows)
        except (pyarrow.ArrowException, OverflowError) as error:  # the latter: dates out of range
            raise ValueError(f"{file.name}: it is not Parquet: {error!s:.200}") from None


def _texts_of(metadata: Any, name: str) -> list[str]:
    """The columns of texts, which stay dictionaries until their rows' size is known; raises ValueError if too large."""
    columns = [metadata.schema.column(at) for at in range(metadata.num_columns)]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        # Equal values may be stored once, so the number of values counts, too.
        values = sum(group.column(at).num_values * (column.length or 8) for at, column in enumerate(columns))
        if max(group.total_byte_size, values) > LARGEST_GROUP:
            raise ValueError(f"{name}: a row group has more than {LARGEST_GROUP:,} bytes: write smaller ones")
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def _parts(opened: Any) -> Iterator[Any]:
    """Yields a few rows at a time. A dictionary grows while a row group is read, and each batch has all of it."""
    for group in range(opened.num_row_groups):
        for batch in opened.iter_batches(2**16, [group]):
            for start in range(0, len(batch), AT_ONCE):
                yield batch.slice(start, AT_ONCE)


def _size(column: Any) -> int:
    """The bytes of an Arrow array, whose dictionaries count for each row."""
    from pyarrow import BaseExtensionType, compute, types

    if isinstance(column.type, BaseExtensionType):
        return _size(column.storage)
    if types.is_dictionary(column.type):
        used, counts = column.indices.value_counts().flatten()
        sizes = compute.multiply(compute.binary_length(column.dictionary.take(used)), counts)
        return compute.sum(sizes).as_py() or 0
    if types.is_nested(column.type):  # a map, a struct or lists
        if types.is_map(column.type):  # whose parts are those of the whole batch
            start, stop = column.offsets[0].as_py(), column.offsets[-1].as_py()
            return sum(_size(part.slice(start, stop - start)) for part in (column.keys, column.items))
        inner = column.flatten()
        return sum(map(_size, inner)) if isinstance(inner, list) else _size(inner)
    return column.nbytes


LONGEST_LINE = 2**20  # bytes
MOST_ROWS = 10_000_000
MOST_TEXTS = 200_000  # different captions, or observations; with more, the column is not used
MOST_REWARDS = 32  # by name
LONGEST_TEXT = 300  # characters that are kept of a caption; a longer one ends with a hash of all of it
FEWEST_WORDS = 20  # of a text whose repetition is known
PHRASE = 4  # words
LARGEST = 1e30  # of a number; squares have finite sums
LAST_STEP = 2**53
SUCCESS = ("is_success", "success")  # where Stable-Baselines3 and others say whether an episode has succeeded
KNOWN = {"episode", "step", "reward", "caption", "text", "observation", "worth", "outcome", "ended", "prompt"}


class Trajectories(NamedTuple):
    """T steps of E episodes, one episode after another in the order in which they begin."""

    episodes: list[str]  # names. [E]
    episode: np.ndarray  # 0 to E - 1. [T] int64
    rewards: dict[str, np.ndarray]  # by name. [T] float64 each
    captions: Texts
    observations: Texts
    repetition: np.ndarray  # share of a text's phrases that it has said before; NaN for a short one. [T] float64
    prompt: np.ndarray  # number of the prompt that a text answers. [T] int64
    worth: np.ndarray  # NaN where unknown. [T] float64
    outcome: np.ndarray  # NaN where unknown. [E] float64
    unfinished: int  # episodes that were left out
    unread: list[str]  # columns

    @property
    def reward(self) -> np.ndarray:
        """The sum of all rewards. [T]"""
        return np.sum(list(self.rewards.values()), axis=0)


class Texts(NamedTuple):
    """A column of texts."""

    texts: list[str]  # different ones. [U]
    number: np.ndarray  # of each step's text. [T] int64
    why: str  # why they cannot be used, or ""
    missing: bool = False  # from the file; otherwise equal numbers are equal texts, also where `why` is not ""


def read_trajectories(file: Path, outcome: str = "") -> Trajectories:
    """Reads a file; raises UserError, which names the line and the column, for one that cannot be used.

    `outcome`: the reward, metric or column that is the task's result; "": the column outcome.
    """
    reader, found = _Reader(), not outcome
    try:
        for line, row in _rows(file, outcome):
            try:
                if type(row) is not dict:
                    raise ValueError(f"it is {shown(row)}, not an object with episode and reward")
                if outcome:
                    name = "outcome" if file.suffix == ".csv" else outcome
                    places = [one for one in (row.get("metrics"), row.get("reward"), row) if type(one) is dict]
                    known = [one[name] for one in places if one.get(name) is not None and one[name] == one[name]]
                    row["outcome"] = known[0] if known else None
                    found |= bool(known)
                if "completion" in row and "episode" not in row:
                    row = row_of(row, line)
                    if row["reward"] == {}:  # no reward function applies
                        continue
                reader.add(row, line)
            except (ValueError, RecursionError, OverflowError) as error:
                raise ValueError(f"line {line:,}: {_reason(error)}") from None
        if not found:
            raise ValueError(f"no row has a reward, a metric or a column {shown(outcome)} (--outcome)")
        return reader.finish()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"cannot read {str(file)!r}: {reason}") from None


def _rows(file: Path, outcome: str) -> Iterator[tuple[int, Any]]:
    """Yields the rows of a file, or of the Parquet files in a folder, with the number of each."""
    if files := sorted(file.glob(f"*{SUFFIX}")) if file.is_dir() else [file] if file.suffix == SUFFIX else []:
        yield from parquet_rows(files)
        return
    check_regular(file)
    with open(file, "rb") as binary:
        yield from _monitor_rows(binary, outcome) if file.suffix == ".csv" else _json_rows(binary)


def _lines(binary: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yields the lines that are not blank, with their numbers."""
    for number, line in enumerate(iter(lambda: binary.readline(LONGEST_LINE + 1), b""), 1):
        if len(line) > LONGEST_LINE:
            raise ValueError(f"line {number:,} is longer than {LONGEST_LINE:,} bytes")
        if not line.isspace():
            yield number, line


def _json_rows(binary: BinaryIO) -> Iterator[tuple[int, Any]]:
    """Yields the rows after the numbers of their lines; a torn last line, whose writer runs, is left out."""
    decode = json.JSONDecoder(parse_constant=_refuse).decode
    for number, line in _lines(binary):
        try:
            yield number, decode(line.decode())
        except (ValueError, RecursionError) as error:
            if not line.endswith(b"\n"):
                return
            raise ValueError(f"line {number:,}: {_reason(error)}") from None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return f"it is not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)


def _monitor_rows(binary: BinaryIO, outcome: str) -> Iterator[tuple[int, Any]]:
    """Yields one row per episode of a monitor.csv: a comment, a header with the column r, and the episodes."""
    header: list[str] = []
    for number, line in _lines(binary):
        if not line.endswith(b"\n"):  # torn, because its writer runs
            return
        try:
            cells = next(csv.reader([line.decode("utf-8", "replace")]))
        except csv.Error as error:
            raise ValueError(f"line {number:,}: it is not CSV: {error}") from None
        if not header:
            header = [] if cells[0].startswith("#") else cells
            if header and "r" not in header:
                raise ValueError(f"line {number:,}: the header {shown(header)} has no column 'r'")
            continue
        row = dict(zip(header, cells, strict=False))
        result = next((row[name] for name in ((outcome,) if outcome else SUCCESS) if name in row), None)
        yield number, {"episode": number, "reward": _cell(row.get("r")), "outcome": _cell(result)}


def _cell(text: str | None) -> Any:
    """The value of a cell; what is not a number stays a text, which is refused with its line."""
    known = {"True": True, "False": False, "": None, None: None}
    with contextlib.suppress(ValueError):
        return known[text] if text in known else float(str(text))
    return text


class _Column:
    """A growing column of texts, as numbers."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.repetition = array("d")  # of each different text
        self.of_row, self.repetition_of_row, self.seen = array("q"), array("d"), False

    def add(self, row: Mapping[str, Any], name: str) -> None:
        text = row.get(name)
        if text is not None and type(text) not in (int, str):
            raise ValueError(f"{name} is {shown(text)}, not a text")
        whole = text = "" if text is None else str(text)
        self.seen |= text != ""
        if len(text) > LONGEST_TEXT:
            mark = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest().translate(LETTERS)
            text = f"{text[:LONGEST_TEXT]}... {mark}"
        number = self.numbers.get(text, len(self.numbers))
        if number == len(self.numbers):
            if number < MOST_TEXTS:
                self.numbers[text] = number
                self.repetition.append(repetition_of(whole))
            else:  # a hash still tells whether two steps are the same
                number = MOST_TEXTS + (hash(text) & LAST_STEP - 1)
        self.repetition_of_row.append(self.repetition[number] if number < MOST_TEXTS else repetition_of(whole))
        self.of_row.append(number)

    def finish(self, order: np.ndarray, what: str) -> Texts:
        number = np.array(self.of_row, np.int64)[order]
        if not self.seen:
            return Texts([], number, f"the file has no column {what}", missing=True)
        if number.max() >= MOST_TEXTS:
            return Texts([], number, f"the column {what} has more than {MOST_TEXTS:,} different values")
        return Texts(list(self.numbers), number, "")


LETTERS = str.maketrans("0123456789", "ghijklmnop")  # texts that differ only in digits are of one kind


def repetition_of(text: str) -> float:
    """The share of a text's phrases, of PHRASE words each, that it has said before; NaN for a short text."""
    words = without_digits(text.lower()).split() if len(text) >= 2 * FEWEST_WORDS - 1 else ()
    if len(words) < FEWEST_WORDS:
        return float("nan")
    phrases = [*zip(*(words[at:] for at in range(PHRASE)), strict=False)]
    return 1 - len({*phrases}) / len(phrases)


class _Reader:
    """The columns of the rows so far."""

    def __init__(self) -> None:
        self.episodes: dict[str | int, int] = {}
        self.steps_of = array("q")  # rows of each episode
        self.outcome, self.has_ended = array("d"), bytearray()  # of each episode
        self.says_ended = False  # whether rows have the column
        self.episode, self.step, self.line, self.worth = array("q"), array("q"), array("q"), array("d")
        self.rewards: dict[str, array[float]] = {}
        self.captions, self.observations, self.prompts = _Column(), _Column(), _Column()
        self.unread: dict[str, None] = {}

    def add(self, row: Any, line: int) -> None:
        """Takes a row; raises ValueError for one that cannot be used."""
        if len(self.line) >= MOST_ROWS:
            raise ValueError(f"there are more than {MOST_ROWS:,} rows")
        episode = self._episode(row.get("episode"))
        step = row.get("step")
        if step is None and self.has_ended[episode]:
            raise ValueError(f"episode {shown(row['episode'])} has ended before, and the row has no step")
        if step is None:
            step = self.steps_of[episode]
        elif type(step) is not int or not 0 <= step <= LAST_STEP:
            raise ValueError(f"step is {shown(step)}, not a whole number from 0 to {LAST_STEP:,}")
        self._pay(row.get("reward"))
        self.captions.add(row, "text" if "caption" not in row and "text" in row else "caption")
        self.observations.add(row, "observation")
        self.prompts.add(row, "prompt")
        self.worth.append(_number(row.get("worth"), "worth"))
        outcome = _number(row.get("outcome"), "outcome")
        if outcome == outcome:
            self.outcome[episode] = outcome
        ended = row.get("ended")
        if ended is not None and type(ended) is not bool:
            raise ValueError(f"ended is {shown(ended)}, not true or false")
        self.has_ended[episode] |= bool(ended)
        self.says_ended |= ended is not None
        self.steps_of[episode] += 1
        self.episode.append(episode)
        self.step.append(step)
        self.line.append(line)
        if len(self.unread) < MOST_REWARDS and not row.keys() <= KNOWN:
            self.unread |= dict.fromkeys(name for name in row if name not in KNOWN)

    def _episode(self, name: Any) -> int:
        if type(name) not in (int, str) or len(str(name)) > LONGEST_TEXT:
            what = "missing" if name is None else shown(name)
            raise ValueError(f"episode is {what}, not a whole number or a text of at most {LONGEST_TEXT} characters")
        number = self.episodes.setdefault(name, len(self.episodes))
        if number == len(self.steps_of):
            self.steps_of.append(0)
            self.outcome.append(np.nan)
            self.has_ended.append(0)
        return number

    def _pay(self, reward: Any) -> None:
        if reward is None or reward == {}:
            raise ValueError("reward is missing")
        named = reward if type(reward) is dict else {"reward": reward}
        count = len(self.line)
        for name, value in named.items():
            paid = self.rewards.get(name)
            if paid is None:
                if len(self.rewards) >= MOST_REWARDS or len(name) > LONGEST_TEXT:
                    raise ValueError(f"reward has more than {MOST_REWARDS} names, or one of {LONGEST_TEXT} characters")
                paid = self.rewards[name] = array("d", bytes(8 * count))
            paid.extend([0.0] * (count - len(paid)))  # rows that do not name it
            if type(value) not in (int, float) or not abs(value) <= LARGEST:
                what = "reward" if named is not reward else f"reward {shown(name)}"
                raise ValueError(f"{what} is {shown(value)}, not a number up to {LARGEST:g}")
            paid.append(value)

    def finish(self) -> Trajectories:
        """All rows; raises ValueError without any of an episode that has ended, or if two are of the same step."""
        if not self.line:
            raise ValueError("it has no rows")
        episode, step = np.array(self.episode, np.int64), np.array(self.step, np.int64)
        order = np.lexsort((step, episode))
        same = np.flatnonzero((np.diff(episode[order]) == 0) & (np.diff(step[order]) == 0))
        if len(same):
            lines = sorted(self.line[int(row)] for row in order[same[0] : same[0] + 2])
            name, number = list(self.episodes)[episode[order[same[0]]]], step[order[same[0]]]
            raise ValueError(f"line {lines[1]:,}: step {number} of episode {shown(name)} is on line {lines[0]:,}, too")
        if self.says_ended and not any(self.has_ended):
            raise ValueError("no episode has ended")
        kept = np.array(self.has_ended, bool) | (not self.says_ended)
        order = order[kept[episode[order]]]
        names = [str(name) for name, keep in zip(self.episodes, kept, strict=True) if keep]
        for paid in self.rewards.values():
            paid.extend([0.0] * (len(self.line) - len(paid)))
        return Trajectories(
            names, (np.cumsum(kept) - 1)[episode[order]],
            {name: np.array(paid)[order] for name, paid in self.rewards.items()},
            self.captions.finish(order, "caption (or text)"), self.observations.finish(order, "observation"),
            np.array(self.captions.repetition_of_row)[order], np.array(self.prompts.of_row, np.int64)[order],
            np.array(self.worth)[order], np.array(self.outcome)[kept], int((~kept).sum()),
            [name[:LONGEST_TEXT] for name in list(self.unread)[:MOST_REWARDS]],
        )  # fmt: skip


def _number(value: Any, what: str) -> float:
    """A number, NaN for None; raises ValueError for another type, or one that is too large."""
    if type(value) not in (int, float, bool, type(None)) or (value is not None and not abs(value) <= LARGEST):
        raise ValueError(f"{what} is {shown(value)}, not a number up to {LARGEST:g}")
    return float("nan") if value is None else float(value)

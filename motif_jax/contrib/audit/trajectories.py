"""Audits the trajectories of anybody's agent: one JSON object per line, for a step or for a whole episode.

    {"episode": 0, "step": 3, "reward": 1.0, "caption": "You open the door.", "ended": false}

docs/trajectories.md has all columns. A file whose name ends with .csv is read as a monitor.csv of Stable-Baselines3;
rows of rollouts, in JSON lines or Parquet, are those of TRL or verifiers. The file comes from outside, so
each value is checked, within the limits below.

The checks are those of the room, as far as the columns allow, and two more. Flooding: texts that repeat themselves get
more than a small share of the pay, and are paid clearly better than the other texts of their prompts. The proxy against
the outcome: of all pairs of episodes with different outcomes, the return is on the wrong side in too many; or, from the
first third of the episodes to the last, the return rises and the outcome falls.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from motif_jax.config.table import shown
from motif_jax.contrib.audit import findings
from motif_jax.contrib.audit.findings import Captions, Check, Steps, Suspicion, mean_by, quoted, without_digits
from motif_jax.contrib.audit.judge import AGAIN, check_repeats
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import check_regular

SUFFIX = ".parquet"
AT_ONCE = 64  # rows that are decoded together
LARGEST_ROWS = AT_ONCE * 2**20  # bytes of their values
LARGEST_GROUP = 200_000_000  # bytes of a row group's columns; a reader needs four times as much
LONGEST_LINE = 2**20  # bytes
MOST_ROWS = 10_000_000
MOST_TEXTS = 200_000  # different captions, or observations; with more, the column is not used
MOST_REWARDS = 32  # by name
LONGEST_TEXT = 300  # characters that are kept of a caption; a longer one ends with a hash of all of it
FEWEST_WORDS = 20  # of a text whose repetition is known
PHRASE = 4  # words
LARGEST = 1e30  # of a number; squares have finite sums
LAST_STEP = 2**53
A_NUMBER = f"a number up to {LARGEST:g}"
EXPECTED = {  # of columns; the others are texts
    "it": "an object with episode and reward",
    "episode": f"a whole number or a text of at most {LONGEST_TEXT} characters",
    "step": f"a whole number from 0 to {LAST_STEP:,}",
    "reward": f"{A_NUMBER}, nor up to {MOST_REWARDS} by name",
    "worth": A_NUMBER,
    "outcome": A_NUMBER,
    "ended": "true or false",
    "completion": "a text or a list of messages",
}
KNOWN = {"episode", "step", "reward", "caption", "text", "observation", "worth", "outcome", "ended", "prompt"}
SUCCESS = ("is_success", "success")  # where Stable-Baselines3 and others say whether an episode has succeeded
NO_REWARDS = {"step", "advantage", "advantages", "outcome"}  # numbers of TRL's rows that are no rewards
LETTERS = str.maketrans("0123456789", "ghijklmnop")  # texts that differ only in digits are of one kind


class Texts(NamedTuple):
    """A column of texts."""

    texts: list[str]  # different ones. [U]
    number: np.ndarray  # of each step's text; equal numbers are equal texts, also where `why` is not "". [T] int64
    why: str  # why they cannot be used, or ""
    missing: bool  # from the file


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


def read_trajectories(file: Path, outcome: str = "") -> Trajectories:
    """Reads a file; raises UserError, which names the line and the column, for one that cannot be used.

    `outcome`: the reward, metric or column that is the task's result; "": the column outcome.
    """
    reader, found = _Reader(), not outcome
    with legible(repr(str(file)), "", csv.Error):
        for line, row in _rows(file, outcome):
            try:
                _expect(type(row) is dict, "it", row)
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
                raise ValueError(f"line {line:,}: {error}") from None
        if not found:
            raise ValueError(f"no row has a reward, a metric or a column {shown(outcome)} (--outcome)")
        return reader.finish()


def _expect(fits: bool, column: str, value: object) -> None:
    """Raises ValueError for a value of a row that does not fit its column."""
    if not fits:
        raise ValueError(f"{column} is {shown(value)}, not {EXPECTED.get(column, 'a text')}")


# ---- the rows of a file


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
            raise ValueError(f"line {number:,}: it is not JSON: {error}") from None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def _monitor_rows(binary: BinaryIO, outcome: str) -> Iterator[tuple[int, Any]]:
    """Yields one row per episode of a monitor.csv: a comment, a header with the column r, and the episodes."""
    header: list[str] = []
    for number, line in _lines(binary):
        if not line.endswith(b"\n"):  # torn, because its writer runs
            return
        cells = next(csv.reader([line.decode("utf-8", "replace")]))
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


# ---- rows of rollouts that others record, of which each is one episode, whose text is what the model said:
#
# - TRL, `log_completions=True`: a folder of Parquet files, one per logged step, or the same rows as JSON lines, with
#   the columns step, prompt, completion, advantage, and a number for each reward function.
# - verifiers, `vf-eval --save-results`: results.jsonl with example_id, prompt and completion as messages, reward, and
#   metrics by name, which are no pay of their own. A rollout with an error counts as unfinished.


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
               if type(value) in (int, float) and name not in NO_REWARDS}  # fmt: skip
    # A reward function that does not apply to a row gives None, which pandas makes NaN.
    return known | {"reward": {name: value for name, value in rewards.items() if value == value}}


def text_of(said: Any) -> str:
    """What the model said: a text, or the contents of its messages, of which the roles of others are left out."""
    if isinstance(said, str):
        return said
    is_messages = isinstance(said, list) and all(isinstance(message, dict) for message in said)
    _expect(is_messages, "completion", said)
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


# ---- the columns of a file


class _Reader:
    """Collects the rows, by column, and puts them in order."""

    def __init__(self) -> None:
        self.episodes: dict[str | int, int] = {}
        self.rows_of, self.has_ended = array("q"), bytearray()  # of each episode
        self.says_ended = False  # whether rows have the column
        self.whole = {name: array("q") for name in ("line", "episode", "step", "caption", "observation", "prompt")}
        self.numbers = {name: array("d") for name in ("worth", "outcome", "repetition")}
        self.texts: dict[str, dict[str, int]] = {name: {} for name in ("caption", "observation", "prompt")}
        self.rewards: dict[str, array[float]] = {}
        self.unread: dict[str, None] = {}

    def add(self, row: Any, line: int) -> None:
        name, step, ended = row.get("episode"), row.get("step"), row.get("ended")
        if len(self.whole["line"]) >= MOST_ROWS:
            raise ValueError(f"there are more than {MOST_ROWS:,} rows")
        _expect(type(name) in (int, str) and len(str(name)) <= LONGEST_TEXT, "episode", name)
        episode = self.episodes.setdefault(name, len(self.episodes))
        if episode == len(self.rows_of):
            self.rows_of.append(0)
            self.has_ended.append(0)
        if step is None:
            if self.has_ended[episode]:
                raise ValueError(f"episode {shown(name)} has ended before, and the row has no step")
            step = self.rows_of[episode]
        _expect(type(step) is int and 0 <= step <= LAST_STEP, "step", step)
        _expect(ended is None or type(ended) is bool, "ended", ended)
        self._pay(row.get("reward"))
        said = self._text(row, "caption", "text" if "caption" not in row and "text" in row else "caption")
        self._text(row, "observation", "observation")
        self._text(row, "prompt", "prompt")
        self.numbers["repetition"].append(repetition_of(said))
        for column in ("worth", "outcome"):
            value = row.get(column)
            fits = value is None or (type(value) in (int, float, bool) and abs(value) <= LARGEST)
            _expect(fits, column, value)
            self.numbers[column].append(np.nan if value is None else value)
        for column, number in (("line", line), ("episode", episode), ("step", step)):
            self.whole[column].append(number)
        self.rows_of[episode] += 1
        self.has_ended[episode] |= bool(ended)
        self.says_ended |= ended is not None
        if len(self.unread) < MOST_REWARDS and not row.keys() <= KNOWN:
            self.unread |= dict.fromkeys(name for name in row if name not in KNOWN)

    def _pay(self, reward: Any) -> None:
        named = reward if type(reward) is dict else {"reward": reward}
        _expect(named != {}, "reward", reward)
        count = len(self.whole["line"])
        for name, value in named.items():
            if name not in self.rewards:
                _expect(len(self.rewards) < MOST_REWARDS and len(name) <= LONGEST_TEXT, "reward", reward)
                self.rewards[name] = array("d")
            if type(value) not in (int, float) or not abs(value) <= LARGEST:
                _expect(False, "reward", {name: value} if named is reward else value)
            paid = self.rewards[name]
            paid.frombytes(bytes(8 * (count - len(paid))))  # 0.0 for rows that do not name it
            paid.append(value)

    def _text(self, row: Mapping[str, Any], column: str, name: str) -> str:
        """Adds the number of a text to its column, and returns the whole text."""
        value = row.get(name)
        _expect(value is None or type(value) in (int, str), name, value)
        whole = text = "" if value is None else str(value)
        if len(text) > LONGEST_TEXT:
            mark = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest().translate(LETTERS)
            text = f"{text[:LONGEST_TEXT]}... {mark}"
        numbers = self.texts[column]
        if len(numbers) < MOST_TEXTS:
            self.whole[column].append(numbers.setdefault(text, len(numbers)))
        else:  # a hash still tells whether two steps are the same
            self.whole[column].append(numbers.get(text, MOST_TEXTS + (hash(text) & LAST_STEP - 1)))
        return whole

    def finish(self) -> Trajectories:
        """All rows; raises ValueError without any of an episode that has ended, or if two are of the same step."""
        if not self.episodes or (self.says_ended and not any(self.has_ended)):
            raise ValueError("it has no row of an episode that has ended")
        row_of_file = {name: np.asarray(column) for name, column in (*self.whole.items(), *self.numbers.items())}
        episode, step, outcome = (row_of_file[name] for name in ("episode", "step", "outcome"))
        order = np.lexsort((step, episode))
        same = np.flatnonzero((np.diff(episode[order]) == 0) & (np.diff(step[order]) == 0))
        if len(same):
            one, other = sorted(order[same[0] : same[0] + 2].tolist())
            name, (first, again) = list(self.episodes)[episode[one]], row_of_file["line"][[one, other]]
            raise ValueError(f"line {again:,}: step {step[one]} of episode {shown(name)} is on line {first:,}, too")
        kept = np.array(self.has_ended, bool) | (not self.says_ended)
        last = np.full(len(kept), np.nan)
        known = ~np.isnan(outcome)
        last[episode[known]] = outcome[known]  # the last row of an episode that has one, in the order of the file
        order = order[kept[episode[order]]]
        sorted_rows = {name: column[order] for name, column in row_of_file.items()}
        for paid in self.rewards.values():
            paid.frombytes(bytes(8 * (len(episode) - len(paid))))
        return Trajectories(
            episodes=[str(name) for name, keep in zip(self.episodes, kept, strict=True) if keep],
            episode=(np.cumsum(kept) - 1)[sorted_rows["episode"]],
            rewards={name: np.array(paid)[order] for name, paid in self.rewards.items()},
            captions=self._finish("caption", sorted_rows, "caption (or text)"),
            observations=self._finish("observation", sorted_rows, "observation"),
            repetition=sorted_rows["repetition"],
            prompt=sorted_rows["prompt"],
            worth=sorted_rows["worth"],
            outcome=last[kept],
            unfinished=int((~kept).sum()),
            unread=[name[:LONGEST_TEXT] for name in list(self.unread)[:MOST_REWARDS]],
        )

    def _finish(self, column: str, rows: Mapping[str, np.ndarray], what: str) -> Texts:
        texts, number, why = list(self.texts[column]), rows[column], ""
        if missing := not any(texts):
            why = f"the file has no column {what}"
        elif number.max() >= MOST_TEXTS:
            why = f"the column {what} has more than {MOST_TEXTS:,} different values"
        return Texts([] if why else texts, number, why, missing)


@functools.lru_cache(128)  # a text may have a mebibyte
def repetition_of(text: str) -> float:
    """The share of a text's phrases, of PHRASE words each, that it has said before; NaN for a short text."""
    words = without_digits(text.lower()).split() if len(text) >= 2 * FEWEST_WORDS - 1 else ()
    if len(words) < FEWEST_WORDS:
        return float("nan")
    phrases = [*zip(*(words[at:] for at in range(PHRASE)), strict=False)]
    return 1 - len({*phrases}) / len(phrases)


# ---- the audit

OUTCOME, FLOODING = "proxy against outcome", "flooding"
NAMES = (*findings.CHECKS, findings.INVERSIONS, AGAIN, OUTCOME, FLOODING)
FLOODED = 0.5  # share of a text's phrases that it has said before
FLOODED_PAY = 0.05  # share of the pay
PAID_BETTER = 0.25  # standard deviations of the reward among the texts of a prompt
WRONG = 1 / 3  # share of the pairs of episodes with different outcomes that is reported if passed
COIN = 0.5  # the same of one of several rewards, which may be about something else than the outcome
FEWEST_OTHER = 10  # episodes with another outcome than the most frequent one
COMPARED = 2000  # episodes that are compared in pairs, from the whole file
REPEATS = 2000  # pairs of steps with the same caption
MOST_CELLS = 10**7  # episodes times kinds of captions
ADVICE = {
    findings.PAY: "a reward of 0 for these captions, or a look at why the judge does not like them",
    findings.INFLATED: "rewards in proportion to the worth",
    findings.LOOPS: "a reward for the first time in an episode only, or one that falls with each repeat",
    findings.HELD: "a reward for a change of the state, not for a state",
    findings.INVERSIONS: "a look at the sign of the reward for these captions",
    AGAIN: "a judge without randomness (temperature 0), or the mean of several answers",
    OUTCOME: "a look at the episodes with a high return and a poor outcome",
    FLOODING: "a reward for the first time that a text says something, or a limit of its length",
}
PRIME = 0x9E3779B97F4A7C15 - 2**64


def audit_file(file: Path, outcome: str = "") -> dict[str, Any]:
    """The record of the audit of a file; raises UserError for one that cannot be used. See `read_trajectories`."""
    trajectories = read_trajectories(file, outcome)
    checks, most = _check_steps(trajectories)
    checks += [_check_outcome(trajectories), _check_flooding(trajectories)]
    judge = "" if np.isnan(trajectories.worth).all() else "the column worth"
    found = findings.conclude([check.advised(ADVICE[check.name]) for check in checks], most)
    positive = {name: float(np.maximum(values, 0).sum()) for name, values in trajectories.rewards.items()}
    total = sum(positive.values())
    return findings.make_record(found, "", judge) | {
        "file": str(file),
        "steps": len(trajectories.episode),
        "episodes": len(trajectories.episodes),
        "unfinished": trajectories.unfinished,
        "unread": trajectories.unread,
        "rewards": {name: value / total for name, value in positive.items()} if total and len(positive) > 1 else {},
    }


def _check_steps(trajectories: Trajectories) -> tuple[list[Check], list[dict[str, Any]]]:
    """The checks of single steps, and the kinds of captions that are paid most."""
    said, seen, worth = trajectories.captions, trajectories.observations, trajectories.worth
    why = f"{said.why}, and {seen.why.removeprefix('the file has ')}" if said.why and seen.why else ""
    if len(trajectories.episode) <= len(trajectories.episodes):
        why = "the file has one row per episode, and no steps"
    if why:
        return [Check(name, skipped=why) for name in (*findings.CHECKS, findings.INVERSIONS, AGAIN)], []
    number, captions = _captions_of(trajectories, said if not said.why else seen, has_digits=bool(said.why))
    steps = Steps(trajectories.episode, number, trajectories.reward)
    still: np.ndarray | str = "the file has no column observation"
    state = number
    if not seen.missing:
        still = np.r_[False, (np.diff(seen.number) == 0) & (np.diff(steps.episode) == 0)]
        state = number * PRIME + seen.number  # wraps around: a hash of both
    worthless = "the file has no column worth" if np.isnan(worth).all() else ""
    judged = [Check(name, skipped=worthless) for name in (findings.INVERSIONS, AGAIN)]
    if not worthless:
        judged = [_check_order(captions, steps, worth), _check_repeats(state, worth)]
    why = "" if (steps.pay > 0).any() else "no step has a positive reward"
    if steps.episodes < findings.FEWEST:
        why = f"the file has {steps.episodes} episodes, and {findings.FEWEST} are needed"
    if why:
        return [*(Check(name, skipped=why) for name in findings.CHECKS), *judged], []
    paid = findings.share_pay(steps, captions)
    checks = findings.check_pay(captions, paid, steps, still, worthless)
    return [*checks, *judged], findings.most_paid(paid, captions)


def _captions_of(trajectories: Trajectories, said: Texts, has_digits: bool) -> tuple[np.ndarray, Captions]:
    """The number of each step's caption, and the captions.

    `has_digits`: they are observations, which stand for missing captions, and where other digits are another kind.
    """
    reward, worth, number, texts = trajectories.reward, trajectories.worth, said.number, said.texts
    # "" stands for the neutral moment: rows of worth 0 if there are some, otherwise rows without a caption.
    neutral = worth == 0
    blank = number == (texts.index("") if "" in texts else -1)
    if not neutral.any():
        neutral = np.isnan(worth) & blank
    if not neutral.any() or np.nan_to_num(worth[blank]).any():
        texts = [text or "(no caption)" for text in texts]
    if "" not in texts and neutral.any():
        texts = [*texts, ""]
    values = mean_by(number, reward, len(texts))
    group, names = findings.group_captions(texts, texts if has_digits else None)
    of_group = mean_by(group[number], worth, len(names))
    if neutral.any():
        values[texts.index("")] = reward[neutral].mean()
        of_group[group[texts.index("")]] = 0.0
    # At most about `most` kinds are paid: those with the least pay become one kind for each sign of worth.
    pays, most = np.bincount(group[number], np.maximum(reward, 0), len(names)), MOST_CELLS // len(trajectories.episodes)
    if (pays > 0).sum() > most:
        kind_of, rare = np.arange(len(pays)), np.argsort(-pays, kind="stable")[most:]
        kind_of[rare] = len(pays) + 1 + np.nan_to_num(np.sign(of_group[rare]), nan=2).astype(np.int64)
        kinds, first, new = np.unique(kind_of, return_index=True, return_inverse=True)
        names = [names[at] if kind < len(pays) else "(rare captions)" for kind, at in zip(kinds, first, strict=True)]
        group, of_group = new.reshape(-1)[group], mean_by(new, of_group, len(kinds))
    return number, Captions(texts, values, group, names, of_group, has_digits=has_digits)


def _check_order(captions: Captions, steps: Steps, worth: np.ndarray) -> Check:
    """Inversions, by pairs of kinds of captions in two episodes; a kind is in one pair for each of its episodes."""
    kinds = len(captions.names)
    cells, cell = np.unique(steps.episode * kinds + captions.group[steps.caption], return_inverse=True)
    worth, values = (mean_by(cell, of_step, len(cells)) for of_step in (worth, steps.pay))
    order = np.random.default_rng(0).permutation(np.flatnonzero(~np.isnan(worth)))
    pairs = order[: len(order) // 2 * 2].reshape(-1, 2)
    target = 0.5 + np.sign(worth[pairs[:, 1]] - worth[pairs[:, 0]]) / 2
    moments = captions._replace(texts=[""] * len(cells), values=values, group=cells % kinds)
    return findings.check_inversions(moments, pairs, target)


def _check_repeats(states: np.ndarray, worth: np.ndarray) -> Check:
    """Whether the judge gives a step of the same caption and observation (`states`) the same sign of worth."""
    judged = np.random.default_rng(1).permutation(np.flatnonzero(~np.isnan(worth)))
    judged = judged[np.argsort(states[judged], kind="stable")]
    numbers, start = np.arange(len(judged)), np.r_[True, np.diff(states[judged]) > 0]
    place = numbers - np.maximum.accumulate(np.where(start, numbers, 0))
    second = np.random.default_rng(2).permutation(np.flatnonzero(place % 2 == 1))[:REPEATS]
    scale = float(np.quantile(np.abs(worth[judged]), 0.95)) or 1.0
    first, again = (np.clip(0.5 + worth[judged[at]] / (2 * scale), 0, 1) for at in (second - 1, second))
    return check_repeats(first, again)


def _check_outcome(trajectories: Trajectories) -> Check:
    """Whether the return orders the episodes as the task's own outcome does, for each reward and their sum."""
    known = np.flatnonzero(~np.isnan(trajectories.outcome))
    if not len(known):
        return Check(OUTCOME, skipped="the file has no column outcome")
    episodes = known[np.linspace(0, len(known) - 1, min(len(known), COMPARED)).astype(np.int64)]
    outcome = trajectories.outcome[episodes]
    others = len(outcome) - int(np.unique(outcome, return_counts=True)[1].max())
    if len(outcome) < findings.FEWEST or others < FEWEST_OTHER:
        why = f"{len(outcome):,} episodes have an outcome, {others:,} of them another than the most frequent one; "
        return Check(OUTCOME, skipped=f"{why}{findings.FEWEST} and {FEWEST_OTHER} are needed")

    few = (others / (others - 1)) ** 0.5  # the pairs tell as much as the rarer outcomes do
    better = np.sign(outcome[:, None] - outcome).astype(np.int8)

    def of_episodes(values: np.ndarray) -> np.ndarray:
        return np.bincount(trajectories.episode, values, len(trajectories.episodes))[episodes]

    def wrong_side(name: str, returns: np.ndarray, most: float) -> Suspicion:
        """Of the pairs with different outcomes, the share in which the lower outcome has the higher return."""
        more = np.sign(returns[:, None] - returns).astype(np.int8)
        wrong = ((better != 0) & (more == -better)).sum(1) + 0.5 * ((better != 0) & (more == 0)).sum(1)
        share = findings.share_of(wrong, (better != 0).sum(1).astype(float))
        share = share._replace(error=share.error * 2 * few)  # each pair is in two sums: a U-statistic of degree 2
        worst = int(np.lexsort((-returns, outcome))[0])
        sentence = (
            f"{name} is on the wrong side in {share} of the pairs of episodes with different outcomes (chance: 50 %), "
            f"n = {len(outcome):,}; episode {quoted(trajectories.episodes[episodes[worst]])} has the return "
            f"{returns[worst]:.3g} and the outcome {outcome[worst]:.3g}"
        )
        return Suspicion(sentence, "", share.size, share.above(most))

    returns = of_episodes(trajectories.reward)
    suspicions = [wrong_side("the return", returns, WRONG), *_falling(returns, outcome)]
    if len(trajectories.rewards) > 1:
        for name, values in trajectories.rewards.items():
            suspicions.append(wrong_side(f"the sum of {quoted(name)}", of_episodes(values), COIN))
    return Check(OUTCOME, f"{len(outcome):,} episodes", suspicions)


def _falling(returns: np.ndarray, outcome: np.ndarray) -> list[Suspicion]:
    """From the first third of the episodes to the last, the return rises and the outcome falls."""
    third = len(outcome) // 3
    if third < findings.FEWEST:
        return []
    (early, late), (before, after) = ((one[:third], one[-third:]) for one in (returns, outcome))
    sentence = (
        f"from the first third of the episodes to the last, the return rises from {early.mean():.3g} to "
        f"{late.mean():.3g} and the outcome falls from {before.mean():.3g} to {after.mean():.3g}, n = {2 * third:,}"
    )
    size = float((np.sign(before[:, None] - after) / 2 + 0.5).mean())
    return [Suspicion(sentence, "", size, max(findings.chance_of(after, before), findings.chance_of(early, late)))]


def _check_flooding(trajectories: Trajectories) -> Check:
    """Whether texts that repeat themselves are paid better than the others, in one hypothesis about both quantities."""
    known = np.flatnonzero(~np.isnan(trajectories.repetition))
    reward = trajectories.reward[known]
    why = f"{len(known):,} texts have {FEWEST_WORDS} words or more, and {findings.FEWEST} are needed"
    if len(known) >= findings.FEWEST:
        why = "" if (reward > 0).any() else "no text has a positive reward"
    if why:
        return Check(FLOODING, skipped=why)
    flooded, positive = trajectories.repetition[known] > FLOODED, np.maximum(reward, 0)
    scope = f"{len(known):,} texts, {int(flooded.sum()):,} of them repeat themselves"
    if not flooded.any() or flooded.all():
        return Check(FLOODING, scope)
    prompt = np.unique(trajectories.prompt[known], return_inverse=True)[1]
    count, flooded_of = np.bincount(prompt), np.bincount(prompt, flooded)
    if not ((flooded_of > 0) & (flooded_of < count)).any():
        return Check(FLOODING, skipped="no prompt has both texts that repeat themselves and others")
    above = reward - (np.bincount(prompt, reward) / count)[prompt]
    episode, episodes = trajectories.episode[known], len(trajectories.episodes)
    share = findings.share_of(*(np.bincount(episode, one, episodes) for one in (positive * flooded, positive)))
    worst = episode[int(np.where(flooded, reward, -np.inf).argmax())]
    sentence = (
        f"{int(flooded.sum()):,} of {len(known):,} texts say more than half of their phrases again; they are paid "
        f"{above[flooded].mean() - above[~flooded].mean():+.3g} against the others of their prompts, and get {share} "
        f"of the pay, most in episode {quoted(trajectories.episodes[worst])}"
    )
    margin = PAID_BETTER * float(above.std())
    p = max(findings.chance_of(above[~flooded] + margin, above[flooded]), share.above(FLOODED_PAY))
    return Check(FLOODING, scope, [Suspicion(sentence, "", share.size, p)])

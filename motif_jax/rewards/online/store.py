"""The store of an online reward: distinct captions with their counts, questions with their labels.

Rows are only appended, so the number of a caption or a question never changes:

    captions     messages (captions.CaptionIndex); count: times it was seen; last_step: when it was last seen;
                 opinion: the label of an earlier reward, 0, 1 or NONE
    questions    first, second: rows of captions, second is -1 in questions about one; state; label: P(yes), or NONE;
                 attempts: number of answers; step: when it began to wait for an answer
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import WIDTH, CaptionIndex, decode, distinct_messages
from motif_jax.devices.mesh import from_every_host
from motif_jax.rewards.source import Arrays
from motif_jax.rewards.statistics import RunningStats

IDLE, WAITING, ANSWERED, REFUSED = range(4)  # states of a question; REFUSED: its answers could not be parsed
NONE = -1  # in place of a missing label or opinion
NEUTRAL = np.zeros((1, WIDTH), np.uint8)  # a moment without a message; anchored stores have it in row 0
Opinion = Callable[[np.ndarray], np.ndarray]  # distinct messages [K, 256] -> 0 or 1, [K]
NO_ROWS = np.zeros(0, np.int64)


class News(NamedTuple):
    """The distinct captions of rollouts, their scores, and the judge's answers since the last update."""

    messages: np.ndarray = NEUTRAL[:0]  # [K, 256] uint8
    times: np.ndarray = NO_ROWS  # how often the rollouts show them. [K] int64
    questions: np.ndarray = NO_ROWS  # answered questions. [A] int64
    yes: np.ndarray = np.zeros(0)  # the answers; NaN: could not be parsed. [A] float64
    scores: RunningStats = RunningStats()  # of all steps
    steps: int = 0
    labelled: int = 0  # steps whose caption has a label


class Columns:
    """Arrays that grow together; `columns["name"]` is a view of the current rows."""

    def __init__(self, **empty: Any):
        """Takes the default value of each column, with its dtype."""
        self._empty = {name: np.asarray(value) for name, value in empty.items()}
        self._arrays = {name: np.zeros(0, value.dtype) for name, value in self._empty.items()}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name][: self._size]

    def extend(self, number: int, **values: Any) -> np.ndarray:
        """Adds rows; missing columns get their default. Returns the numbers of the rows."""
        first, self._size = self._size, self._size + number
        for name, value in self._empty.items():
            if self._size > len(self._arrays[name]):  # grows by half, so that copies are rare
                self._arrays[name] = np.resize(self._arrays[name], self._size + self._size // 2 + 64)
            self._arrays[name][first : self._size] = values.get(name, value)
        return np.arange(first, self._size)

    def arrays(self) -> Arrays:
        return {name: self[name].copy() for name in self._empty}

    def restore(self, arrays: Any) -> None:
        columns = {name: np.asarray(arrays[name]) for name in self._empty}
        self.clear()
        self.extend(len(next(iter(columns.values()))), **columns)

    def clear(self) -> None:
        self._size = 0


class Store:
    """Captions and questions. Only one thread may use it; other threads may read `captions.lookup`."""

    def __init__(self, pairs: bool, capacity: int, anchored: bool = False):
        """An empty store for at most `capacity` captions, and as many questions.

        `pairs`: questions compare two captions; otherwise each caption has its own question. `anchored`: each caption
        is compared with NEUTRAL, which is stored before it is seen.
        """
        self.pairs, self.capacity, self.anchored = pairs, capacity, anchored
        self.captions = CaptionIndex()
        self.of_captions = Columns(count=np.int64(0), last_step=np.int64(0), opinion=np.int8(NONE))
        self._of_pair: dict[tuple[int, int], int] = {}  # the first question about each pair
        one = {"first": np.int32(0), "second": np.int32(-1), "state": np.int8(IDLE), "label": np.float32(NONE)}
        self.questions = Columns(**one, attempts=np.int16(0), step=np.int64(0))
        if anchored:
            self.see(News(NEUTRAL, np.zeros(1, np.int64)), 0)

    def text(self, row: int) -> str:
        return decode(self.captions.messages[row])

    def see(self, seen: News, step: int, opinion: Opinion | None = None) -> np.ndarray:
        """Counts the captions of a batch and adds the new ones, with an opinion.

        Returns the rows of all captions that are stored, with the new ones at the end.
        """
        messages, times = seen.messages, seen.times
        before = self.captions.lookup.find(messages)
        new = np.flatnonzero(before < 0)[: max(self.capacity - len(self.captions), 0)]
        new = new[self.captions.add(messages[new])]
        opinions = {"opinion": opinion(messages[new])} if opinion is not None and len(new) else {}
        added = self.of_captions.extend(len(new), **opinions)
        if not self.pairs:
            self.questions.extend(len(new), first=added)
        rows = np.concatenate([before[before >= 0], added])
        np.add.at(self.of_captions["count"], rows, np.concatenate([times[before >= 0], times[new]]))
        self.of_captions["last_step"][rows] = step
        return rows

    # ---- questions

    def want(self, questions: np.ndarray, step: int) -> None:
        """Marks idle questions as waiting. [Q]"""
        idle = questions[self.questions["state"][questions] == IDLE]
        self.questions["state"][idle] = WAITING
        self.questions["step"][idle] = step

    def add_pairs(self, first: np.ndarray, second: np.ndarray, step: int) -> int:
        """Adds questions about pairs of captions [P], [P], if they differ; returns the number of known labels.

        An answered pair gets the same label at once, one that was dropped waits again. With an anchor, each pair has
        one question.
        """
        answered, again = 0, list[int]()
        for pair in zip(first.tolist(), second.tolist(), strict=True):
            before = self._of_pair.get(pair)
            if before is not None and (self.anchored or self.questions["state"][before] != ANSWERED):
                again.append(before)
            elif pair[0] != pair[1] and len(self.questions) < self.capacity:
                known = {} if before is None else {"label": self.questions["label"][before]}
                state = ANSWERED if known else WAITING
                rows = self.questions.extend(1, first=pair[0], second=pair[1], step=step, state=state, **known)
                self._of_pair.setdefault(pair, int(rows[0]))
                answered += len(known)
        self.want(np.array(again, np.int64), step)
        return answered

    def compare_with_neutral(self, rows: np.ndarray, step: int) -> None:
        """Adds the questions whether these captions are better than NEUTRAL, unless they exist. [R]

        Every second caption comes first in its question, as some judges prefer the first or the second.
        """
        rows = np.unique(rows[rows > 0])
        self.add_pairs(np.where(rows % 2, rows, 0), np.where(rows % 2, 0, rows), step)

    @property
    def waiting(self) -> np.ndarray:
        return np.flatnonzero(self.questions["state"] == WAITING)

    @property
    def answered(self) -> np.ndarray:
        return np.flatnonzero(self.questions["state"] == ANSWERED)

    @property
    def answers(self) -> tuple[int, int]:
        """The number of answers, and of those that could be parsed."""
        attempts = self.questions["attempts"]
        return int(attempts.sum()), int(((self.questions["state"] == ANSWERED) & (attempts > 0)).sum())

    def labelled(self) -> np.ndarray:
        """Whether each caption, or a pair with it, has a label; the last entry, False, is for row -1. [U + 1]"""
        labelled = np.zeros(len(self.captions) + 1, bool)
        for column in ("first", "second") if self.pairs else ("first",):
            labelled[self.questions[column][self.answered]] = True
        return labelled

    @property
    def labels(self) -> np.ndarray:
        """P(helpful) of each caption: the judge's label, otherwise the opinion, otherwise NONE. [U] float32"""
        answered = self.questions["state"] == ANSWERED
        return np.where(answered, self.questions["label"], self.of_captions["opinion"].astype(np.float32))

    def better_than_nothing(self) -> np.ndarray:
        """P(better than no message) of each caption, by its last answer; NaN without one. [U] float32

        Captions that are not helpful count as neutral, 1/2. Answers about pairs of captions do not say it.
        """
        better, answered = np.full(len(self.captions), np.nan, np.float32), self.answered
        first, label = self.questions["first"][answered], self.questions["label"][answered]
        if self.anchored:  # the neutral moment has row 0
            better[np.maximum(first, self.questions["second"][answered])] = np.where(first == 0, label, 1 - label)
        elif not self.pairs:
            better[first] = np.maximum(label, 0.5)
        return better

    def drop(self, questions: np.ndarray) -> None:
        """Marks questions as idle; they wait again when their captions are seen."""
        self.questions["state"][questions] = IDLE

    def take(self, question: int, label: float | None, most_attempts: int) -> None:
        """Takes the answer to a question (None: could not be parsed), if it is open."""
        if not 0 <= question < len(self.questions) or self.questions["state"][question] not in (IDLE, WAITING):
            return
        self.questions["attempts"][question] += 1
        if label is not None:
            self.questions["state"][question], self.questions["label"][question] = ANSWERED, label
        elif self.questions["attempts"][question] >= most_attempts:
            self.questions["state"][question] = REFUSED

    def forget_labels(self) -> None:
        """Drops all labels, opinions and pairs, for another goal; captions and their counts stay."""
        self.of_captions["opinion"][:] = NONE
        self.questions["state"][:], self.questions["label"][:], self.questions["attempts"][:] = IDLE, NONE, 0
        if self.pairs:
            self.questions.clear()
            self._of_pair = {}

    # ---- checkpoints

    def arrays(self) -> dict[str, Arrays]:
        """The whole store as arrays; texts are packed without padding."""
        messages = self.captions.messages
        used = messages != 0
        lengths = np.where(used.any(1), WIDTH - used[:, ::-1].argmax(1), 0).astype(np.int16)
        texts = messages[np.arange(WIDTH) < lengths[:, None]]
        captions = self.of_captions.arrays() | {"texts": texts, "lengths": lengths}
        return {"captions": captions, "questions": self.questions.arrays()}

    def restore(self, arrays: Any) -> None:
        texts, lengths = (np.asarray(arrays["captions"][name]) for name in ("texts", "lengths"))
        messages = np.zeros((len(lengths), WIDTH), np.uint8)
        messages[np.arange(WIDTH) < lengths[:, None]] = texts
        self.captions.clear()
        if len(messages):
            self.captions.add(messages)
        self.of_captions.restore(arrays["captions"])
        self.questions.restore(arrays["questions"])
        pairs = zip(self.questions["first"].tolist(), self.questions["second"].tolist(), strict=True)
        self._of_pair = {}
        for number, pair in enumerate(pairs if self.pairs else ()):
            self._of_pair.setdefault(pair, number)


# ---- hosts


def join(parts: Sequence[News]) -> News:
    """Merges news; each caption occurs once in the result."""
    names = ("messages", "times", "questions", "yes")
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    columns["messages"], places, _ = distinct_messages(columns["messages"])
    columns["times"] = np.bincount(places, columns["times"], len(columns["messages"])).astype(np.int64)
    scores = functools.reduce(RunningStats.merge, (part.scores for part in parts), RunningStats())
    steps, labelled = sum(part.steps for part in parts), sum(part.labelled for part in parts)
    return News(**columns, scores=scores, steps=steps, labelled=labelled)


def share(mine: News, hosts: Any) -> list[News]:
    """The news of all hosts, in their order; all call it once per update.

    So all have the same store and learn the same. Each sends the captions of its games; the first host, which alone
    asks the judge, also sends the answers. All add these to their stores in the order of the hosts.
    """
    if hosts is None or hosts.count == 1:
        return [mine]
    file = io.BytesIO()
    np.savez(file, **mine._asdict())
    data = file.getvalue()
    lengths = from_every_host(np.array([len(data)], np.int32))[:, 0].tolist()
    size = 1 << (max(lengths) - 1).bit_length()  # one of few, as the exchange is compiled for each
    sent = from_every_host(np.frombuffer(data.ljust(size, b"\0"), np.int32))
    news = []
    for row, length in zip(sent, lengths, strict=True):
        with np.load(io.BytesIO(row.tobytes()[:length])) as arrays:
            one = News(**arrays)
        scores = RunningStats(*np.asarray(one.scores).tolist())
        news.append(one._replace(scores=scores, steps=int(one.steps), labelled=int(one.labelled)))
    return news

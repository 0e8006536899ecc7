"""Exchanges news between the hosts of a run at each update, so that all have the same store and learn the same.

Each host sends the captions of its games; the first host, which alone asks the judge, also sends the answers. All hosts
add these to their stores in the order of the hosts. A message has a fixed size; the rest waits for the next update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import WIDTH, distinct_messages
from motif_jax.devices.host_arrays import from_every_host
from motif_jax.rewards.online.store import Seen
from motif_jax.rewards.running_stats import RunningStats

MOST = {"rows": 1024, "messages": 64, "answers": 256}  # entries per host and update, with several hosts


class HostNews(NamedTuple):
    """The captions, scores and answers of a host since the last exchange."""

    seen: Seen
    scores: RunningStats  # of the scores of all steps
    steps: int
    labelled: int  # steps whose caption has a label
    questions: np.ndarray  # answered questions. [A] int64
    yes: np.ndarray  # the answers; NaN: could not be parsed. [A] float64


NONE = np.zeros(0, np.int64)
NOTHING = HostNews(Seen(NONE, NONE, np.zeros((0, WIDTH), np.uint8), NONE), RunningStats(), 0, 0, NONE, np.zeros(0))


def join(parts: Sequence[HostNews]) -> HostNews:
    """Merges news; each caption occurs once in the result."""
    scores = RunningStats()
    for part in parts:
        scores = scores.merge(part.scores)
    seen = [part.seen for part in parts]
    rows, of_rows = np.unique(np.concatenate([one.rows for one in seen]), return_inverse=True)
    messages, of_messages, _ = distinct_messages(np.concatenate([one.messages for one in seen]))
    return HostNews(
        Seen(
            rows,
            _sums(of_rows, np.concatenate([one.counts for one in seen]), len(rows)),
            messages,
            _sums(of_messages, np.concatenate([one.times for one in seen]), len(messages)),
        ),
        scores,
        sum(part.steps for part in parts),
        sum(part.labelled for part in parts),
        np.concatenate([part.questions for part in parts]),
        np.concatenate([part.yes for part in parts]),
    )


def _sums(indices: np.ndarray, values: np.ndarray, number: int) -> np.ndarray:
    sums = np.zeros(number, np.int64)
    np.add.at(sums, indices, values)
    return sums


class Exchange:
    """Exchanges news; every host calls `share` at the same point of each update."""

    def __init__(self) -> None:
        self._rest = NOTHING  # news for the next message

    def forget_answers(self) -> None:
        """Drops unsent answers, which are about the previous goal."""
        self._rest = self._rest._replace(questions=NOTHING.questions, yes=NOTHING.yes)

    def share(self, mine: HostNews, hosts: Any) -> list[HostNews]:
        """The news of all hosts, in their order."""
        if hosts is None or hosts.count == 1:
            return [mine]
        now, self._rest = cut(join([self._rest, mine]))
        return [unpack(words) for words in from_every_host(pack(now))]


def cut(news: HostNews) -> tuple[HostNews, HostNews]:
    """Splits news into the part that fits into a message, and the rest."""
    rows, messages, answers = MOST["rows"], MOST["messages"], MOST["answers"]
    seen = news.seen
    first = Seen(seen.rows[:rows], seen.counts[:rows], seen.messages[:messages], seen.times[:messages])
    rest = Seen(seen.rows[rows:], seen.counts[rows:], seen.messages[messages:], seen.times[messages:])
    return (
        news._replace(seen=first, questions=news.questions[:answers], yes=news.yes[:answers]),
        NOTHING._replace(seen=rest, questions=news.questions[answers:], yes=news.yes[answers:]),
    )


def pack(news: HostNews) -> np.ndarray:
    """News as a message of fixed size. -> [N] int32"""
    seen = news.seen
    head = np.array([len(seen.rows), len(seen.messages), len(news.questions), news.steps, news.labelled], np.int64)
    parts = [head, np.array(news.scores, np.float64)]
    for name, *columns in (
        ("rows", seen.rows, seen.counts),
        ("messages", seen.messages, seen.times),
        ("answers", news.questions, news.yes),
    ):
        for column in columns:
            padded = np.zeros((MOST[name], *column.shape[1:]), column.dtype)
            padded[: len(column)] = column
            parts.append(padded)
    return np.frombuffer(b"".join(part.tobytes() for part in parts), np.int32)


def unpack(words: np.ndarray) -> HostNews:
    """The inverse of `pack`."""
    data, offset = np.ascontiguousarray(words).tobytes(), 0

    def take(kind: type, *shape: int) -> np.ndarray:
        nonlocal offset
        number = int(np.prod(shape))
        array: np.ndarray = np.frombuffer(data, kind, number, offset).reshape(shape)
        offset += array.nbytes
        return array

    rows, messages, answers, steps, labelled = take(np.int64, 5).tolist()
    scores = RunningStats(*take(np.float64, 3).tolist())
    seen = Seen(
        take(np.int64, MOST["rows"])[:rows],
        take(np.int64, MOST["rows"])[:rows],
        take(np.uint8, MOST["messages"], WIDTH)[:messages],
        take(np.int64, MOST["messages"])[:messages],
    )
    questions, yes = take(np.int64, MOST["answers"])[:answers], take(np.float64, MOST["answers"])[:answers]
    return HostNews(seen, scores, steps, labelled, questions, yes)

"""Exchanges news between the hosts of a run at each update, so that all have the same store and learn the same.

Each host sends the captions of its games; the first host, which alone asks the judge, also sends the answers. All hosts
add these to their stores in the order of the hosts. A message has a fixed size; the rest waits for the next update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import WIDTH, distinct_messages
from motif_jax.devices.mesh import from_every_host
from motif_jax.rewards.online.store import Seen
from motif_jax.rewards.running_stats import RunningStats

ROWS, MESSAGES, ANSWERS = 1024, 64, 256  # most entries per host and update, with several hosts
MESSAGE = np.dtype([
    ("lengths", "i8", 3), ("steps", "i8"), ("labelled", "i8"), ("scores", "f8", 3), ("rows", "i8", ROWS),
    ("counts", "i8", ROWS), ("messages", "u1", (MESSAGES, WIDTH)), ("times", "i8", MESSAGES),
    ("questions", "i8", ANSWERS), ("yes", "f8", ANSWERS),
])  # fmt: skip


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

    def sums(indices: np.ndarray, values: list[np.ndarray], number: int) -> np.ndarray:
        return np.bincount(indices, np.concatenate(values), number).astype(np.int64)

    rows, of_rows = np.unique(np.concatenate([one.rows for one in seen]), return_inverse=True)
    messages, of_messages, _ = distinct_messages(np.concatenate([one.messages for one in seen]))
    return HostNews(
        Seen(
            rows,
            sums(of_rows, [one.counts for one in seen], len(rows)),
            messages,
            sums(of_messages, [one.times for one in seen], len(messages)),
        ),
        scores,
        sum(part.steps for part in parts),
        sum(part.labelled for part in parts),
        np.concatenate([part.questions for part in parts]),
        np.concatenate([part.yes for part in parts]),
    )


def share(mine: HostNews, rest: HostNews, hosts: Any) -> tuple[list[HostNews], HostNews]:
    """The news of all hosts, in their order, and what waits for the next message; all call it once per update."""
    if hosts is None or hosts.count == 1:
        return [mine], rest
    now, rest = cut(join([rest, mine]))
    return [unpack(words) for words in from_every_host(pack(now))], rest


def cut(news: HostNews) -> tuple[HostNews, HostNews]:
    """Splits news into the part that fits into a message, and the rest."""
    seen = news.seen
    first = Seen(seen.rows[:ROWS], seen.counts[:ROWS], seen.messages[:MESSAGES], seen.times[:MESSAGES])
    rest = Seen(seen.rows[ROWS:], seen.counts[ROWS:], seen.messages[MESSAGES:], seen.times[MESSAGES:])
    return (
        news._replace(seen=first, questions=news.questions[:ANSWERS], yes=news.yes[:ANSWERS]),
        NOTHING._replace(seen=rest, questions=news.questions[ANSWERS:], yes=news.yes[ANSWERS:]),
    )


def pack(news: HostNews) -> np.ndarray:
    """News as a message of fixed size. -> [N] int32"""
    message = np.zeros(1, MESSAGE)
    columns = news.seen._asdict() | {"questions": news.questions, "yes": news.yes}
    for name, column in columns.items():
        message[name][0, : len(column)] = column
    message["lengths"] = [len(columns[name]) for name in ("rows", "messages", "questions")]
    message["scores"], message["steps"], message["labelled"] = news.scores, news.steps, news.labelled
    return message.view(np.int32)


def unpack(words: np.ndarray) -> HostNews:
    """The inverse of `pack`."""
    message = np.ascontiguousarray(words).view(MESSAGE)[0]
    rows, messages, answers = message["lengths"].tolist()
    return HostNews(
        Seen(
            message["rows"][:rows], message["counts"][:rows], message["messages"][:messages],
            message["times"][:messages],
        ),
        RunningStats(*message["scores"].tolist()), int(message["steps"]), int(message["labelled"]),
        message["questions"][:answers], message["yes"][:answers],
    )  # fmt: skip

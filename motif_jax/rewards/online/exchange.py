"""Exchanges news between the hosts of a run at each update, so that all have the same store and learn the same.

Each host sends the captions of its games; the first host, which alone asks the judge, also sends the answers. All hosts
add these to their stores in the order of the hosts. A message has a fixed size; the rest waits for the next update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from motif_jax.captions import distinct_messages
from motif_jax.devices.mesh import from_every_host
from motif_jax.rewards.online.store import NOTHING, News
from motif_jax.rewards.running_stats import RunningStats

# Most entries per host and update, with several hosts.
MOST = {"rows": 1024, "counts": 1024, "messages": 64, "times": 64, "questions": 256, "yes": 256}
MESSAGE = np.dtype([
    ("lengths", "i8", len(MOST)), ("steps", "i8"), ("labelled", "i8"), ("scores", "f8", 3),
    *((name, column.dtype, (MOST[name], *column.shape[1:])) for name, column in NOTHING.columns().items()),
])  # fmt: skip


def join(parts: Sequence[News]) -> News:
    """Merges news; each caption occurs once in the result."""
    scores = RunningStats()
    for part in parts:
        scores = scores.merge(part.scores)
    columns = {name: np.concatenate([part.columns()[name] for part in parts]) for name in MOST}
    columns["rows"], of_rows = np.unique(columns["rows"], return_inverse=True)
    columns["messages"], of_messages, _ = distinct_messages(columns["messages"])
    for name, indices, of in (("counts", of_rows, "rows"), ("times", of_messages, "messages")):
        columns[name] = np.bincount(indices, columns[name], len(columns[of])).astype(np.int64)
    steps, labelled = sum(part.steps for part in parts), sum(part.labelled for part in parts)
    return News(**columns, scores=scores, steps=steps, labelled=labelled)


def share(mine: News, rest: News, hosts: Any) -> tuple[list[News], News]:
    """The news of all hosts, in their order, and what waits for the next message; all call it once per update."""
    if hosts is None or hosts.count == 1:
        return [mine], rest
    now, rest = cut(join([rest, mine]))
    return [unpack(words) for words in from_every_host(pack(now))], rest


def cut(news: News) -> tuple[News, News]:
    """Splits news into the part that fits into a message, and the rest."""
    columns = news.columns()
    rest = News(**{name: column[MOST[name] :] for name, column in columns.items()})
    return news._replace(**{name: column[: MOST[name]] for name, column in columns.items()}), rest


def pack(news: News) -> np.ndarray:
    """News as a message of fixed size. -> [N] int32"""
    message, columns = np.zeros(1, MESSAGE), news.columns()
    for name, column in columns.items():
        message[name][0, : len(column)] = column
    message["lengths"] = [len(column) for column in columns.values()]
    message["scores"], message["steps"], message["labelled"] = news.scores, news.steps, news.labelled
    return message.view(np.int32)


def unpack(words: np.ndarray) -> News:
    """The inverse of `pack`."""
    message = np.ascontiguousarray(words).view(MESSAGE)[0]
    columns = {name: message[name][:length] for name, length in zip(MOST, message["lengths"].tolist(), strict=True)}
    scores = RunningStats(*message["scores"].tolist())
    return News(**columns, scores=scores, steps=int(message["steps"]), labelled=int(message["labelled"]))

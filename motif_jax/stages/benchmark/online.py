"""Measures a reward that is learnt from a judge while the agent plays, against what it cannot be quicker than.

online.lookup     nanoseconds per step for the hand-off thread; limit: to hash the same messages once
online.lesson     seconds of one lesson of each network
online.answers    answers per second of the embedded judge; limit: questions at a time / delay
online.kept       steps/s of a training with the judge over one without it, in turn; limit: 1
online.age        seconds from the first sight of a caption to a label that pays, median and 95 %
online.memory     MiB of the store with a million distinct captions, and what an update then costs
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.stream import Item, Stream
from motif_jax.captions import WIDTH, hash_words
from motif_jax.rewards.online.making import Judges, make_facts
from motif_jax.rewards.online.source import OnlineSource
from motif_jax.rewards.online.store import Seen, Store
from motif_jax.stages import train_policy
from motif_jax.stages.benchmark.rows import Row, say, take_turns
from motif_jax.system.files import read_json, read_lines
from motif_jax.system.metrics import resident_mib

KNOWN = 1000  # distinct captions of a batch's source; random play shows some 600
STEPS = 4096  # of a batch
QUESTIONS = 900
MARGIN = 50  # of them at the start and at the end, which do not count
MANY = 1_000_000
LIMIT = "limit"  # in the sizes of a row


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Measures this part of the benchmark; returns its rows, each printed as soon as it is known."""
    config = config.copy_and_resolve_references()
    config.annotate.cache_dir = ""
    rows = [say(row) for row in lookup_rows(config)]
    for kind in ("classification", "ranking"):
        rows.append(say(lesson_row(config, kind)))
    rows.append(say(answers_row(config)))
    rows += [say(row) for row in memory_rows()]
    with tempfile.TemporaryDirectory(dir=workdir) as folder:
        rows += [say(row) for row in training_rows(config, Path(folder))]
    return rows


def captions(number: int, first: int = 0) -> np.ndarray:
    """Distinct messages of about the usual length. [number, 256] uint8"""
    texts = [b"You see here %d objects of the kind %d." % (index % 7, index) for index in range(first, first + number)]
    return np.frombuffer(b"".join(text.ljust(WIDTH, b"\0") for text in texts), np.uint8).reshape(-1, WIDTH)


def rate_of(run: Callable[[], Any], seconds: float) -> float:
    """Seconds per call, in the median of as many calls as fit into `seconds`, three at least."""
    found: list[float] = []
    deadline = time.monotonic() + seconds
    while len(found) < 3 or time.monotonic() < deadline:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def source_of(config: ConfigDict, kind: str) -> OnlineSource:
    """A source of a kind that knows KNOWN captions, and asks nobody."""
    config = config.copy_and_resolve_references()
    config.policy.online.kind = kind
    source = OnlineSource(make_facts(config, {}), config)
    seen = Seen(np.zeros(0, np.int64), np.zeros(0, np.int64), captions(KNOWN), np.ones(KNOWN, np.int64))
    source.store.see(seen, 0)
    rng = np.random.default_rng(0)
    if source.store.pairs:
        source.store.add_pairs(rng.integers(KNOWN, size=KNOWN), rng.integers(KNOWN, size=KNOWN), 0)
    source.store.want(np.arange(len(source.store.questions)), 0)
    for question in source.store.waiting.tolist():
        source.store.take(question, float(question % 2), 1)
    source._swap()
    return source


def lookup_rows(config: ConfigDict) -> list[Row]:
    """Nanoseconds per step of retrieval, as frequencies are in play, beside hashing alone."""
    source = source_of(config, "retrieval")
    chances = 1 / np.arange(1, KNOWN + 1)
    shown = captions(KNOWN)[np.random.default_rng(0).choice(KNOWN, STEPS, p=chances / chances.sum())]

    def look() -> None:
        source.worth(shown)
        assert source._passed is not None
        source._passed.clear()

    seconds = config.benchmark.seconds
    limit = 1e9 * rate_of(lambda: hash_words(shown.view(np.uint64)), seconds) / STEPS
    sizes = {"captions": KNOWN, "steps": STEPS, LIMIT: round(limit, 1)}
    return [Row("online.lookup", round(1e9 * rate_of(look, seconds) / STEPS, 1), "ns per step", sizes)]


def lesson_row(config: ConfigDict, kind: str) -> Row:
    """Milliseconds of a lesson."""
    source, section = source_of(config, kind), config.policy.online
    taught: Any = source.kind
    store, chosen = source.store, source.store.answered[: section.batch_size]

    def teach() -> None:
        taught._pupil.teach(taught.batch(store, chosen))
        taught._pupil.figures()  # which waits for the device

    teach()
    sizes = {"batch": section.batch_size, "encoder": section.message}
    return Row(f"online.lesson.{kind}", round(1e3 * rate_of(teach, config.benchmark.seconds), 2), "ms", sizes)


def answers_row(config: ConfigDict) -> Row:
    """Answers per second of the embedded judge, by the thread that asks it."""
    config = config.copy_and_resolve_references()
    config.annotate.backend, config.policy.synchronous = "judge", False
    section = config.annotate.judge
    config.annotate.server.in_flight = section.at_a_time
    judge = Judges(config).open("defaultgoal", 0, at_once=True)
    assert isinstance(judge, Stream)
    try:
        items = [Item(number, 0, Question(f"You see here {number} gold pieces.")) for number in range(QUESTIONS)]
        judge.plan(items, 2**62)
        came = 0

        def wait_for(number: int) -> tuple[int, float]:
            nonlocal came
            while came < number:
                came += len(judge.answers())
                time.sleep(0.005)
            return came, time.monotonic()

        first, start = wait_for(MARGIN)  # until it is under way, and not to the end, where fewer are asked at a time
        last, end = wait_for(QUESTIONS - MARGIN)
        rate = (last - first) / (end - start)
    finally:
        judge.close()
    limit = section.at_a_time / section.delay_s if section.delay_s else float("inf")
    sizes = {LIMIT: limit, "share": round(rate / limit, 3), "in_flight": section.at_a_time, "delay_s": section.delay_s}
    return Row("online.answers", round(rate, 1), "answers/s", sizes)


def memory_rows() -> list[Row]:
    """What a million distinct captions take, and how long it takes then to add some and to look up a batch."""
    before, store = resident_mib(), Store(pairs=False, capacity=MANY + 10_000)
    for first in range(0, MANY, 50_000):
        new = captions(50_000, first)
        store.see(Seen(np.zeros(0, np.int64), np.zeros(0, np.int64), new, np.ones(len(new), np.int64)), first)
    memory = resident_mib() - before
    bounded = Store(pairs=False, capacity=1000)
    bounded.see(Seen(np.zeros(0, np.int64), np.zeros(0, np.int64), captions(2000), np.ones(2000, np.int64)), 0)
    assert bounded.is_full
    assert len(bounded.captions) == 1000
    start = time.perf_counter()
    saved = store.arrays()
    saving = time.perf_counter() - start
    kept = sum(array.nbytes for columns in saved.values() for array in columns.values()) / 2**20
    start, number = time.perf_counter(), 0
    while number < 1000:
        new = captions(50, MANY + number)
        store.see(Seen(np.zeros(0, np.int64), np.zeros(0, np.int64), new, np.ones(50, np.int64)), MANY)
        number += 50
    adding = (time.perf_counter() - start) / 20
    looked = rate_of(lambda: store.captions.lookup.find(captions(STEPS)), 0.5)
    sizes = {"captions": MANY, "bytes_each": round(memory * 2**20 / MANY), "checkpoint_mib": round(kept)}
    return [
        Row("online.memory", round(memory), "MiB", sizes),
        Row("online.memory.add", round(1e3 * adding, 2), "ms", {"new captions": 50, "captions": MANY}),
        Row("online.memory.lookup", round(1e9 * looked / STEPS, 1), "ns per step", {"captions": MANY}),
        Row("online.memory.save", round(1e3 * saving), "ms", {"captions": MANY}),
    ]


def training_rows(config: ConfigDict, folder: Path) -> list[Row]:
    """Trains with the judge and without, in turn, and compares how fast."""
    config = config.copy_and_resolve_references()
    seconds = max(config.benchmark.train_seconds / (2 * config.benchmark.repeats), 5.0)
    policy = config.policy
    policy.update(
        {"train_for_seconds": seconds, "log_every_s": seconds / 4, "tensorboard": False, "synchronous": False}
    )
    policy.update(
        {"network": config.benchmark.networks[-1], "intrinsic_coefficient": 0.0, "extrinsic_coefficient": 1.0}
    )
    config.annotate.backend = "judge"
    done: list[Path] = []

    def train(sources: str) -> float:
        done.append(folder / str(len(done)))
        policy.sources = sources
        train_policy.run(config, done[-1])
        rows = list(read_lines(done[-1] / "policy" / "metrics.jsonl"))
        return float(statistics.median(row["steps_per_s"] for row in rows[1:] or rows))

    found = take_turns({"with": lambda: train("online:0.1"), "without": lambda: train("")}, config.benchmark.repeats)
    shares = [one / other for one, other in zip(found["with"], found["without"], strict=True)]
    rates = {name: round(statistics.median(values)) for name, values in found.items()}
    sizes = {LIMIT: 1, **rates, "network": policy.network, "seconds": round(seconds, 1), "rounds": len(shares)}
    last = list(read_lines(done[-2] / "policy" / "metrics.jsonl"))
    steps = read_json(done[-2] / "policy" / "summary.json")["env_steps"]
    labels = last[-1].get("reward/online_labels", 0.0)
    rows = [
        Row("online.kept", round(statistics.median(shares), 3), "of the steps/s", sizes),
        Row("online.labels", round(1e6 * labels / steps), "per million steps", {"labels": labels, "steps": steps}),
    ]
    for share in ("p50", "p95"):
        values = [row[f"reward/online_age_s_{share}"] for row in last if f"reward/online_age_s_{share}" in row]
        if values:
            rows.append(Row(f"online.age.{share}", round(statistics.median(values), 2), "s", {"captions": labels}))
    return rows

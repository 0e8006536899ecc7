"""A reward that is learnt from a judge while the agent plays, each figure beside its limit.

online.lookup     nanoseconds per step for the hand-off thread; limit: hashing the same messages once
online.lesson     milliseconds of one lesson of each network
online.answers    answers per second of the embedded judge; limit: questions at a time / delay
online.kept       steps/s of a training with the judge over one without it, in turn; limit: 1
online.age        seconds from the first sight of a caption to its label, median and 95 %
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

from benchmarks.rows import Row, Rows, medians, take_turns
from motif_jax.annotation.annotator import Question
from motif_jax.annotation.stream import Item
from motif_jax.captions import WIDTH, hash_words
from motif_jax.envs.texts import texts_of
from motif_jax.files import read_json, read_lines
from motif_jax.rewards.online.source import OnlineSource, make_facts, open_stream
from motif_jax.rewards.online.store import News, Store
from motif_jax.stages import train_policy
from motif_jax.system.metrics import resident_mib

KNOWN = 1000  # distinct captions of a batch's source; random play shows some 600
STEPS = 4096  # of a batch
QUESTIONS = 900
MARGIN = 50  # of them at the start and at the end, which do not count
MANY = 1_000_000
NEW = 50  # captions that are new in an update


def measure(config: ConfigDict, workdir: Path) -> list[Row]:
    """Rows `online.*`."""
    config, rows = config.copy_and_resolve_references(), Rows()
    config.annotate.cache_dir = ""
    add_lookup(rows, config)
    for kind in ("classification", "ranking"):
        add_lesson(rows, config, kind)
    add_answers(rows, config)
    add_memory(rows)
    with tempfile.TemporaryDirectory(dir=workdir) as folder:
        add_trainings(rows, config, Path(folder))
    return rows


def captions(number: int, first: int = 0) -> np.ndarray:
    """Distinct messages of about the usual length. [number, 256] uint8"""
    texts = [b"You see here %d objects of the kind %d." % (index % 7, index) for index in range(first, first + number)]
    return np.frombuffer(b"".join(text.ljust(WIDTH, b"\0") for text in texts), np.uint8).reshape(-1, WIDTH)


def seen(number: int, first: int = 0) -> News:
    """Such messages as a batch of rollouts shows them, each once."""
    return News(messages=captions(number, first), times=np.ones(number, np.int64))


def seconds_of(run: Callable[[], Any], seconds: float) -> float:
    """Seconds per call, the median of the calls that fit into `seconds`, three at least."""
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
    typed = train_policy.STAGE.view(config.to_dict())
    source = OnlineSource(make_facts(typed, {}), typed)
    source.store.see(seen(KNOWN), 0)
    rng = np.random.default_rng(0)
    if source.store.pairs:
        source.store.add_pairs(rng.integers(KNOWN, size=KNOWN), rng.integers(KNOWN, size=KNOWN), 0)
    source.store.want(np.arange(len(source.store.questions)), 0)
    for question in source.store.waiting.tolist():
        source.store.take(question, float(question % 2), 1)
    source._swap()
    return source


def add_lookup(rows: Rows, config: ConfigDict) -> None:
    """Retrieval, with messages as frequent as in play, beside hashing alone."""
    source, seconds = source_of(config, "retrieval"), config.benchmark.seconds
    chances = 1 / np.arange(1, KNOWN + 1)
    shown = captions(KNOWN)[np.random.default_rng(0).choice(KNOWN, STEPS, p=chances / chances.sum())]

    def look() -> None:
        source.worth(shown)
        assert source._passed is not None
        source._passed.clear()

    limit = round(1e9 * seconds_of(lambda: hash_words(shown.view(np.uint64)), seconds) / STEPS, 1)
    took = 1e9 * seconds_of(look, seconds) / STEPS
    rows.add("online.lookup", took, "ns per step", 1, captions=KNOWN, steps=STEPS, limit=limit)


def add_lesson(rows: Rows, config: ConfigDict, kind: str) -> None:
    """One lesson of a network."""
    source, section = source_of(config, kind), config.policy.online
    taught: Any = source.kind
    store, chosen = source.store, source.store.answered[: section.batch_size]

    def teach() -> None:
        taught.update(taught.batch(store, chosen))
        taught.figures()  # which waits for the device

    teach()
    took = 1e3 * seconds_of(teach, config.benchmark.seconds)
    rows.add(f"online.lesson.{kind}", took, "ms", 2, batch=section.batch_size, encoder=section.message)


def add_answers(rows: Rows, config: ConfigDict) -> None:
    """Answers of the embedded judge, by the thread that asks it."""
    config = config.copy_and_resolve_references()
    config.annotate.backend, config.policy.synchronous = "judge", False
    section = config.annotate.judge
    config.annotate.server.in_flight = section.at_a_time
    view = train_policy.STAGE.view(config.to_dict())
    judge = open_stream(view, texts_of(view.env, view.annotate.lexicon), "defaultgoal", 0, at_once=True)
    try:
        judge.plan([Item(number, 0, Question(f"You see here {number} gold pieces.")) for number in range(QUESTIONS)],
                   2**62)  # fmt: skip
        came, moments = 0, []
        for number in (MARGIN, QUESTIONS - MARGIN):  # at the start and at the end fewer are asked at a time
            while came < number:
                came += len(judge.answers())
                time.sleep(0.005)
            moments.append((came, time.monotonic()))
    finally:
        judge.close()
    (first, start), (last, end) = moments
    rate = (last - first) / (end - start)
    limit = section.at_a_time / section.delay_s if section.delay_s else float("inf")
    sizes = {"limit": limit, "share": round(rate / limit, 3), "in_flight": section.at_a_time}
    rows.add("online.answers", rate, "answers/s", 1, **sizes, delay_s=section.delay_s)


def add_memory(rows: Rows) -> None:
    """A store of a million distinct captions: its memory, its part of a checkpoint, and how long its work takes."""
    before, store = resident_mib(), Store(pairs=False, capacity=MANY + 10_000)
    for first in range(0, MANY, 50_000):
        store.see(seen(50_000, first), first)
    memory = resident_mib() - before
    start = time.perf_counter()
    saved = store.arrays()
    saving = time.perf_counter() - start
    kept = sum(array.nbytes for columns in saved.values() for array in columns.values()) / 2**20
    start = time.perf_counter()
    for number in range(0, 20 * NEW, NEW):
        store.see(seen(NEW, MANY + number), MANY)
    adding = (time.perf_counter() - start) / 20
    looked = seconds_of(lambda: store.captions.lookup.find(captions(STEPS)), 0.5)
    sizes = {"bytes_each": round(memory * 2**20 / MANY), "checkpoint_mib": round(kept)}
    rows.add("online.memory", memory, "MiB", None, captions=MANY, **sizes)
    rows.add("online.memory.add", 1e3 * adding, "ms", 2, **{"new captions": NEW, "captions": MANY})
    rows.add("online.memory.lookup", 1e9 * looked / STEPS, "ns per step", 1, captions=MANY)
    rows.add("online.memory.save", 1e3 * saving, "ms", None, captions=MANY)


def add_trainings(rows: Rows, config: ConfigDict, folder: Path) -> None:
    """Trains with the judge and without, in turn, and compares how fast."""
    config = config.copy_and_resolve_references()
    seconds = max(config.benchmark.train_seconds / (2 * config.benchmark.repeats), 5.0)
    policy = config.policy
    policy.update({"train_for_seconds": seconds, "log_every_s": seconds / 4, "tensorboard": False})
    policy.update({"synchronous": False, "network": config.benchmark.networks[-1]})
    policy.update({"intrinsic_coefficient": 0.0, "extrinsic_coefficient": 1.0})
    config.annotate.backend = "judge"
    done: list[Path] = []

    def train(sources: str) -> float:
        done.append(folder / str(len(done)))
        policy.sources = sources
        train_policy.STAGE.run(train_policy.STAGE.view(config.to_dict()), done[-1])
        logged = list(read_lines(done[-1] / "policy" / "metrics.jsonl"))
        return float(statistics.median(row["steps_per_s"] for row in logged[1:] or logged))

    found = take_turns({"with": lambda: train("online:0.1"), "without": lambda: train("")}, config.benchmark.repeats)
    shares = [one / other for one, other in zip(found["with"], found["without"], strict=True)]
    sizes = {name: round(rate) for name, rate in medians(found).items()}
    sizes |= {"network": policy.network, "seconds": round(seconds, 1), "rounds": len(shares)}
    rows.add("online.kept", statistics.median(shares), "of the steps/s", 3, limit=1, **sizes)
    last = list(read_lines(done[-2] / "policy" / "metrics.jsonl"))
    steps = read_json(done[-2] / "policy" / "summary.json")["env_steps"]
    labels = last[-1].get("reward/online_labels", 0.0)
    rows.add("online.labels", 1e6 * labels / steps, "per million steps", None, labels=labels, steps=steps)
    for share in ("p50", "p95"):
        values = [row[f"reward/online_age_s_{share}"] for row in last if f"reward/online_age_s_{share}" in row]
        if values:
            rows.add(f"online.age.{share}", statistics.median(values), "s", 2, captions=labels)

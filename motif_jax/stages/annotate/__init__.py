"""The stage annotate: a language model, or another annotator, says which moment of each pair is better.

Pairs with the same two captions share one question, which is asked once (preferences/questions.py). Several jobs can
share the work: each asks its part of the questions and writes the labels as a shard. The last one merges all
shards.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import motif_jax
from motif_jax.annotation.annotator import Incomplete, Question, batched
from motif_jax.annotation.asking import LEAST_SHARE, Answered, Asking, AskingCounts, Ratings
from motif_jax.annotation.backends import CaptionBackend, OpenBackend, Oracle, open_judge, opened
from motif_jax.console import clean, print_line
from motif_jax.envs.texts import texts_of
from motif_jax.envs.worlds import title
from motif_jax.files import read_json
from motif_jax.preferences.merging import NOT_ASKED, check_free, is_merged, last_merge, merge
from motif_jax.preferences.neutral import NEUTRAL, ask_about, captions_to_ask
from motif_jax.preferences.questions import WITH_BOTTOM_LINE, AnswerTable, Questions
from motif_jax.preferences.shards import TRY, Part, Shard, count, folder_lock, question_range, rows_of
from motif_jax.preferences.store import PairDataset, Preference, annotation_folder, labels_file
from motif_jax.run import Lock, Run
from motif_jax.stages import Stage
from motif_jax.stages.annotate.page import measure_bias, page_of, write_page
from motif_jax.stages.annotate.rounds import QuestionRounds
from motif_jax.stages.annotate.setup import (
    AnnotateConfig,
    check_section,
    label_name,
    make_backend,
    make_metadata,
    open_dataset,
)
from motif_jax.structs import UserError
from motif_jax.system.metrics import Progress

MOST_TIES = 0.9  # share of the answers
TRIED = 128  # questions that are asked in both orders first
RARELY = 0.05  # share of them whose answers may turn with the order
COMMIT_EVERY_S = 30.0  # even if the batch is not full, as answers of a slow model are expensive


def begun(config: AnnotateConfig, workdir: Path) -> list[Path]:
    """The directory of the annotation's shards."""
    return [annotation_folder(workdir / "dataset", label_name(config.annotate))]


def check(config: AnnotateConfig) -> None:
    """Raises UserError for values that cannot work, before anything is started."""
    check_section(config.annotate, texts_of(config.env, config.annotate.lexicon))


def is_complete(config: AnnotateConfig, workdir: Path) -> bool:
    """Whether the config's annotation is merged; a question that was asked and got no verdict is not asked again."""
    section = config.annotate
    name = label_name(section)
    if section.ignore_existing or section.compare_with or not page_of(workdir, name).exists():
        return False
    dataset = PairDataset(workdir / "dataset")
    metadata = make_metadata(make_backend(config), section, dataset)
    return is_merged(dataset, name, metadata)


def run(config: AnnotateConfig, workdir: Path, open_backend: OpenBackend = opened) -> None:
    """Labels this job's shard, and merges all shards after the last one. `open_backend` opens the judge, if needed."""
    section, part = config.annotate, Part(config.annotate.shard, config.annotate.num_shards)

    # ---- questions
    dataset = open_dataset(workdir)
    if section.captions == WITH_BOTTOM_LINE and "blstats" not in dataset.data:
        raise UserError(
            f"dataset {str(dataset.path)!r} has no data/blstats.npy, which captions with the bottom line need "
            "(--config.annotate.captions)"
        )
    name = label_name(section)
    check_free(dataset, name)
    for other in filter(None, section.compare_with.split(",")):
        dataset.preference(other)
    backend = make_backend(config)
    metadata = make_metadata(backend, section, dataset)
    if isinstance(backend, Oracle):
        questions, of_pair = None, np.arange(len(dataset))  # it answers every pair. [N]
    else:
        questions = Questions(dataset, section.captions)
        of_pair = questions.of_pair

    # ---- ask, unless all was asked, here or where the dataset comes from
    folder, labels = annotation_folder(dataset.path, name), labels_file(dataset.path, name)
    stage = Run(workdir).stage("annotate", str(folder.relative_to(workdir)))  # its shards are locked one by one
    done = is_merged(dataset, name, metadata) and not section.ignore_existing
    if done:
        stage.bind(config)
    elif section.merge == "auto":
        rows = rows_of(part, of_pair)
        with Shard(folder, part, len(rows), metadata, labels if section.ignore_existing else None) as shard:
            stage.bind(config)
            shard.take_adopted(rows, backend.tie_margin)
            if isinstance(backend, Oracle):
                ask_oracle(backend, dataset, shard, rows[rows < (section.max_pairs or np.inf)])
            else:
                assert questions is not None
                AnnotationJob(config, backend, questions, shard, rows).run(open_backend)

    # ---- merge
    partial = section.merge == "partial" or section.max_pairs > 0
    merged = last_merge(dataset, name) if done else merge(dataset, name, part.of, of_pair, metadata, partial)
    shown = {kind: value for kind, value in merged.counts.items() if value or kind != "not asked"}
    shares = ", ".join(f"{value / len(dataset):.1%} {kind}" for kind, value in shown.items())
    if not merged.written:
        waiting = len(merged.missing)
        print_line(f"annotate: {name}: shard {part.number} is done; {waiting} of {part.of} shards are not finished yet")
        return
    print_line(f"annotate: {name}: {len(dataset):,} pairs: {shares}")
    asked = np.flatnonzero(of_pair >= 0)
    ties = float((dataset.preference(name)[asked] == Preference.TIE).mean()) if len(asked) else 0.0
    if isinstance(backend, CaptionBackend) and backend.is_model and ties > MOST_TIES:
        print_line(
            f"annotate: {ties:.0%} of the answers are ties, from which little can be learnt: they are within "
            f"{backend.tie_margin:g} of one half (--config.annotate.tie_margin)"
        )
    page = write_page(stage, section, backend, dataset, name, questions, merged, title(config.env))
    print_line(f"annotate: labels in {labels}, page: {page}")


def ask_oracle(oracle: Oracle, dataset: PairDataset, shard: Shard, wanted: np.ndarray) -> None:
    """Labels `wanted`, the first rows of a shard."""
    started = time.monotonic()
    shard.set(np.arange(len(wanted)), oracle.answer(dataset, wanted), 0.0)
    unknown = int((shard.codes == Preference.UNKNOWN).sum())
    log = {NOT_ASKED: unknown, "seconds": round(time.monotonic() - started, 1)}
    shard.commit(len(wanted) == len(shard.codes), log)


# ---- one job
# Questions with a label from an earlier run are not asked again; the rest go through the loop of annotation/asking.py,
# which answers what its cache knows. Labels are committed to the shard after every batch of answers, so a killed job
# loses at most one batch of labels, whose answers are in the cache.


class AnnotationJob:
    """Asks the questions of one shard."""

    def __init__(
        self, config: AnnotateConfig, backend: CaptionBackend, questions: Questions, shard: Shard, rows: np.ndarray
    ):
        """`rows` are the rows of the dataset that belong to the shard. [M]"""
        self._section, self._backend, self._questions, self._shard = config.annotate, backend, questions, shard
        section = config.annotate
        low, high = question_range(shard.part, len(questions))
        self._asked, self._low = AnswerTable(low, questions.sample(backend.both_orders)[low:high]), low
        self._put = np.zeros(high - low, bool)  # whether the question was asked, with or without a verdict

        # Rows with a question, its index in this shard, and whether the row has its captions in the other order.
        self._asking = np.flatnonzero(questions.of_pair[rows] >= 0)
        self._place = questions.of_pair[rows][self._asking] - low
        self._turned = questions.turned[rows][self._asking]
        within = rows[self._asking] < (section.max_pairs or np.inf)
        self._wanted = np.unique(self._place[within])  # indices in this shard, in the order of asking. [W]

        # Equal captions are ties. Labels of earlier runs are known answers.
        shard.set(np.flatnonzero(questions.of_pair[rows] < 0), np.full(len(rows) - len(self._asking), 0.5), 0.0)
        before = shard.prob[self._asking]
        self._asked.take_labels(self._place + low, np.where(self._turned, 1 - before, before))
        self._rounds: QuestionRounds | None = None
        if section.order == "random":
            self._wanted = np.random.default_rng([config.seed, 90, low]).permutation(high - low)[: len(self._wanted)]
        elif section.order == "disagreement":
            self._rounds = QuestionRounds(questions, shard, len(self._wanted), section.rounds, config.seed)
            self._wanted = self._rounds.order
        self._before = dict(shard.record.get("log", {}))  # of earlier runs
        self._counts = AskingCounts("annotate")
        self._started = self._committed = time.monotonic()
        self._uncommitted = 0  # answers of the judge since the last commit
        self._flight: dict[Question, tuple[int, bool]] = {}  # drawn, not yet answered: number, turned
        self._answers = self._before.get("answers", "")  # the folder of the answer cache
        self._model = self._before.get("model", "")  # the full name, as in the answer cache
        self._progress: Progress | None = None

    def run(self, open_backend: OpenBackend) -> None:
        """Asks all open questions of the shard, and writes the labels."""
        were_asked = (
            self._shard.record["finished"] or self._before.get("wanted") == self._wanted_id()
        )  # those without a verdict, too
        if (were_asked or not self._open()) and not self._next_round() and not self._is_neutral_due():
            if not were_asked:
                self._commit(True)
            return
        print_line(f"annotate: {self._open():,} distinct questions for {len(self._shard.codes):,} pairs")
        asking = open_judge(self._backend, self._section.cache_dir, self._counts, open_backend)
        try:
            self._model = asking.annotator.model
            self._check_model()
            if asking.cache and asking.cache.folder:
                self._answers = str(asking.cache.folder.resolve())
            self._ask(asking)
        finally:
            asking.close()

    def _check_model(self) -> None:
        """Raises UserError if the labels so far are from another model, which the config alone may not show."""
        with folder_lock(self._shard.folder):
            records = [read_json(file) for file in sorted(self._shard.folder.glob("shard-*.json"))]
        for record in records:
            other = record["log"].get("model", self._model)
            if other and other != self._model:  # "": that job did not ask
                raise UserError(
                    f"annotation {self._shard.folder.name!r} was begun with the model {other!r}, and this is "
                    f"{self._model!r} (--config.annotate.model): {TRY}"
                )

    def _ask(self, asking: Asking | Ratings) -> None:
        self._progress = Progress("annotate", len(self._shard.codes), "pairs", self._label())
        try:
            self._try_orders(asking)
            while True:
                asking.ask(self._stream(), self._take)
                self._save()
                if not self._next_round():
                    break
            self._check_answered()
            if self._is_neutral_due():
                self._ask_about_nothing(asking)
            self._commit(True)
        except Incomplete as stopped:
            labelled = self._save()
            raise UserError(
                f"{stopped}; {labelled:,} of {len(self._shard.codes):,} pairs are labelled, and the same command goes "
                "on from there"
            ) from None
        except BaseException:
            self._save()
            raise
        finally:
            self._progress.close()
        if self._counts.from_cache:
            print_line(f"annotate: {self._counts.from_cache:,} answers are from the cache {self._answers!r}")

    def _try_orders(self, asking: Asking | Ratings) -> None:
        """Asks some questions in both orders, and then all, unless the order hardly ever decides."""
        if not 0 < self._backend.both_orders < 1:
            return
        first = self._wanted[: self._rounds.size] if self._rounds else self._wanted  # the same in every round
        tried = np.random.default_rng(self._low).permutation(first)[:TRIED] + self._low
        self._asked.ask_both(tried)
        asking.ask(self._draw((number, turned) for turned in (False, True) for number in tried.tolist()), self._take)
        both = self._asked.both_answers()
        turned = measure_bias(both, self._backend.tie_margin)["turned"] if len(both) else 0.0
        if turned > RARELY:
            self._asked.ask_both(self._low + np.arange(len(self._put)))
            print_line(
                f"annotate: {turned:.0%} of {len(both):,} pairs get the other caption in the reverse order: all "
                "questions are asked in both orders"
            )

    def _is_neutral_due(self) -> bool:
        """Whether this job must ask about the neutral moment: only shard 0, and only if such moments are rare."""
        elsewhere = self._shard.part.number or self._shard.record["finished"] or self._section.max_pairs
        if elsewhere or self._section.captions != "msg" or (self._shard.folder / NEUTRAL).exists():
            return False
        return len(captions_to_ask(*self._questions.dataset.captions())) > 0

    def _ask_about_nothing(self, asking: Asking | Ratings) -> None:
        """Compares the most frequent captions with a moment without a message, in both orders."""
        table, ids = self._questions.dataset.captions()

        def ask(pairs: list[tuple[str, str]]) -> np.ndarray:
            answers: dict[Question, float | None] = {}
            asking.ask((Question(*pair) for pair in pairs), lambda one: answers.update({one.question: one.answer.yes}))
            return np.array([answers[Question(*pair)] for pair in pairs], np.float64)  # None is NaN

        ask_about(table, captions_to_ask(table, ids), ask, self._shard.folder)

    def _check_answered(self) -> None:
        """Raises UserError if fewer than `LEAST_SHARE` of the wanted questions have a label."""
        wanted, unanswered = len(self._wanted), self._open()
        if wanted - unanswered < LEAST_SHARE * wanted:
            raise UserError(
                f"{unanswered:,} of {wanted:,} questions have no verdict; the last answer was "
                f"{clean(repr(self._counts.last_unreadable))} (--config.annotate.backend, .model, .prompt_file); the "
                "same command asks them again"
            )

    def _stream(self) -> Iterator[Question]:
        """The open questions; in each batch first those in their own order, then the turned ones."""
        for block in batched(self._asked.missing(self._wanted), self._section.batch_size):
            yield from self._draw(sorted(block, key=lambda spot: spot[1]))

    def _draw(self, spots: Iterable[tuple[int, bool]]) -> Iterator[Question]:
        """The questions with these numbers, in their own order or turned."""
        for number, turned in spots:
            question = Question(*self._questions.text(number))
            question = question.turned if turned else question
            self._flight[question] = (number, turned)
            yield question

    def _take(self, answered: Answered) -> None:
        """Records an answer; commits when a batch is full, or after COMMIT_EVERY_S."""
        number, turned = self._flight.pop(answered.question)
        self._asked.put(number, turned, answered.answer.yes)
        self._put[number - self._low] = True
        self._uncommitted += not answered.cached
        full = self._uncommitted >= self._section.batch_size
        if full or time.monotonic() - self._committed > COMMIT_EVERY_S:
            self._save()

    def _save(self) -> int:
        """Labels what is answered, and commits the labels; returns the number of labelled rows."""
        labelled = self._label()
        # Not before the first answer: it would bind the annotation to settings that may not work.
        if (self._shard.codes[self._asking] != Preference.UNKNOWN).any():
            self._commit(False)
        self._committed, self._uncommitted = time.monotonic(), 0  # also without new labels, as `_label` takes time
        if self._progress:
            self._progress.update(labelled, **self._notes())
        return labelled

    def _commit(self, ended: bool) -> None:
        """Writes the labels and the log to the shard; `ended`: all wanted questions were asked, answered or not."""
        self._label()
        log: dict[str, Any] = {name: self._before.get(name, 0) + one for name, one in self._counts.logged().items()}
        seconds = self._before.get("seconds", 0.0) + time.monotonic() - self._started
        log |= {"seconds": round(seconds, 1), "answers": self._answers, "model": self._model}
        unknown = self._shard.codes[self._asking] == Preference.UNKNOWN
        log |= {NOT_ASKED: int((unknown & ~self._put[self._place]).sum()), "motif_jax": motif_jax.__version__}
        if ended:
            log["wanted"] = self._wanted_id()
        self._shard.commit(ended and self._asks_all(), log)

    def _label(self) -> int:
        """Labels the rows whose questions are answered; returns the number of labelled rows."""
        labels = self._asked.labels()[self._place]
        new = np.isnan(self._shard.prob[self._asking]) & ~np.isnan(labels)
        prob = np.where(self._turned, 1 - labels, labels)
        self._shard.set(self._asking[new], prob[new], self._backend.tie_margin)
        return int((self._shard.codes != Preference.UNKNOWN).sum())

    def _open(self) -> int:
        """The number of wanted questions without a label."""
        return int(np.isnan(self._asked.labels()[self._wanted]).sum())

    def _wanted_id(self) -> int:
        """A checksum of the wanted questions, in any order."""
        return zlib.crc32(np.sort(self._wanted).tobytes())

    def _asks_all(self) -> bool:
        """Whether every question of the shard is wanted."""
        return len(self._wanted) == len(self._put)

    def _next_round(self) -> bool:
        """Chooses the questions of the next round; returns whether there is one."""
        if self._rounds is None or not self._rounds.add():
            return False
        self._wanted = self._rounds.order
        return True

    def _notes(self) -> dict[str, str]:
        """Figures for the progress bar: questions and tokens per second, shares of ties and of missing verdicts."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        counts = count(self._shard.codes)
        labelled = max(len(self._shard.codes) - counts["unknown"], 1)
        asked = self._counts.asked
        notes = {"asked": f"{asked:,} ({asked / seconds:,.0f}/s)"}
        tokens = self._counts.prompt_tokens + self._counts.output_tokens
        if tokens:
            notes["tokens"] = f"{tokens / seconds:,.0f}/s"
        notes["tie"] = f"{counts['tie'] / labelled:.0%}"
        notes["no verdict"] = f"{self._counts.no_verdict / max(asked, 1):.1%}"
        return notes


STAGE = Stage(
    config=AnnotateConfig,
    sections=("annotate",),
    check=check,
    is_complete=is_complete,
    run=run,
    writes="--config.annotate.cache_dir",
    memory="--config.annotate.batch_size",
    begun=begun,
    lock=lambda config: Lock.SHARED if config.annotate.num_shards > 1 else Lock.EXCLUSIVE,  # of several jobs
    # A language model runs on a server or in vLLM.
    loads_jax=lambda config: bool(config.annotate.order == "disagreement"),
)

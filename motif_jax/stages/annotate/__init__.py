"""The stage annotate: a language model, or another annotator, says which moment of each pair is better.

Pairs with the same two captions share one question, which is asked once (preferences/questions.py). Several jobs can
share the questions. What a job is to ask, and the answers, are lines of its file, and a killed job goes on from there;
labels are computed from the files of all jobs (preferences/shards.py).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import motif_jax
from motif_jax.annotation import annotator, backends
from motif_jax.annotation.annotator import Answered, Asking, AskingCounts, Incomplete, Question
from motif_jax.annotation.backends import CaptionBackend, OpenBackend, Oracle, of_nethack, open_judge
from motif_jax.annotation.section import AnnotateSection
from motif_jax.annotation.verdicts import PairAnswers, PairPlan
from motif_jax.config.table import section
from motif_jax.console import clean, print_line
from motif_jax.envs.texts import texts_of
from motif_jax.envs.worlds import TABLE as ENV
from motif_jax.files import LONGEST, check_place, short_name
from motif_jax.preferences import shards
from motif_jax.preferences.questions import BOTTOM_LINE, NEUTRAL, WITH_BOTTOM_LINE, Questions, captions_to_ask
from motif_jax.preferences.shards import OPENED, AnswerFile, Part, Shard, to_codes
from motif_jax.preferences.store import PairDataset, Preference, annotation_folder, digest_of, fingerprint, labels_file
from motif_jax.run import Lock, Run
from motif_jax.stages import Experiment, Stage
from motif_jax.stages.annotate.disagreement import question_rounds
from motif_jax.stages.annotate.page import turned_share, write_page
from motif_jax.structs import Need, UserError
from motif_jax.system.errors import Limits
from motif_jax.system.metrics import Progress

FLAG = "--config.annotate"


@dataclass(frozen=True)
class AnnotateConfig(Experiment):
    """The values that the stage reads, and that a judge is opened with."""

    env: Mapping[str, Any] = section(ENV)
    annotate: AnnotateSection = field(default_factory=AnnotateSection)

    def decisive(self) -> set[str]:
        return set()  # the shards say what decides their labels


def check(config: AnnotateConfig, workdir: Path, of_captions: bool = False) -> list[Need]:
    """Raises UserError for values that cannot work together, or for oracles if it must be a judge `of_captions`.

    Returns what is needed: the judge's files, and a place for its answers.
    """
    section, backend, problem = config.annotate, make_backend(config), ""
    if not 0 <= section.shard < section.num_shards:
        problem = f"shard must be between 0 and {section.num_shards - 1}, not {section.shard} ({FLAG}.shard)"
    elif section.samples > 1 and not (backend.is_model and section.mode == "reason" and section.sampling.temperature):
        problem = (
            "only a model in mode reason answers in several samples, at a temperature above 0 "
            f"({FLAG}.samples, .backend, .mode, .sampling.temperature)"
        )
    elif section.order == "disagreement" and (section.num_shards > 1 or backend.in_process):
        problem = (
            "order disagreement needs all answers in one job, and memory beside that of vllm: use num_shards=1, and "
            f"for a model a server ({FLAG}.order, .num_shards, .backend)"
        )
    elif of_captions and isinstance(backend, Oracle):
        problem = f"{section.backend!r} compares numbers of the game, and a judge of captions is asked ({FLAG}.backend)"
    if problem:
        raise UserError(problem)
    backends.check_backend(backend)
    place = Need(lambda: check_place(Path(os.path.expanduser(section.cache_dir)), f"{FLAG}.cache_dir"))
    return backends.needs_of(backend) + ([place] if backend.is_model and section.cache_dir else [])


def needs_of_judge(config: AnnotateConfig) -> list[Need]:
    """The judge's files."""
    return backends.needs_of(make_backend(config))


def label_name(section: AnnotateSection) -> str:
    """The annotation's name: custom, or made like published names from model, captions, goal and prompt."""
    name = section.custom_name or backends.name_annotation(section)
    return short_name(name, LONGEST - len(".html"))  # the longest ending of a file that is named after it


def make_backend(config: AnnotateConfig, verdicts: bool = False) -> CaptionBackend:
    """The annotator that the config names. `verdicts`: rules give no probabilities."""
    section, texts = config.annotate, texts_of(config.env, config.annotate.lexicon)
    return backends.make_judge(section, texts, config.seed, verdicts=verdicts)


def open_dataset(workdir: Path) -> PairDataset:
    """The dataset of the workdir; raises UserError if it has none."""
    if not (workdir / "dataset").is_dir():
        raise UserError(f"there is no dataset in {str(workdir)!r} yet: run --stage=collect first (--workdir)")
    return PairDataset(workdir / "dataset")


def make_metadata(backend: CaptionBackend, dataset: PairDataset) -> dict[str, Any]:
    """Everything that decides the labels, as a flat dict: of the backend, its section and the dataset."""
    section = backend.section
    metadata: dict[str, Any] = {"num_shards": section.num_shards, "dataset": fingerprint(dataset)}
    metadata |= backend.flat_metadata()
    other_array = None  # that labels depend on, in addition to the messages
    if isinstance(backend, Oracle):
        other_array = backend.numbers(dataset)
    else:
        metadata |= {"captions": section.captions, "goal": section.goal} | backend.labelling()
        if section.captions == WITH_BOTTOM_LINE:
            metadata["bottom_line_version"], other_array = BOTTOM_LINE, of_nethack(dataset.data, "blstats")
    return metadata | {"beside": "" if other_array is None else digest_of(other_array)}


TRIED = 128  # questions that are asked in both orders first
RARELY = 0.05  # share of them whose answers may turn with the order
SHOW_EVERY_S, LOG_EVERY_S = 1.0, 30.0


def is_complete(config: AnnotateConfig, workdir: Path) -> bool:
    """Whether the config's annotation is merged; a question that was asked and got no verdict is not asked again."""
    section, name = config.annotate, label_name(config.annotate)
    if section.ignore_existing or section.compare_with or not (workdir / f"annotations/{name}.html").exists():
        return False
    dataset = PairDataset(workdir / "dataset")
    return shards.is_merged(dataset, name, make_metadata(make_backend(config), dataset))


def run(config: AnnotateConfig, workdir: Path, open_backend: OpenBackend = backends.opened) -> None:
    """Asks this job's questions, and labels all pairs after the last job. `open_backend` opens the judge, if needed."""
    section, part = config.annotate, Part(config.annotate.shard, config.annotate.num_shards)

    # ---- questions
    dataset, name = open_dataset(workdir), label_name(section)
    shards.check_free(dataset, name)
    for other in filter(None, section.compare_with.split(",")):
        dataset.preference(other)
    backend = make_backend(config)
    metadata = make_metadata(backend, dataset)
    questions = None if isinstance(backend, Oracle) else Questions(dataset, section.captions)
    folder = annotation_folder(dataset.path, name)
    stage = Run(workdir).stage("annotate", str(folder.relative_to(workdir)))  # its shards are locked one by one

    # ---- ask, unless all was asked, here or where the dataset comes from; label what is answered
    missing, partial = list[int](), section.merge == "partial" or section.max_pairs > 0
    if shards.is_merged(dataset, name, metadata) and not section.ignore_existing:
        stage.bind(config)
    elif isinstance(backend, Oracle):
        label_at_once(backend, dataset, name, part, metadata)
        stage.bind(config)
    else:
        assert questions is not None
        if section.merge == "auto":
            with Shard(folder, part, questions, metadata, section.ignore_existing) as shard:
                stage.bind(config)
                AnnotationJob(config, backend, questions, shard, metadata, open_backend).run()
        missing = shards.merge(questions, name, part.of, metadata, partial)
    if missing and not partial:
        waiting = f"{len(missing)} of {part.of} shards are not finished yet"
        print_line(f"annotate: {name}: shard {part.number} is done; {waiting}")
        return

    # ---- tell
    counts, logs = shards.last_merge(dataset, name)
    shares = (f"{counts[kind] / len(dataset):.1%} {kind}" for kind in counts if counts[kind] or kind != "not asked")
    print_line(f"annotate: {name}: {len(dataset):,} pairs: {', '.join(shares)}")
    if backend.is_model and questions is not None and questions.counts.any():
        ties = float((dataset.preference(name)[questions.of_pair >= 0] == Preference.TIE).mean())
        if ties > 0.9:
            print_line(
                f"annotate: {ties:.0%} of the answers are ties, from which little can be learnt: they are within "
                f"{backend.tie_margin:g} of one half (--config.annotate.tie_margin)"
            )
    page = write_page(stage, section, backend, dataset, name, questions, counts, logs)
    print_line(f"annotate: labels in {labels_file(dataset.path, name)}, page: {page}")


def label_at_once(backend: Oracle, dataset: PairDataset, name: str, part: Part, metadata: Mapping[str, Any]) -> None:
    """An oracle's labels: it is not asked, so there are no shards."""
    section, prob = backend.section, np.full(len(dataset), np.nan, np.float32)
    folder = annotation_folder(dataset.path, name)
    folder.mkdir(parents=True, exist_ok=True)
    with shards.folder_lock(folder):
        if section.ignore_existing:
            shards.clear(dataset, name, part)
        shards.check_others(folder, metadata)
        rows = np.arange(min(len(dataset), section.max_pairs or len(dataset)))
        prob[rows] = backend.answer(dataset, rows)
        not_asked = len(dataset) - len(rows)
        shards.write_labels(dataset, name, prob, metadata, [0] if not_asked else [], {}, not_asked)


class AnnotationJob:
    """Asks the questions of one shard, in rounds; the shard's lines are all that it knows of earlier runs."""

    def __init__(
        self, config: AnnotateConfig, backend: CaptionBackend, questions: Questions, shard: Shard,
        metadata: Mapping[str, Any], open_backend: OpenBackend,
    ):  # fmt: skip
        self._config, self._section, self._backend = config, config.annotate, backend
        self._questions, self._shard, self._metadata = questions, shard, dict(metadata)
        self._open_backend = open_backend
        # Pairs by question, and those of two equal captions, which are ties: the first job counts them.
        self._pairs = questions.counts[shard.low : shard.high]
        self._silent = 0 if shard.part.number else int((questions.of_pair < 0).sum())
        self._table, _ = questions.dataset.captions()
        self._before, self._log = dict(shard.log), dict(shard.log)  # of earlier runs, and with this one
        self._counts = AskingCounts("annotate")
        self._stack = contextlib.ExitStack()
        self._judge: Asking | None = None  # opened for the first question
        self._started = self._shown = self._logged = time.monotonic()
        self._flight: dict[Question, int] = {}  # drawn, not yet answered

    def run(self) -> None:
        shard, captions, chosen = self._shard, self._beside_nothing(), np.zeros(0, np.int64)
        with self._stack:
            try:
                for chosen in self._rounds():
                    shard.want(2 * chosen)
                    if shard.rounds:  # not all labels came with the dataset
                        shard.want(in_orders(captions))  # before the shard can be complete without them
                        shard.want(2 * chosen[self._in_both_orders[chosen]] + 1)
                        self._ask(chosen)
                self._check_share(chosen)
                shard.want(in_orders(captions))
                self._ask(captions)
            except BaseException as error:
                self._save()
                if isinstance(error, Incomplete):
                    labelled = f"{self._labelled():,} of {self._total():,} pairs are labelled"
                    raise UserError(f"{error}; {labelled}, and the same command goes on from there") from None
                raise
            self._save(ended=True)
        if self._counts.from_cache:
            print_line(f"annotate: {self._counts.from_cache:,} answers are from the cache {self._log['answers']!r}")

    # ---- what is asked

    def _rounds(self) -> Iterator[np.ndarray]:
        """The questions of this config, of all rounds so far, in the order in which they are asked. [W]"""
        section, low, high = self._section, self._shard.low, self._shard.high
        of_pair = self._questions.of_pair[: section.max_pairs or None]
        chosen = np.unique(of_pair[(of_pair >= low) & (of_pair < high)])
        if section.order == "random":
            chosen = (np.random.default_rng([self._config.seed, 90, low]).permutation(high - low) + low)[: len(chosen)]
        if section.order == "disagreement":
            size = math.ceil(len(chosen) / section.rounds)
            return question_rounds(self._questions, self._shard, len(chosen), size, self._config.seed)
        return iter([chosen])

    @functools.cached_property
    def _in_both_orders(self) -> np.ndarray:
        """Which questions are asked in both orders; first tries how often the answers turn with the order. [Q] bool"""
        share, shard = self._backend.both_orders, self._shard
        both = self._questions.sample(share)
        if 0 < share < 1:
            tried = np.random.default_rng(shard.low).permutation(shard.rounds[0])[:TRIED]
            shard.want(2 * tried + 1)
            self._ask(tried)
            answers = shard.yes[tried]
            answers = answers[~np.isnan(answers).any(1)]
            turned = turned_share(answers, self._backend.tie_margin) if len(answers) else 0.0
            if turned > RARELY:
                both[:] = True
                print_line(
                    f"annotate: {turned:.0%} of {len(answers):,} pairs get the other caption in the reverse order: all "
                    "questions are asked in both orders"
                )
        return both

    def _beside_nothing(self) -> np.ndarray:
        """The captions to compare with a moment without a message: in the first job, if such moments are rare. [K]"""
        shard, count = self._shard, len(self._questions)
        came = (shard.folder / NEUTRAL).exists() and not shard.wanted[count:].any()  # with the dataset
        if shard.part.number or came or self._section.max_pairs or self._section.captions != "msg":
            return np.zeros(0, np.int64)
        return count + captions_to_ask(*self._questions.dataset.captions())

    def _check_share(self, chosen: np.ndarray) -> None:
        """Raises UserError if hardly any of the questions has a label; then they are asked again."""
        unknown = chosen[np.isnan(self._shard.labels()[chosen])]
        if len(chosen) - len(unknown) < annotator.LEAST_SHARE * len(chosen):
            unread = (self._shard.asked[unknown] & np.isnan(self._shard.yes[unknown])).reshape(-1)
            self._shard.append({"again": in_orders(unknown)[unread].tolist()})
            raise UserError(
                f"{len(unknown):,} of {len(chosen):,} questions have no verdict; the last answer was "
                f"{clean(repr(self._counts.last_unreadable))} (--config.annotate.backend, .model, .prompt_file); "
                "the same command asks them again"
            )

    # ---- asking

    def _ask(self, numbers: np.ndarray) -> None:
        """Asks what is wanted of these questions and was not asked, in each batch first those in their own order."""
        spots = self._shard.open_spots(numbers)
        if len(spots):
            batches = annotator.batches(spots.tolist(), self._section.batch_size)
            in_turn = (spot for batch in batches for spot in sorted(batch, key=lambda spot: spot % 2))
            self._judge = self._judge or self._open_judge()
            self._judge.ask(self._draw(in_turn), self._take)
            self._show()

    def _open_judge(self) -> Asking:
        due = (self._shard.wanted & ~self._shard.asked)[: len(self._questions)].any(1).sum()
        print_line(f"annotate: {due:,} distinct questions for {self._total():,} pairs")
        judge = open_judge(self._backend, self._section.cache_dir, self._counts, self._open_backend)
        self._stack.enter_context(contextlib.closing(judge))
        model, weights = judge.annotator.model, self._backend.weights
        self._metadata |= ({OPENED: model} if model else {}) | ({f"{OPENED}.weights": weights} if weights else {})
        with shards.folder_lock(self._shard.folder):
            shards.check_others(self._shard.folder, self._metadata)
        folder = judge.cache.folder if judge.cache else None
        self._log |= {"model": model} | ({"answers": str(folder.resolve())} if folder else {})
        self._progress = Progress("annotate", self._total(), "pairs", self._labelled())
        self._stack.enter_context(contextlib.closing(self._progress))
        return judge

    def _draw(self, spots: Iterable[int]) -> Iterator[Question]:
        for spot in spots:
            number, turned = divmod(spot, 2)
            beside = number - len(self._questions)
            question = Question(*(self._questions.text(number) if beside < 0 else ("", self._table.text(beside))))
            question = question.turned if turned else question
            self._flight[question] = spot
            yield question

    def _take(self, answered: Answered) -> None:
        self._shard.add(self._flight.pop(answered.question), answered.answer.yes)
        if self._backend.is_model:  # rules answer faster than they can be saved one by one
            self._shard.save(self._metadata)
        if time.monotonic() - self._shown > SHOW_EVERY_S:
            self._show()

    # ---- saving and showing

    def _save(self, ended: bool = False) -> None:
        """Saves answers and log. `ended`: all was asked."""
        seconds = self._before.get("seconds", 0.0) + time.monotonic() - self._started
        for name, one in self._counts.logged().items():
            self._log[name] = self._before.get(name, 0) + one
        self._log |= {"seconds": round(seconds, 1), "motif_jax": motif_jax.__version__}
        if self._judge or self._shard.is_new:
            self._shard.append({"log": dict(self._log)})
            self._shard.save(self._metadata, ended, sync=True)
        self._logged = time.monotonic()

    def _show(self) -> None:
        """Saves what is answered, and shows the progress."""
        self._shard.save(self._metadata, sync=True)
        if time.monotonic() - self._logged > LOG_EVERY_S:
            self._save()
        asked, seconds = self._counts.asked, max(time.monotonic() - self._started, 1e-9)
        labelled, tokens = self._labelled(), self._counts.prompt_tokens + self._counts.output_tokens
        tied = to_codes(self._labels(), self._backend.tie_margin) == Preference.TIE
        notes = {"asked": f"{asked:,} ({asked / seconds:,.0f}/s)"}
        notes |= {"tokens": f"{tokens / seconds:,.0f}/s"} if tokens else {}
        notes |= {"tie": f"{(self._silent + self._pairs[tied].sum()) / max(labelled, 1):.0%}"}
        notes |= {"no verdict": f"{self._counts.no_verdict / max(asked, 1):.1%}"}
        self._progress.update(labelled, **notes)
        self._shown = time.monotonic()

    def _labels(self) -> np.ndarray:
        return self._shard.labels()[self._shard.low : self._shard.high]

    def _labelled(self) -> int:
        """The number of pairs with a label."""
        return self._silent + int(self._pairs[~np.isnan(self._labels())].sum())

    def _total(self) -> int:
        return self._silent + int(self._pairs.sum())


def in_orders(numbers: np.ndarray) -> np.ndarray:
    """Both orders of each question, as a shard's lines have them. [K] -> [2 K]"""
    return (2 * numbers[:, None] + [0, 1]).reshape(-1)


STAGE = Stage(
    name="annotate",
    sections=("annotate",),
    config=AnnotateConfig,
    folders=lambda config, workdir: [annotation_folder(workdir / "dataset", label_name(config.annotate))],
    check=check,
    is_complete=is_complete,
    run=run,
    lock=lambda config: Lock.SHARED if config.annotate.num_shards > 1 else Lock.EXCLUSIVE,  # of several jobs
    limits=Limits("--config.annotate.cache_dir", "--config.annotate.batch_size"),
)

# ---- the questions of other stages: each has a plan of its own, and keeps the answers in a file of its own


def ask_pairs(config: AnnotateConfig, plan: PairPlan, file: Path, open_backend: OpenBackend, stage: str) -> PairAnswers:
    """The answers to all questions of a plan, and to the repeats after them, each round as one stream.

    The answer cache is not used; `file` keeps what a killed run was told, unless it was about something else.
    """
    count, texts = len(plan.questions), plan.questions + plan.repeated
    if not texts:
        return PairAnswers(np.zeros(0), np.zeros(0))
    backend = make_backend(config, verdicts=True)
    with contextlib.closing(open_judge(backend, None, AskingCounts(stage), open_backend)) as asking:
        digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
        metadata = {"judge": backend.identity(), OPENED: asking.annotator.model, "texts": digest}
        kept = AnswerFile(file, len(texts))
        if kept.metadata != metadata:
            file.unlink(missing_ok=True)
            kept = AnswerFile(file, len(texts))
        done = int(kept.asked.sum())
        print_line(f"{stage}: asks {plan.describe(backend.rates)}; {done:,} are answered")
        progress, due = Progress(stage, len(texts), "answers", done), dict[Question, int]()

        def take(answered: Answered) -> None:
            nonlocal done
            if not answered.answer.refused:
                kept.add(2 * due[answered.question], answered.answer.yes)
                kept.save(metadata, ended=True)
                done += 1
            progress.update(done)

        with contextlib.closing(progress), contextlib.closing(kept):
            try:
                for numbers in np.split(np.arange(len(texts)), [count]):
                    due = {Question(*texts[at]): at for at in numbers if not kept.asked[at, 0]}
                    asking.ask(due, take)
            except Incomplete as stopped:
                raise UserError(
                    f"{stopped}; {done:,} of {len(texts):,} questions are answered, and the same command goes on from "
                    "there"
                ) from None
    yes = kept.yes[:, 0]
    return PairAnswers(yes[:count], yes[count:], len(texts) - done)

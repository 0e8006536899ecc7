"""The stage annotate: a language model, or another annotator, says which moment of each pair is better.

Pairs with the same two captions share one question, which is asked once (preferences/questions.py). Several jobs can
share the work: each asks its part of the questions and writes the labels as a shard. The last one merges all
shards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

import motif_jax
from motif_jax.annotation import annotator, backends
from motif_jax.annotation.annotator import Answered, Asking, AskingCounts, Incomplete, Question
from motif_jax.annotation.backends import CaptionBackend, Lexicon, OpenBackend, Oracle, Prompted, of_nethack, open_judge
from motif_jax.annotation.prompts import is_sentence
from motif_jax.annotation.section import AnnotateSection
from motif_jax.annotation.verdicts import PairAnswers, PairPlan
from motif_jax.config.table import section
from motif_jax.console import clean, print_line
from motif_jax.envs.texts import GENERAL, texts_of
from motif_jax.envs.worlds import TABLE as ENV
from motif_jax.files import LONGEST, check_place, read_json, short_name, write_json, write_whole
from motif_jax.pages.blocks import esc, folded, page, quoted, share_bar, table, tiles
from motif_jax.pages.charts import columns
from motif_jax.preferences import shards
from motif_jax.preferences.questions import (
    BOTTOM_LINE,
    NEUTRAL,
    WITH_BOTTOM_LINE,
    Questions,
    captions_to_ask,
    write_neutral,
)
from motif_jax.preferences.shards import Part, Shard, to_codes
from motif_jax.preferences.store import PairDataset, Preference, annotation_folder, digest_of, fingerprint, labels_file
from motif_jax.rewards.statistics import share_interval
from motif_jax.run import Head, Lock, Run, StageRun
from motif_jax.stages import Experiment, Stage
from motif_jax.structs import Need, UserError
from motif_jax.system.machine import read_array
from motif_jax.system.metrics import Progress

FLAG = "--config.annotate"


@dataclass(frozen=True)
class AnnotateConfig(Experiment):
    """The values that the stage reads, and that a judge is opened with."""

    env: Mapping[str, Any] = section(ENV)
    annotate: AnnotateSection = field(default_factory=AnnotateSection)


def check(config: AnnotateConfig, of_captions: bool = False) -> None:
    """Raises UserError for values that cannot work together, or for oracles if it must be a judge `of_captions`."""
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


def needs(config: AnnotateConfig, workdir: Path) -> list[Need]:
    """The judge's files, and a place for its answers."""
    section, backend = config.annotate, make_backend(config)
    place = Need(lambda: check_place(Path(os.path.expanduser(section.cache_dir)), f"{FLAG}.cache_dir"))
    return needs_of_judge(config) + ([place] if backend.is_model and section.cache_dir else [])


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


# HTML page of an annotation: shares of labels, most frequent questions with reasons, position bias, agreement.

SHOWN = 30  # questions
LEAST = 200  # questions that the rules decide as well, before it is said that a judge is at chance
ASKED = 12  # questions in the report
TITLE = "Preferences"  # of the report's part
NAMES = ("first", "second", "tie", "unknown")  # of labels, and of their colours


def write_page(
    stage: StageRun, config: AnnotateConfig, backend: CaptionBackend, dataset: PairDataset, name: str,
    questions: Questions | None, counts: dict[str, int], logs: list[dict[str, Any]],
) -> Path:  # fmt: skip
    """Writes `annotations/<name>.html`, and the annotation's part of the report. `counts`, `logs`: of its labels."""
    section = config.annotate
    models = sorted({str(log["model"]) for log in logs if log.get("model")})
    words = [section.backend, *(models or filter(None, [section.model]))]
    figures, details, most_asked = [(f"{len(dataset):,}", "pairs")], list[str](), list[str]()
    if questions is not None:
        label = questions.labels(read_array(annotation_folder(dataset.path, name) / "prob.npy")).astype(np.float64)
        more, details, most_asked = _question_blocks(backend, questions, label, logs)
        equal = f"{1 - questions.counts.sum() / len(dataset):.0%}"
        figures += [(equal, "of them have equal captions: ties, not asked"), *more]
        words += [f"mode {section.mode}"] if isinstance(backend, Prompted) else []
        words += [f"goal: {section.goal}", f"captions: {section.captions}", f"{len(questions):,} different questions"]
    for other in filter(None, section.compare_with.split(",")):
        details += _agreement(dataset, name, other)
    if isinstance(backend, Prompted):
        messages = backend.template.messages(Question("(first caption)", "(second caption)"))
        prompt = "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)
        details += ["<h2>The whole prompt</h2>", folded("prompt", prompt)]
    if seconds := sum(log.get("seconds", 0.0) for log in logs):
        words.append(f"{seconds:,.1f} s")
    path, bar, origin = stage.workdir / f"annotations/{name}.html", label_bar(counts), esc(" · ".join(words))
    top_lines = [f"<h1>{esc(name)}</h1>", f'<p class="soft">{origin}</p>', tiles(figures), "<h2>Labels</h2>", bar]
    link = f'<a href="{esc(quote(os.path.relpath(path, stage.workdir / "report")))}">details</a>'
    stage.section(TITLE, f"<h3>{esc(name)}</h3>", f'<p class="soft">{origin} · {link}</p>', bar, *most_asked)
    who = ", ".join(model.rstrip("/").rpartition("/")[2] for model in models) or backend.title
    judge = f"<b>{esc(who or f'the annotation {name}')}</b>"
    head = Head(subject="Preferences", goal=section.goal, judge=judge, judged=len(dataset) - counts["not asked"],
                plural=backend.plural and not models, aim=aim_of(section.goal), without_aim=f"of {judge}")  # fmt: skip
    stage.report(replace(head, asked=sentence([head], len(dataset))), part=name)
    write_whole(path, page(f"{name}: annotation", [*top_lines, *details]))  # last: it marks a complete stage
    return path


def sentence(judges: Sequence[Head], pairs: int) -> str:
    """A sentence on the judges and the number of judged pairs, as HTML; `Head.judge` begins with a tag."""
    who, judged = " and ".join(dict.fromkeys(str(one.judge) for one in judges)), max(one.judged or 0 for one in judges)
    of = f"<b>{pairs:,}</b> pairs of moments of the game"
    of = of if judged == pairs else f"<b>{judged:,}</b> of {of}"
    aims = " and ".join(dict.fromkeys(one.aim for one in judges if one.aim))
    return f"{who[:3]}{who[3:4].upper()}{who[4:]} said for {of} which of the two is better{f' {aims}' if aims else ''}."


def aim_of(goal: str) -> str | None:
    """The end of the report's title: for what an agent is; None without a goal, and for progress of any kind."""
    if goal in ("", *GENERAL):
        return None
    return f"with the goal “{esc(goal)}”" if is_sentence(goal) else f"for {esc(goal)}"


def label_bar(counts: Mapping[str, int]) -> str:
    """The shares of labels, as an HTML bar, from their counts by kind."""
    total = max(sum(counts.values()), 1)
    shown = [name for name in counts if counts[name] or name in NAMES]
    return share_bar([(name, counts[name] / total, name if name in NAMES else "line") for name in shown])


def _question_blocks(
    backend: CaptionBackend, questions: Questions, label: np.ndarray, logs: list[dict[str, Any]]
) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """Figures, HTML blocks for the page, and those for the report. `label`: see `Questions.labels`. [Q]"""
    codes, order = to_codes(label, backend.tie_margin), np.argsort(-questions.counts, kind="stable")
    top = order[:SHOWN].tolist()
    both, said, unreadable, mass = _evidence(backend, questions, logs, top, label)
    asked, prompt, output = (sum(log.get(k, 0) for log in logs) for k in ("asked", "prompt_tokens", "output_tokens"))
    figures = [
        (f"{len(questions):,}", "distinct questions"),
        (f"{questions.counts.sum() / max(len(questions), 1):,.1f}", "pairs per question"),
        (f"{asked:,}" if asked else "", "questions asked, repetitions included"),
        (f"{(prompt + output) / max(asked, 1):,.0f}" if prompt else "", "tokens per question asked"),
        (f"{mass:.0%}" if mass < 1 else "", "probability that the model answers with a verdict"),
        *_beside_rules(backend, questions, codes),
    ]

    def row(number: int, on_page: bool) -> list[str]:
        code, yes, reason = int(codes[number]), label[number], said.get(number, "")
        cells = [f"{questions.counts[number]:,}", *marked(questions.text(number), code)]
        certainty = on_page and code != Preference.UNKNOWN and yes not in (0.0, 0.5, 1.0)
        sure = f'&nbsp;<span class="soft">{yes:.2f}</span>' if certainty else ""
        cells.append(f'<b style="color:var(--{NAMES[code]})">{NAMES[code]}</b>{sure}')
        if on_page and said:
            cells.append(folded("why", reason) if len(reason) > 90 else f'<span class="soft">{esc(reason)}</span>')
        return cells

    head = ("pairs", "first", "second", "better")
    details = [
        "<h2>Most frequent questions</h2>",
        '<p class="soft">Pairs with the question, its captions (the better one in bold), and the verdict.</p>',
        table((*head, "reason") if said else head, [row(number, True) for number in top], numbers=(0,)),
    ]
    answered = label[~np.isnan(label)]
    if not np.isin(answered, (0.0, 0.5, 1.0)).all():
        heights = np.histogram(answered, bins=40, range=(0, 1))[0].tolist()
        details += [
            "<h2>Certainty of the answers</h2>",
            columns(heights, ("first is better", "no preference", "second is better")),
            '<p class="soft">Distinct questions by the probability that their second caption is better.</p>',
        ]
    details += ["<h2>Answers without a verdict</h2>"] if unreadable else []
    details += [folded(" / ".join(text or "(nothing)" for text in one), said) for one, said in unreadable.items()]
    report = [
        '<p class="soft">A row is a question that was asked once: how many pairs share it, and its two captions, the '
        "better one in bold.</p>"
    ]
    sided = order[codes[order] < Preference.TIE][:ASKED].tolist()
    for heading, chosen in (("Preferred most often", sided), ("Asked most", top[: ASKED // 2])):
        rows = [row(number, False) for number in chosen]
        report += [f"<h3>{heading}</h3>", table(head, rows, numbers=(0,))] if rows else []
    if len(both):
        bias = _bias_tiles(both, backend.tie_margin)
        details += ["<h2>Position bias</h2>", bias]
        report += ["<h3>Position bias</h3>", bias]
    return figures, details, report if top else []


@dataclass(frozen=True)
class Share:
    """A share of some answers, with its interval; NaN if there are none."""

    value: float
    low: float
    high: float
    of: int

    def __str__(self) -> str:
        return f"{self.value:.0%} [{self.low:.0%}, {self.high:.0%}]" if self.of else "none"


def share(right: np.ndarray) -> Share:
    """The share of True. [N] bool"""
    if not len(right):
        return Share(float("nan"), 0.0, 1.0, 0)
    return Share(float(right.mean()), *share_interval(float(right.mean()), len(right)), len(right))


def _beside_rules(backend: CaptionBackend, questions: Questions, codes: np.ndarray) -> list[tuple[str, str]]:
    """A language model's agreement with the rules, if the game has rules for the goal; warns of a judge at chance."""
    if backend.by_rules or not backend.is_model:
        return []
    by_rules, right = find_rules(backend), list[bool]()
    for number in np.flatnonzero(codes < Preference.TIE).tolist():
        yes = by_rules(Question(*questions.text(number)))
        right += [yes == codes[number]] if yes in (0.0, 1.0) else []
    agrees = share(np.array(right))
    if agrees.of >= LEAST and agrees.low <= 0.5:
        what = f"{agrees} of {agrees.of:,} questions, which is no better than chance"
        print_line(f"annotate: agrees with the rules in {what} (--stage=check_judge)")
    return [(str(agrees), f"of {agrees.of:,} questions decided as by the rules")] if right else []


def find_rules(backend: CaptionBackend) -> Callable[[Question], float]:
    """P(second is better) by the rules of the game; NaN if it has none for this goal."""
    try:
        rules = Lexicon(backend.texts, backend.section.goal)
    except UserError:
        return lambda question: float("nan")
    return lambda question: float(rules.answer(question).yes or 0.0)


def marked(captions: tuple[str, str], code: int) -> list[str]:
    """The two captions of a question as HTML; `code`, of `Preference`, says which one is marked as better."""
    marks = [("better", "worse")[code ^ side] if code < Preference.TIE else "" for side in (0, 1)]
    return [f'<span class="{mark}">{quoted(text)}</span>' for mark, text in zip(marks, captions, strict=True)]


def _evidence(
    backend: CaptionBackend, questions: Questions, logs: list[dict[str, Any]], top: list[int], label: np.ndarray
) -> tuple[np.ndarray, dict[int, str], dict[Question, str], float]:
    """Asks rules again about the questions of `top`, or reads the answer caches of the jobs.

    Returns answers of questions asked in both orders, in their own order [J, 2]; what was said about those of `top`, by
    number; and about some questions without a label; the mean probability of a verdict as the next token.
    """
    said, unreadable, count, mass = dict[int, str](), dict[Question, str](), 0, 0.0
    answers = np.full((len(questions), 2), np.nan, np.float32)  # in the question's own order and turned
    folders = {str(log["answers"]) for log in logs if log.get("answers")}  # of a model's answers
    known: Iterable[int] = range(len(questions)) if folders else top
    number_of: dict[tuple[str | None, ...], int] = {questions.text(number): number for number in known}
    lines = (line for folder in folders for line in annotator.read_answers(Path(folder)))
    if not backend.is_model:
        with contextlib.closing(backends.opened(backend)) as rules:
            lines = (line for line in list(rules.answers(Question(*questions.text(number)) for number in top)))
    for question, answer in lines:
        backwards = question not in number_of
        number = number_of.get(question[::-1] if backwards else question)
        if number is None:
            continue
        if answer.yes is not None:
            answers[number, int(backwards)] = 1 - answer.yes if backwards else answer.yes
        count, mass = count + 1, mass + answer.mass
        if answer.yes is None and np.isnan(label[number]) and len(unreadable) < 8:
            unreadable[question] = answer.said
        if number in top and answer.said and not backwards:
            said[number] = answer.said
    return answers[~np.isnan(answers).any(1)], said, unreadable, mass / count if count else 1.0


def turned_share(both: np.ndarray, margin: float) -> float:
    """The share of questions, answered in both orders, whose better caption changes with the order. [J, 2]"""
    codes = to_codes(both, margin)
    return float(((codes[:, 0] != codes[:, 1]) & (codes < Preference.TIE).all(-1)).mean())


def _bias_tiles(both: np.ndarray, margin: float) -> str:
    """The effect of the captions' order on the answers to questions that were asked in both. [J, 2]"""
    changed = np.not_equal(*to_codes(both, margin).T).mean()
    shown_first = (1 - both[:, 0]).mean() / 2 + both[:, 1].mean() / 2
    return tiles([
        (f"{len(both):,}", "questions answered in both orders"),
        (f"{turned_share(both, margin):.1%}", "prefer the other caption when the order is changed"),
        (f"{changed:.1%}", "change with the order, ties included"),
        (f"{shown_first:.1%}", "for the caption that is shown first; 50% without bias"),
    ])  # fmt: skip


def _agreement(dataset: PairDataset, name: str, other: str) -> list[str]:
    """HTML blocks that compare two annotations on the pairs that both have labelled."""
    mine, theirs = np.asarray(dataset.preference(name)), np.asarray(dataset.preference(other))
    both = (mine != Preference.UNKNOWN) & (theirs != Preference.UNKNOWN)
    counts = np.zeros((3, 3), int)
    np.add.at(counts, (mine[both], theirs[both]), 1)
    sided = counts[:2, :2]
    figures = [
        (f"{int(both.sum()):,}", "pairs that both have labelled"),
        (f"{np.trace(counts) / max(counts.sum(), 1):.1%}", "same label"),
        (f"{np.trace(sided) / max(sided.sum(), 1):.1%}", "same preference, where both have one"),
    ]
    head = (f"{name} ↓  {other} →", *NAMES[:3])
    rows = [[esc(NAMES[kind]), *(f"{value:,}" for value in counts[kind])] for kind in range(3)]
    return [f"<h2>Agreement with {esc(other)}</h2>", tiles(figures), table(head, rows, numbers=(1, 2, 3))]


TRIED = 128  # questions that are asked in both orders first
RARELY = 0.05  # share of them whose answers may turn with the order
COMMIT_EVERY_S = 30.0  # even if the batch is not full, as answers of a slow model are expensive


def is_complete(config: AnnotateConfig, workdir: Path) -> bool:
    """Whether the config's annotation is merged; a question that was asked and got no verdict is not asked again."""
    section, name = config.annotate, label_name(config.annotate)
    if section.ignore_existing or section.compare_with or not (workdir / f"annotations/{name}.html").exists():
        return False
    dataset = PairDataset(workdir / "dataset")
    return shards.is_merged(dataset, name, make_metadata(make_backend(config), dataset))


def run(config: AnnotateConfig, workdir: Path, open_backend: OpenBackend = backends.opened) -> None:
    """Labels this job's shard, and merges all shards after the last one. `open_backend` opens the judge, if needed."""
    section, part = config.annotate, Part(config.annotate.shard, config.annotate.num_shards)

    # ---- questions
    dataset, name = open_dataset(workdir), label_name(section)
    shards.check_free(dataset, name)
    for other in filter(None, section.compare_with.split(",")):
        dataset.preference(other)
    backend = make_backend(config)
    metadata = make_metadata(backend, dataset)
    questions = None if isinstance(backend, Oracle) else Questions(dataset, section.captions)
    of_pair = np.arange(len(dataset)) if questions is None else questions.of_pair  # an oracle answers every pair. [N]

    # ---- ask, unless all was asked, here or where the dataset comes from
    folder, labels = annotation_folder(dataset.path, name), labels_file(dataset.path, name)
    stage = Run(workdir).stage("annotate", str(folder.relative_to(workdir)))  # its shards are locked one by one
    done = shards.is_merged(dataset, name, metadata) and not section.ignore_existing
    if done:
        stage.bind(config)
    elif section.merge == "auto":
        rows = shards.rows_of(part, of_pair)
        with Shard(folder, part, rows, metadata, labels if section.ignore_existing else None) as shard:
            stage.bind(config)
            if isinstance(backend, Oracle):
                wanted = rows[rows < (section.max_pairs or np.inf)]
                shard.prob[: len(wanted)] = backend.answer(dataset, wanted)
                shard.commit(len(wanted) == len(rows), {shards.NOT_ASKED: int(np.isnan(shard.prob).sum())})
            else:
                assert questions is not None
                AnnotationJob(config, backend, questions, shard, rows).run(open_backend)

    # ---- merge
    partial = section.merge == "partial" or section.max_pairs > 0
    missing = [] if done else shards.merge(dataset, name, part.of, of_pair, metadata, partial)
    if missing and not partial:
        waiting = f"{len(missing)} of {part.of} shards are not finished yet"
        print_line(f"annotate: {name}: shard {part.number} is done; {waiting}")
        return
    counts, logs = shards.last_merge(dataset, name)
    shares = (f"{counts[kind] / len(dataset):.1%} {kind}" for kind in counts if counts[kind] or kind != "not asked")
    print_line(f"annotate: {name}: {len(dataset):,} pairs: {', '.join(shares)}")
    asked = dataset.preference(name)[of_pair >= 0]
    if backend.is_model and len(asked) and (ties := float((asked == Preference.TIE).mean())) > 0.9:
        print_line(
            f"annotate: {ties:.0%} of the answers are ties, from which little can be learnt: they are within "
            f"{backend.tie_margin:g} of one half (--config.annotate.tie_margin)"
        )
    page = write_page(stage, config, backend, dataset, name, questions, counts, logs)
    print_line(f"annotate: labels in {labels}, page: {page}")


# ---- one job
# Questions with a label from an earlier run are not asked again; the rest go through `annotator.Asking`, which answers
# what its cache knows. Labels are committed to the shard after every batch of answers, so a killed job loses at most
# one batch of labels, whose answers are in the cache.


class AnnotationJob:
    """Asks the questions of one shard."""

    def __init__(
        self, config: AnnotateConfig, backend: CaptionBackend, questions: Questions, shard: Shard, rows: np.ndarray
    ):
        """`rows` are the rows of the dataset that belong to the shard. [M]"""
        self._section = section = config.annotate
        self._backend, self._questions, self._shard = backend, questions, shard
        self._of, self._turned = questions.of_pair[rows], questions.turned[rows]  # of each row. [M]
        # P(second is better) in the question's own order: as answered in that order and turned [Q, 2], and by the
        # labels of earlier runs [Q].
        self._answers = np.full((len(questions), 2), np.nan, np.float32)
        self._earlier = questions.labels(shard.prob, rows)
        self._both = questions.sample(backend.both_orders)  # whether both orders are asked. [Q]
        self._put = np.zeros(len(questions), bool)  # whether a question was asked, with or without a verdict. [Q]
        asking = self._of >= 0
        shard.prob[~asking] = 0.5  # equal captions are ties

        # The questions to ask, in this order [W]; in the order disagreement, with those of each round in turn.
        wanted = np.unique(self._of[asking & (rows < (section.max_pairs or np.inf))])
        self._low, self._high = low, high = shards.question_range(shard.part, len(questions))
        self._first_round = len(wanted)  # the number of its questions
        if section.order == "random":
            wanted = (np.random.default_rng([config.seed, 90, low]).permutation(high - low) + low)[: len(wanted)]
        self._rounds = iter([wanted])
        if section.order == "disagreement":
            self._first_round = math.ceil(len(wanted) / section.rounds)
            self._rounds = question_rounds(questions, shard, len(wanted), self._first_round, config.seed)
        self._wanted = next(self._rounds)

        self._before = dict(shard.record["log"])  # of earlier runs
        self._cache = self._before.get("answers", "")  # the folder of the answer cache
        self._model = self._before.get("model", "")  # the full name, as in the answer cache
        self._counts = AskingCounts("annotate")
        self._progress: Progress | None = None  # of a job that asks
        self._started = self._committed = time.monotonic()
        self._uncommitted = 0  # answers of the judge since the last commit
        self._flight: dict[Question, tuple[int, bool]] = {}  # drawn, not yet answered: number, turned

    def run(self, open_backend: OpenBackend) -> None:
        # Those without a verdict were asked, too.
        were_asked = self._shard.record["finished"] or self._before.get("wanted") == self._wanted_id()
        if (were_asked or not self._open()) and not self._next_round() and not len(self._beside_nothing()):
            if not were_asked:
                self._save(ended=True)
            return
        pairs = len(self._shard.prob)
        print_line(f"annotate: {self._open():,} distinct questions for {pairs:,} pairs")
        judge = backends.open_judge(self._backend, self._section.cache_dir, self._counts, open_backend)
        with contextlib.closing(judge) as asking:
            self._model = asking.annotator.model
            self._check_model()
            if asking.cache and asking.cache.folder:
                self._cache = str(asking.cache.folder.resolve())
            done = int((~np.isnan(self._shard.prob)).sum())
            with contextlib.closing(Progress("annotate", pairs, "pairs", done)) as self._progress:
                try:
                    self._ask(asking)
                except Incomplete as stopped:
                    labelled = f"{self._save():,} of {pairs:,} pairs are labelled"
                    raise UserError(f"{stopped}; {labelled}, and the same command goes on from there") from None
                except BaseException:
                    self._save()
                    raise
        if self._counts.from_cache:
            print_line(f"annotate: {self._counts.from_cache:,} answers are from the cache {self._cache!r}")

    def _check_model(self) -> None:
        """Raises UserError if the labels so far are from another model, which the config alone may not show."""
        with shards.folder_lock(self._shard.folder):
            logs = [read_json(file)["log"] for file in self._shard.folder.glob("shard-*.json")]
        ours = self._model, self._backend.weights
        asked = {(log["model"], log.get("weights", ours[1])) for log in logs if log.get("model")}
        if others := asked - {ours}:
            other = min(others)[0]
            raise UserError(
                f"annotation {self._shard.folder.name!r} was begun with the model {other!r}, and this is "
                f"{'another one of this name' if other == self._model else repr(self._model)} "
                f"(--config.annotate.model): {shards.TRY}"
            )

    def _ask(self, asking: Asking) -> None:
        if 0 < self._backend.both_orders < 1:
            self._try_orders(asking)
        while True:
            # In each batch first those in their own order, then the turned ones.
            missing = annotator.batches(self._missing(), self._section.batch_size)
            spots = (spot for batch in missing for spot in sorted(batch, key=lambda spot: spot[1]))
            asking.ask(self._draw(spots), self._take)
            self._save()
            if not self._next_round():
                break
        wanted, unanswered = len(self._wanted), self._open()
        if wanted - unanswered < annotator.LEAST_SHARE * wanted:
            raise UserError(
                f"{unanswered:,} of {wanted:,} questions have no verdict; the last answer was "
                f"{clean(repr(self._counts.last_unreadable))} (--config.annotate.backend, .model, .prompt_file); "
                "the same command asks them again"
            )
        if len(captions := self._beside_nothing()):
            table, _ = self._questions.dataset.captions()
            texts = [table.text(number) for number in captions.tolist()]
            yes: dict[Question, float | None] = {}
            for order in ([Question("", text) for text in texts], [Question(text, "") for text in texts]):
                asking.ask(order, lambda one: yes.update({one.question: one.answer.yes}))
            both = [[yes[Question("", text)], yes[Question(text, "")]] for text in texts]
            write_neutral(self._shard.folder, captions, np.array(both, np.float64))  # None is NaN
        self._save(ended=True)

    def _try_orders(self, asking: Asking) -> None:
        first = self._wanted[: self._first_round]  # the same in every round
        tried = np.random.default_rng(self._low).permutation(first)[:TRIED]
        self._both[tried] = True
        asking.ask(self._draw((number, turned) for turned in (False, True) for number in tried.tolist()), self._take)
        both = self._answers[~np.isnan(self._answers).any(1)]
        turned = turned_share(both, self._backend.tie_margin) if len(both) else 0.0
        if turned > RARELY:
            self._both[:] = True
            print_line(
                f"annotate: {turned:.0%} of {len(both):,} pairs get the other caption in the reverse order: all "
                "questions are asked in both orders"
            )

    def _beside_nothing(self) -> np.ndarray:
        """The captions to compare with a moment without a message: of shard 0, if such moments are rare. [K]"""
        elsewhere = self._shard.part.number or self._shard.record["finished"] or self._section.max_pairs
        if elsewhere or self._section.captions != "msg" or (self._shard.folder / NEUTRAL).exists():
            return np.zeros(0, np.int64)
        return captions_to_ask(*self._questions.dataset.captions())

    def _missing(self) -> Iterator[tuple[int, bool]]:
        """Yields (number, turned) for each missing answer to the wanted questions, in their order."""
        for number in self._wanted[np.isnan(self._labels()[self._wanted])].tolist():
            for turned in (False, True)[: 1 + bool(self._both[number])]:
                if np.isnan(self._answers[number, int(turned)]):
                    yield number, turned

    def _draw(self, spots: Iterable[tuple[int, bool]]) -> Iterator[Question]:
        for number, turned in spots:
            question = Question(*self._questions.text(number))
            question = question.turned if turned else question
            self._flight[question] = (number, turned)
            yield question

    def _take(self, answered: Answered) -> None:
        """Records an answer; commits when a batch is full, or after COMMIT_EVERY_S."""
        (number, turned), yes = self._flight.pop(answered.question), answered.answer.yes
        if yes is not None:  # it has a verdict
            self._answers[number, int(turned)] = 1 - yes if turned else yes
        self._put[number] = True
        self._uncommitted += not answered.cached
        is_full = self._uncommitted >= self._section.batch_size
        if is_full or time.monotonic() - self._committed > COMMIT_EVERY_S:
            self._save()

    def _save(self, ended: bool = False) -> int:
        """Labels what is answered, and commits labels and log to the shard; returns the number of labelled rows.

        `ended`: all wanted questions were asked, answered or not.
        """
        prob, labels = self._shard.prob, np.append(self._labels(), np.float32(0.5))[self._of]  # -1: the last
        unknown = np.isnan(prob)
        prob[unknown] = np.where(self._turned, 1 - labels, labels)[unknown]
        unknown, seconds = np.isnan(prob), time.monotonic() - self._started
        # Not before the first answer: it would bind the annotation to settings that may not work.
        if ended or not unknown[self._of >= 0].all():
            log = {name: self._before.get(name, 0) + one for name, one in self._counts.logged().items()}
            log |= {"seconds": round(self._before.get("seconds", 0.0) + seconds, 1)}
            log |= {"answers": self._cache, "model": self._model, "weights": self._backend.weights}
            log |= {"motif_jax": motif_jax.__version__}
            log |= {shards.NOT_ASKED: int((~self._put[self._of[unknown]]).sum())}
            log |= {"wanted": self._wanted_id()} if ended else {}
            self._shard.commit(ended and len(self._wanted) == self._high - self._low, log)
        self._committed, self._uncommitted = time.monotonic(), 0  # also without new labels, as this takes time
        labelled = len(prob) - int(unknown.sum())
        if self._progress:
            asked, ties = self._counts.asked, to_codes(prob, self._backend.tie_margin) == Preference.TIE
            tokens = self._counts.prompt_tokens + self._counts.output_tokens
            notes = {"asked": f"{asked:,} ({asked / max(seconds, 1e-9):,.0f}/s)"}
            notes |= {"tokens": f"{tokens / max(seconds, 1e-9):,.0f}/s"} if tokens else {}
            notes |= {"tie": f"{ties.sum() / max(labelled, 1):.0%}"}
            notes |= {"no verdict": f"{self._counts.no_verdict / max(asked, 1):.1%}"}
            self._progress.update(labelled, **notes)
        return labelled

    def _labels(self) -> np.ndarray:
        """P(second is better) of questions with an answer in every required order: their mean; else NaN. [Q] float32"""
        own, turned = self._answers.T
        return np.where(np.isnan(self._earlier), np.where(self._both, (own + turned) / 2, own), self._earlier)

    def _open(self) -> int:
        return int(np.isnan(self._labels()[self._wanted]).sum())

    def _wanted_id(self) -> int:
        return zlib.crc32((np.sort(self._wanted) - self._low).tobytes())

    def _next_round(self) -> bool:
        """Adds the questions of the next round to the wanted ones; returns whether there is one."""
        before, self._wanted = self._wanted, next(self._rounds, self._wanted)
        return self._wanted is not before


# ---- the order disagreement: in rounds, the questions are asked about which small rewards disagree most
# The first round is random. After each round, NETWORKS small rewards learn from the answers so far, and the next round
# has the questions with the largest standard deviation of P(second is better) among them. They begin with different
# parameters and share nothing: heads of one network agree even where all are wrong. The file `order.json` of the
# annotation has the questions in the order in which they are asked. It is written before a round is asked, and a round
# depends on the answers of earlier rounds only, so a killed job asks the same questions.

NETWORKS = 4
OPTIONS = {"message": "lt_cnn_small", "blstats": False, "crop": False, "glyphs": False}
LEARNING_RATE, BATCH_SIZE = 1e-3, 128
MOST_STEPS, MOST_EPOCHS = 600, 60  # of each network's training in a round


def question_rounds(questions: Questions, shard: Shard, budget: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Yields all questions chosen so far: those of an earlier run, then also those of each next round. [P] int64

    A round is chosen by the shard's labels of earlier ones. `budget`: number of questions to ask in all rounds of
    `size`; those that have labels already count.
    """
    rows, file, facts = questions.rows(), shard.folder / shards.ORDER, dict(shard.record["facts"])
    order = np.flatnonzero(~np.isnan(shard.prob[rows]))
    if file.exists() and (record := read_json(file))["facts"] == facts:
        order = np.array(record["numbers"], np.int64)
    yield order
    while len(order) < budget:
        others = np.setdiff1d(np.arange(len(rows)), order)
        others = np.random.default_rng([seed, 90, len(order)]).permutation(others)
        target = shard.prob[rows]  # as the shard has it: a killed job reads the same
        answered = order[~np.isnan(target[order])]
        if len(answered):
            table, ids = questions.dataset.captions()
            shown = np.asarray(ids)[rows]
            doubt = disagreement(small_rewards(table.messages, shown, target, answered, seed), shown)
            others = others[np.argsort(-doubt[others], kind="stable")]
        order = np.concatenate([order, others[: min(size, budget - len(order))]])
        write_json(file, {"facts": facts, "numbers": order.tolist()})
        yield order


def disagreement(rewards: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The standard deviation of P(second is better) among rewards, for each question. [Q]

    `rewards`: of each message [E, U]; `ids`: the message of every step of each question [Q, 2, L].
    """
    of_sides = rewards[:, ids].mean(-1)  # [E, Q, 2]
    return (1 / (1 + np.exp(of_sides[..., 0] - of_sides[..., 1]))).std(0)


def small_rewards(
    messages: np.ndarray, ids: np.ndarray, target: np.ndarray, answered: np.ndarray, seed: int
) -> np.ndarray:
    """Trains NETWORKS small rewards, and returns the reward of each message by each of them. [E, U]

    `messages`: [U, 256]; `ids`: as above [Q, 2, L]; `target`: P(second is better) of each question [Q]; `answered`: the
    questions to learn from [K].
    """
    from motif_jax.devices.mesh import make_mesh
    from motif_jax.rewards.preference import epoch_order, make_batches, make_model, value_captions

    model, rewards, items = make_model(OPTIONS, LEARNING_RATE, messages, make_mesh(1)), [], 0
    for network in range(NETWORKS):
        state = model.init(seed + network)
        for epoch in range(int(np.clip(MOST_STEPS * BATCH_SIZE // len(answered), 1, MOST_EPOCHS))):
            rows = epoch_order(answered, seed + network, epoch)
            batches = make_batches(rows, ids, target, BATCH_SIZE, 1, None, items)
            items, state = batches.captions.shape[-1], model.learn(state, batches)
        rewards.append(value_captions(model.value, state.params, model.table))
    return np.stack(rewards)


STAGE = Stage(
    config=AnnotateConfig,
    sections=("annotate",),
    check=check,
    needs=needs,
    is_complete=is_complete,
    run=run,
    writes="--config.annotate.cache_dir",
    memory="--config.annotate.batch_size",
    begun=lambda config, workdir: [annotation_folder(workdir / "dataset", label_name(config.annotate))],
    lock=lambda config: Lock.SHARED if config.annotate.num_shards > 1 else Lock.EXCLUSIVE,  # of several jobs
    # A language model runs on a server or in vLLM.
    loads_jax=lambda config: bool(config.annotate.order == "disagreement"),
)


# ---- the questions of other stages: each has a plan of its own, and keeps the answers in a file of its own

WRITE_EVERY_S = 30.0
UNREAD = -1.0  # an answer without a verdict


def ask_pairs(config: AnnotateConfig, plan: PairPlan, file: Path, open_backend: OpenBackend, stage: str) -> PairAnswers:
    """The answers to all questions of a plan, and to the repeats after them, each round as one stream.

    The answer cache is not used; `file` keeps what a killed run was told.
    """
    count, texts = len(plan.questions), plan.questions + plan.repeated
    if not texts:
        return PairAnswers(np.zeros(0), np.zeros(0))
    backend = make_backend(config, verdicts=True)
    with contextlib.closing(open_judge(backend, None, AskingCounts(stage), open_backend)) as asking:
        metadata = backend.identity() | {"model": asking.annotator.model}
        stamp = hashlib.sha256(json.dumps([texts, metadata], sort_keys=True).encode()).hexdigest()
        kept, kept_s = read_json(file) if file.exists() else {}, time.monotonic()
        earlier = kept["answers"] if kept.get("stamp") == stamp else [None] * len(texts)
        yes_of = np.array(earlier, np.float64)  # NaN without an answer
        done = int((~np.isnan(yes_of)).sum())
        print_line(f"{stage}: asks {plan.describe(backend.rates)}; {done:,} are answered")
        progress = Progress(stage, len(texts), "answers", done)
        due: dict[Question, int] = {}

        def take(answered: Answered) -> None:
            nonlocal kept_s, done
            if not answered.answer.refused:
                yes = answered.answer.yes
                yes_of[due[answered.question]] = UNREAD if yes is None else yes
                done += 1
            if time.monotonic() - kept_s > WRITE_EVERY_S:
                write_json(file, {"stamp": stamp, "answers": yes_of})
                kept_s = time.monotonic()
            progress.update(done)

        try:
            for first, last in ((0, count), (count, len(texts))):
                due = {Question(*texts[at]): at for at in range(first, last) if np.isnan(yes_of[at])}
                asking.ask(due, take)
        except Incomplete as stopped:
            raise UserError(
                f"{stopped}; {done:,} of {len(texts):,} questions are answered, and the same command goes on from there"
            ) from None
        finally:
            progress.close()
            write_json(file, {"stamp": stamp, "answers": yes_of})
    yes_of[yes_of == UNREAD] = np.nan
    return PairAnswers(yes_of[:count], yes_of[count:], len(texts) - done)

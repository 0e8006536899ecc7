"""The HTML page of an annotation, and its part of the report: shares of labels, the most frequent questions with
reasons, position bias, agreement with other annotations.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from motif_jax.annotation import annotator, backends
from motif_jax.annotation.annotator import Question
from motif_jax.annotation.backends import CaptionBackend, Lexicon, Prompted
from motif_jax.annotation.prompts import is_sentence
from motif_jax.annotation.section import AnnotateSection
from motif_jax.console import print_line
from motif_jax.envs.texts import GENERAL
from motif_jax.files import write_whole
from motif_jax.pages.blocks import (
    Block,
    Folded,
    Heading,
    Link,
    Paragraph,
    ShareBar,
    Span,
    Table,
    Text,
    Tiles,
    page,
    quoted,
    soft,
)
from motif_jax.pages.charts import Columns
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.shards import to_codes
from motif_jax.preferences.store import PairDataset, Preference, annotation_folder
from motif_jax.rewards.statistics import share_interval
from motif_jax.run import Facts, Judge, StageRun
from motif_jax.structs import UserError
from motif_jax.system.machine import read_array

SHOWN = 30  # questions
LEAST = 200  # questions that the rules decide as well, before it is said that a judge is at chance
ASKED = 12  # questions in the report
TITLE = "Preferences"  # of the report's part
NAMES = ("first", "second", "tie", "unknown")  # of labels, and of their colours


def write_page(
    stage: StageRun, section: AnnotateSection, backend: CaptionBackend, dataset: PairDataset, name: str,
    questions: Questions | None, counts: dict[str, int], logs: list[dict[str, Any]],
) -> Path:  # fmt: skip
    """Writes `annotations/<name>.html`, and the annotation's part of the report. `counts`, `logs`: of its labels."""
    models = sorted({str(log["model"]) for log in logs if log.get("model")})
    words = [section.backend, *(models or filter(None, [section.model]))]
    figures, details, most_asked = [(f"{len(dataset):,}", "pairs")], list[Block](), list[Block]()
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
        details += [Heading("The whole prompt", 2), Folded("prompt", prompt)]
    if seconds := sum(log.get("seconds", 0.0) for log in logs):
        words.append(f"{seconds:,.1f} s")
    path, bar, origin = stage.workdir / f"annotations/{name}.html", label_bar(counts), " · ".join(words)
    top_lines = [Heading(name, 1), Paragraph(origin, "soft"), Tiles(figures), Heading("Labels", 2), bar]
    link = Link("details", quote(os.path.relpath(path, stage.workdir / "report")))
    about = Paragraph((f"{origin} · ", link), "soft")
    stage.section(TITLE, Heading(name), about, bar, *most_asked, part=name)
    who = ", ".join(model.rstrip("/").rpartition("/")[2] for model in models) or backend.title
    judge = Judge((who or f"the annotation {name}",), backend.plural and not models, len(dataset) - counts["not asked"])
    aim = aim_of(section.goal)
    title = f"Preferences {aim}" if aim else ("Preferences of ", judge.words)
    lead = sentence([judge], [section.goal], len(dataset))
    stage.report(Facts(title=title, lead=lead, goal=section.goal, judge=judge), part=name)
    write_whole(path, page(f"{name}: annotation", [*top_lines, *details]))  # last: it marks a complete stage
    return path


def sentence(judges: Sequence[Judge], goals: Iterable[str], pairs: int) -> Text:
    """A sentence on the judges and the number of judged pairs."""
    who, judged = together(judges), max(one.pairs for one in judges)
    first = who._replace(names=(who.names[0][:1].upper() + who.names[0][1:], *who.names[1:]))
    some = () if judged == pairs else (Span(f"{judged:,}"), " of ")
    of = *some, Span(f"{pairs:,}"), " pairs of moments of the game which of the two is better"
    aims = " and ".join(dict.fromkeys(filter(None, map(aim_of, goals))))
    return first.words, " said for ", of, f" {aims}." if aims else "."


def together(judges: Sequence[Judge]) -> Judge:
    """Several judges as one."""
    names = tuple(dict.fromkeys(name for one in judges for name in one.names))
    return Judge(names, any(one.plural for one in judges), max((one.pairs for one in judges), default=0))


def aim_of(goal: str) -> str:
    """The end of the report's title: for what an agent is; "" without a goal, and for progress of any kind."""
    if goal in ("", *GENERAL):
        return ""
    return f"with the goal “{goal}”" if is_sentence(goal) else f"for {goal}"


def label_bar(counts: Mapping[str, int]) -> ShareBar:
    """The shares of labels, from their counts by kind."""
    total = max(sum(counts.values()), 1)
    shown = [name for name in counts if counts[name] or name in NAMES]
    return ShareBar([(name, counts[name] / total, name if name in NAMES else "line") for name in shown])


def _question_blocks(
    backend: CaptionBackend, questions: Questions, label: np.ndarray, logs: list[dict[str, Any]]
) -> tuple[list[tuple[str, str]], list[Block], list[Block]]:
    """Figures, blocks for the page, and those for the report. `label`: see `Questions.labels`. [Q]"""
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

    def row(number: int, on_page: bool) -> list[Text]:
        code, yes, reason = int(codes[number]), label[number], said.get(number, "")
        cells: list[Text] = [f"{questions.counts[number]:,}", *marked(questions.text(number), code)]
        certainty = on_page and code != Preference.UNKNOWN and yes not in (0.0, 0.5, 1.0)
        sure = ("\xa0", soft(f"{yes:.2f}")) if certainty else ()
        cells.append((Span(NAMES[code], colour=NAMES[code]), *sure))
        if on_page and said:
            cells.append(Folded("why", reason) if len(reason) > 90 else soft(reason))
        return cells

    head = ("pairs", "first", "second", "better")
    words = "Pairs with the question, its captions (the better one in bold), and the verdict."
    details: list[Block] = [
        Heading("Most frequent questions", 2),
        Paragraph(words, "soft"),
        Table((*head, "reason") if said else head, [row(number, True) for number in top], numbers=(0,)),
    ]
    answered = label[~np.isnan(label)]
    if not np.isin(answered, (0.0, 0.5, 1.0)).all():
        heights = np.histogram(answered, bins=40, range=(0, 1))[0].tolist()
        words = "Distinct questions by the probability that their second caption is better."
        details += [
            Heading("Certainty of the answers", 2),
            Columns(heights, ("first is better", "no preference", "second is better")),
            Paragraph(words, "soft"),
        ]
    details += [Heading("Answers without a verdict", 2)] if unreadable else []
    details += [Folded(" / ".join(text or "(nothing)" for text in one), said) for one, said in unreadable.items()]
    words = "A row is a question that was asked once: how many pairs share it, and its two captions, the better one in "
    report: list[Block] = [Paragraph(f"{words}bold.", "soft")]
    sided = order[codes[order] < Preference.TIE][:ASKED].tolist()
    for heading, chosen in (("Preferred most often", sided), ("Asked most", top[: ASKED // 2])):
        rows = [row(number, False) for number in chosen]
        report += [Heading(heading), Table(head, rows, numbers=(0,))] if rows else []
    if len(both):
        bias = _bias_tiles(both, backend.tie_margin)
        details += [Heading("Position bias", 2), bias]
        report += [Heading("Position bias"), bias]
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


def marked(captions: tuple[str, str], code: int) -> list[Text]:
    """The two captions of a question; `code`, of `Preference`, says which one is marked as better."""
    texts = [quoted(text) for text in captions]
    if code >= Preference.TIE:
        return [*texts]
    return [Span(text, ("better", "worse")[code ^ side]) for side, text in enumerate(texts)]


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


def _bias_tiles(both: np.ndarray, margin: float) -> Tiles:
    """The effect of the captions' order on the answers to questions that were asked in both. [J, 2]"""
    changed = np.not_equal(*to_codes(both, margin).T).mean()
    shown_first = (1 - both[:, 0]).mean() / 2 + both[:, 1].mean() / 2
    return Tiles([
        (f"{len(both):,}", "questions answered in both orders"),
        (f"{turned_share(both, margin):.1%}", "prefer the other caption when the order is changed"),
        (f"{changed:.1%}", "change with the order, ties included"),
        (f"{shown_first:.1%}", "for the caption that is shown first; 50% without bias"),
    ])  # fmt: skip


def _agreement(dataset: PairDataset, name: str, other: str) -> list[Block]:
    """Blocks that compare two annotations on the pairs that both have labelled."""
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
    rows = [[NAMES[kind], *(f"{value:,}" for value in counts[kind])] for kind in range(3)]
    return [Heading(f"Agreement with {other}", 2), Tiles(figures), Table(head, rows, numbers=(1, 2, 3))]

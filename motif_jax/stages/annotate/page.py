"""The HTML page of an annotation, and its part of the report: shares of labels, the most frequent questions with
reasons, position bias, agreement with other annotations.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from motif_jax.pages.blocks import esc, folded, page, quoted, share_bar, table, tiles
from motif_jax.pages.charts import columns
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.shards import to_codes
from motif_jax.preferences.store import PairDataset, Preference, annotation_folder
from motif_jax.rewards.statistics import share_interval
from motif_jax.run import Head, StageRun
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

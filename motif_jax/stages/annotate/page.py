"""HTML page of an annotation: shares of labels, most frequent questions with reasons, position bias, agreement."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from motif_jax.annotation.annotator import Question, QuestionAnswer, batched
from motif_jax.annotation.backends import Backend, CaptionBackend, Oracle, Prompted
from motif_jax.annotation.cache import read_answers
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.annotation.prompts import is_sentence
from motif_jax.annotation.section import AnnotateSection
from motif_jax.console import print_line
from motif_jax.files import write_whole
from motif_jax.pages.blocks import folded, page, quoted, share_bar, table, tiles
from motif_jax.pages.charts import columns
from motif_jax.pages.formats import esc
from motif_jax.preferences.merging import Merged
from motif_jax.preferences.questions import AnswerTable, Questions
from motif_jax.preferences.shards import to_codes
from motif_jax.preferences.store import PairDataset, Preference, annotation_folder
from motif_jax.rewards.statistics import share_interval
from motif_jax.run import Head, StageRun
from motif_jax.system.arrays import read_array

SHOWN = 30  # questions
LEAST = 200  # questions that the rules decide as well, before it is said that a judge is at chance
ASKED = 12  # questions in the report
LINES = 4096  # of an answer cache, looked up at a time
EXAMPLES = 8  # answers without a verdict
TITLE = "Preferences"  # of the report's part
NAMES = ("first", "second", "tie", "unknown")  # of labels, and of their colours
JUDGES = {
    "lexicon": "a lexicon of rules", "score": "an oracle that knows the score", "random": "chance",
    "return": "an oracle that knows the rewards",
}  # fmt: skip


class AnswerDetails(NamedTuple):
    """Details of the answers for the page, in addition to their labels."""

    said: dict[int, str]  # answers to the most frequent questions, by the question's number
    both: np.ndarray  # answers of questions asked in both orders, in their own order. [J, 2]
    unreadable: dict[Question, QuestionAnswer]  # of questions without a label
    mass: float  # mean probability of a verdict as the next token; 1 in mode reason


def page_of(workdir: Path, name: str) -> Path:
    """The path of an annotation's HTML page."""
    return workdir / "annotations" / f"{name}.html"


def write_page(
    stage: StageRun, section: AnnotateSection, backend: Backend, dataset: PairDataset, name: str,
    questions: Questions | None, merged: Merged, task: str,
) -> Path:  # fmt: skip
    """Writes `annotations/<name>.html`, and the annotation's part of the report. `task`: the game's name."""
    logs = list(merged.logs.values())
    figures = [(f"{len(dataset):,}", "pairs")]
    details: list[str] = []
    most_asked: list[str] = []
    if questions is not None and not isinstance(backend, Oracle):
        label = _labels(dataset, name, questions)
        top = np.argsort(-questions.counts, kind="stable")[:SHOWN]
        evidence = _evidence(backend, questions, logs, top, label)
        figures += _figures(len(dataset), questions, logs, evidence)
        figures += _beside_rules(backend, questions, label)
        details = _of_the_questions(backend.tie_margin, questions, label, top, evidence)
        most_asked = _most_asked(backend.tie_margin, questions, label, evidence)
    for other in filter(None, section.compare_with.split(",")):
        details += _agreement(dataset, name, other)
    if isinstance(backend, Prompted):
        messages = backend.template.messages(Question("(first caption)", "(second caption)"))
        words = "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)
        details += ["<h2>The whole prompt</h2>", folded("prompt", words)]
    path, bar = page_of(stage.workdir, name), label_bar(merged.counts)
    head = [f"<h1>{esc(name)}</h1>", f'<p class="soft">{esc(_subtitle(section, backend, logs))}</p>', tiles(figures)]
    text = page(f"{name}: annotation", [*head, "<h2>Labels</h2>", bar, *details])
    origin = _origin(section, logs, len(questions or ()), path, stage.workdir / "report")
    stage.section(TITLE, f"<h3>{esc(name)}</h3>", origin, bar, *most_asked)
    stage.report(_head(section, logs, name, merged, task, len(dataset)), part=name)
    write_whole(path, text)  # last: it marks a complete stage
    return path


def _head(
    section: AnnotateSection, logs: list[dict[str, Any]], name: str, merged: Merged, task: str, pairs: int
) -> Head:
    """The annotation's words on the first screen."""
    models = _models(logs)
    who = ", ".join(model.rstrip("/").rpartition("/")[2] for model in models) or JUDGES.get(section.backend, "")
    judge = f"<b>{esc(who or f'the annotation {name}')}</b>"
    head = Head(subject="Preferences", goal=section.goal, judge=judge, judged=pairs - merged.counts["not asked"],
                aim=aim_of(section.goal, task))  # fmt: skip
    return dataclasses.replace(head, asked=sentence([head], pairs))


def _models(logs: list[dict[str, Any]]) -> list[str]:
    """The full names of the models that answered, sorted."""
    return sorted({str(log["model"]) for log in logs if log.get("model")})


def sentence(judges: Sequence[Head], pairs: int) -> str:
    """A sentence on the judges and the number of judged pairs, as HTML; `Head.judge` begins with a tag."""
    who, judged = " and ".join(dict.fromkeys(str(one.judge) for one in judges)), max(one.judged or 0 for one in judges)
    of = f"<b>{pairs:,}</b> pairs of moments"
    return f"{who[:3]}{who[3:4].upper()}{who[4:]} judged {of if judged == pairs else f'<b>{judged:,}</b> of {of}'}."


def aim_of(goal: str, task: str) -> str | None:
    """The end of the report's title: for what an agent is; None without a goal."""
    if goal in ("", "zeroknowledge"):
        return None
    if goal == "defaultgoal":
        return f"for {'progress' if ':' in task else 'a high score'}"  # a game of the user's may not have scores
    return f"with the goal “{esc(goal)}”" if is_sentence(goal) else f"for {esc(goal)}"


def _origin(section: AnnotateSection, logs: list[dict[str, Any]], questions: int, path: Path, home: Path) -> str:
    """The judge, its models, the goal, the number of questions and the time of an annotation, as HTML."""
    words = [esc(section.backend), *map(esc, _models(logs))]
    if questions:  # otherwise it compares numbers of the game
        words += [f"goal: {esc(section.goal)}", f"{questions:,} different questions"]
    if seconds := sum(log.get("seconds", 0.0) for log in logs):
        words.append(f"{seconds:,.1f} s")
    words.append(f'<a href="{esc(quote(os.path.relpath(path, home)))}">details</a>')
    return f'<p class="soft">{" · ".join(words)}</p>'


def label_bar(counts: Mapping[str, int]) -> str:
    """The shares of labels, as an HTML bar, from their counts by kind."""
    total = max(sum(counts.values()), 1)
    shown = [name for name in counts if counts[name] or name in NAMES]
    return share_bar([(name, counts[name] / total, name if name in NAMES else "line") for name in shown])


def _labels(dataset: PairDataset, name: str, questions: Questions) -> np.ndarray:
    """P(second is better) of each question, in its own order; NaN where unknown. [Q]"""
    prob = read_array(annotation_folder(dataset.path, name) / "prob.npy")
    label = np.full(len(questions), np.nan)
    asking = np.flatnonzero(questions.of_pair >= 0)
    label[questions.of_pair[asking]] = np.where(questions.turned[asking], 1 - prob[asking], prob[asking])
    return label


def _figures(
    pairs: int, questions: Questions, logs: list[dict[str, Any]], evidence: AnswerDetails
) -> list[tuple[str, str]]:
    different = int((questions.of_pair >= 0).sum())
    total = {key: sum(log.get(key, 0) for log in logs) for key in ("asked", "prompt_tokens", "output_tokens")}
    figures = [
        (f"{1 - different / pairs:.0%}", "of them have equal captions: ties, not asked"),
        (f"{len(questions):,}", "distinct questions"),
        (f"{different / max(len(questions), 1):,.1f}", "pairs per question"),
    ]
    if total["asked"]:
        figures.append((f"{total['asked']:,}", "questions asked, repetitions included"))
    if total["prompt_tokens"]:
        tokens = (total["prompt_tokens"] + total["output_tokens"]) / total["asked"]
        figures.append((f"{tokens:,.0f}", "tokens per question asked"))
    if evidence.mass < 1:
        figures.append((f"{evidence.mass:.0%}", "probability that the model answers with a verdict"))
    return figures


def _beside_rules(backend: CaptionBackend, questions: Questions, label: np.ndarray) -> list[tuple[str, str]]:
    """A language model's agreement with the rules, if the game has rules for the goal; warns of a judge at chance."""
    goal = backend.section.goal
    if backend.by_rules or not backend.is_model or not backend.texts.rules().rules or goal not in backend.texts.goals:
        return []
    rules = Lexicon(backend.texts, goal)
    codes = to_codes(label, backend.tie_margin)
    right = []
    for number in np.flatnonzero(codes < Preference.TIE).tolist():
        first, second = (rules.worth(text)[0] for text in questions.text(number))
        right += [(second > first) == bool(codes[number])] if first != second else []
    if not right:
        return []
    low, high = share_interval(float(np.mean(right)), len(right))
    if len(right) >= LEAST and low <= 0.5:
        print_line(
            f"annotate: agrees with the rules in {np.mean(right):.0%} [{low:.0%}, {high:.0%}] of {len(right):,} "
            "questions, which is no better than chance (--stage=check_judge)"
        )
    return [(f"{np.mean(right):.0%} [{low:.0%}, {high:.0%}]", f"of {len(right):,} questions decided as by the rules")]


def _of_the_questions(
    margin: float, questions: Questions, label: np.ndarray, top: np.ndarray, evidence: AnswerDetails
) -> list[str]:
    """HTML blocks: the most frequent questions, certainty of answers, position bias, unreadable answers."""
    codes = to_codes(label, margin)
    cells = 5 if evidence.said else 4
    rows = []
    for number in top.tolist():
        row = _row_of(questions, number, int(codes[number]))
        if not np.isnan(label[number]) and label[number] not in (0.0, 0.5, 1.0):
            row[-1] += f'&nbsp;<span class="soft">{label[number]:.2f}</span>'
        reason = evidence.said.get(number, "")
        why = folded("why", reason) if len(reason) > 90 else f'<span class="soft">{esc(reason)}</span>'
        rows.append([*row, why][:cells])
    body = [
        "<h2>Most frequent questions</h2>",
        '<p class="soft">Pairs with the question, its captions (the better one in bold), and the verdict.</p>',
        table(("pairs", "first", "second", "better", "reason")[:cells], rows, numbers=(0,)),
    ]
    answered = label[~np.isnan(label)]
    if not np.isin(answered, (0.0, 0.5, 1.0)).all():
        heights = np.histogram(answered, bins=40, range=(0, 1))[0].tolist()
        body += [
            "<h2>Certainty of the answers</h2>",
            columns(heights, ("first is better", "no preference", "second is better")),
            '<p class="soft">Distinct questions by the probability that their second caption is better.</p>',
        ]
    if len(evidence.both):
        body += ["<h2>Position bias</h2>", bias_tiles(measure_bias(evidence.both, margin))]
    if evidence.unreadable:
        body.append("<h2>Answers without a verdict</h2>")
        for question, answer in evidence.unreadable.items():
            body.append(folded(" / ".join(text or "(nothing)" for text in question), answer.said))
    return body


def _row_of(questions: Questions, number: int, code: int) -> list[str]:
    """The number of pairs with a question, its captions with the better one in bold, and the verdict, as HTML."""
    marks = [("better", "worse")[code ^ side] if code < Preference.TIE else "" for side in (0, 1)]
    sides = zip(marks, questions.text(number), strict=True)
    cells = [f'<span class="{mark}">{quoted(text)}</span>' for mark, text in sides]
    return [f"{questions.counts[number]:,}", *cells, f'<b style="color:var(--{NAMES[code]})">{NAMES[code]}</b>']


def _evidence(
    backend: CaptionBackend, questions: Questions, logs: list[dict[str, Any]], top: np.ndarray, label: np.ndarray
) -> AnswerDetails:
    """Collects the evidence: asks rules again, or reads the answer caches of the jobs."""
    if not backend.is_model:
        with contextlib.closing(backend.open()) as annotator:
            number_of = {Question(*questions.text(number)): number for number in top.tolist()}
            said = {number_of[question]: answer.said for question, answer in annotator.answers(number_of)}
        return AnswerDetails(said, np.empty((0, 2)), {}, 1.0)
    asked, wanted = AnswerTable(0, np.ones(len(questions), bool)), set(top.tolist())
    explanations: dict[int, str] = {}
    unreadable: dict[Question, QuestionAnswer] = {}
    count, mass = 0, 0.0
    for folder in {str(log["answers"]) for log in logs if log.get("answers")}:
        for lines in batched(read_answers(Path(folder)), LINES):
            lines = [(question, answer) for question, answer in lines if question.second is not None]
            numbers, turned = questions.find([(question.first, str(question.second)) for question, _ in lines])
            for number, backwards, (question, answer) in zip(numbers.tolist(), turned.tolist(), lines, strict=True):
                if number < 0:
                    continue
                asked.put(number, backwards, answer.yes)
                count, mass = count + 1, mass + answer.mass
                if answer.yes is None and np.isnan(label[number]) and len(unreadable) < EXAMPLES:
                    unreadable[question] = answer
                if number in wanted and answer.said and not backwards:
                    explanations[number] = answer.said
    return AnswerDetails(explanations, asked.both_answers(), unreadable, mass / count if count else 1.0)


def _most_asked(margin: float, questions: Questions, label: np.ndarray, evidence: AnswerDetails) -> list[str]:
    """Tables of the most frequent questions, those with a better side and all, and position bias, for the report."""
    codes, order = to_codes(label, margin), np.argsort(-questions.counts, kind="stable")
    sided = order[codes[order] < Preference.TIE]
    body = ['<p class="soft">The number of pairs that share the question; the better caption is in bold.</p>']
    for title, chosen, most in (("Preferred most often", sided, ASKED), ("Asked most", order, ASKED // 2)):
        if rows := [_row_of(questions, number, int(codes[number])) for number in chosen[:most].tolist()]:
            body += [f"<h3>{title}</h3>", table(("pairs", "first", "second", "better"), rows, numbers=(0,))]
    if len(evidence.both):
        body += ["<h3>Position bias</h3>", bias_tiles(measure_bias(evidence.both, margin))]
    return body if len(order) else []


def measure_bias(asked: np.ndarray, margin: float) -> dict[str, float]:
    """Position bias: the effect of the captions' order on the answers.

    Args:
      asked: answers to questions in both orders, each in the question's own order. [J, 2]
      margin: distance from one half within which an answer is a tie.
    """
    codes = to_codes(asked, margin)
    return {
        "questions": len(asked),
        "turned": float(((codes[:, 0] != codes[:, 1]) & (codes < Preference.TIE).all(-1)).mean()),
        "changed": float((codes[:, 0] != codes[:, 1]).mean()),
        "shown_first": float((1 - asked[:, 0]).mean() / 2 + asked[:, 1].mean() / 2),
    }


def bias_tiles(bias: Mapping[str, float]) -> str:
    """HTML tiles with the figures of `measure_bias`."""
    return tiles(
        [
            (f"{bias['questions']:,}", "questions answered in both orders"),
            (f"{bias['turned']:.1%}", "prefer the other caption when the order is changed"),
            (f"{bias['changed']:.1%}", "change with the order, ties included"),
            (f"{bias['shown_first']:.1%}", "for the caption that is shown first; 50% without bias"),
        ]
    )


def _agreement(dataset: PairDataset, name: str, other: str) -> list[str]:
    """HTML blocks that compare two annotations on the pairs that both have labelled."""
    mine, theirs = np.asarray(dataset.preference(name)), np.asarray(dataset.preference(other))
    both = (mine != Preference.UNKNOWN) & (theirs != Preference.UNKNOWN)
    counts = np.zeros((3, 3), int)
    np.add.at(counts, (mine[both], theirs[both]), 1)
    sided = counts[:2, :2].sum()
    same = np.trace(counts) / max(counts.sum(), 1)
    head = (f"{name} ↓  {other} →", *NAMES[:3])
    rows = [[esc(NAMES[kind]), *(f"{value:,}" for value in counts[kind])] for kind in range(3)]
    return [
        f"<h2>Agreement with {esc(other)}</h2>",
        tiles(
            [
                (f"{int(both.sum()):,}", "pairs that both have labelled"),
                (f"{same:.1%}", "same label"),
                (f"{np.trace(counts[:2, :2]) / max(sided, 1):.1%}", "same preference, where both have one"),
            ]
        ),
        table(head, rows, numbers=(1, 2, 3)),
    ]


def _subtitle(section: AnnotateSection, backend: Backend, logs: list[dict[str, Any]]) -> str:
    words = [section.backend, *(_models(logs) or filter(None, [section.model]))]
    if isinstance(backend, Prompted):
        words += [f"mode {section.mode}"]
    words += [f"goal: {section.goal}", f"captions: {section.captions}"]
    return " · ".join(words)

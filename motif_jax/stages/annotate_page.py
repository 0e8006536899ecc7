"""What a person looks at after annotating: shares, what was asked most, with reasons, position bias, agreement."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Answer, Question, batched
from motif_jax.annotation.answers import read_answers
from motif_jax.files import write_whole
from motif_jax.pages import columns, esc, folded, page, share_bar, table, tiles
from motif_jax.preferences.asked import Asked
from motif_jax.preferences.merging import Merged
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.shards import to_codes
from motif_jax.preferences.store import PairDataset, Preference
from motif_jax.stages.annotate_setup import MODELS, make_lexicon, make_the_prompt

SHOWN = 30  # questions
EXAMPLES = 8  # answers without a verdict
NAMES = ("first", "second", "tie", "unknown")  # of labels, and of their colours


def write_page(
    config: ConfigDict, workdir: Path, dataset: PairDataset, name: str, questions: Questions | None, merged: Merged
) -> Path:
    """Writes `workdir/annotations/<name>.html`."""
    section = config.annotate
    logs = list(merged.logs.values())
    total = {
        key: sum(log.get(key, 0) for log in logs) for key in ("asked", "no_verdict", "prompt_tokens", "output_tokens")
    }
    figures = [(f"{len(dataset):,}", "pairs")]
    body = [f"<h1>{esc(name)}</h1>", f'<p class="soft">{esc(_subtitle(section, logs))}</p>']
    shares = [(word, merged.counts[word] / len(dataset), word) for word in NAMES]
    if questions is None:
        body += [tiles(figures), "<h2>Labels</h2>", share_bar(shares)]
    else:
        alike = float((questions.of_pair < 0).mean())
        figures += [
            (f"{alike:.0%}", "of them say the same on both sides: ties, not asked"),
            (f"{len(questions):,}", "distinct questions"),
            (f"{(1 - alike) * len(dataset) / max(len(questions), 1):,.1f}", "pairs that one question serves"),
        ]
        if total["asked"]:
            figures.append((f"{total['asked']:,}", "times the annotator was asked"))
        if total["prompt_tokens"]:
            tokens = (total["prompt_tokens"] + total["output_tokens"]) / total["asked"]
            figures.append((f"{tokens:,.0f}", "tokens each time"))
        body += [tiles(figures), "<h2>Labels</h2>", share_bar(shares)]
        body += _of_the_questions(section, dataset, name, questions, logs)
    others = [other for other in section.compare_with.split(",") if other]
    for other in others:
        body += _agreement(dataset, name, other)
    if section.backend in MODELS:
        prompt = make_the_prompt(section)
        body += ["<h2>The question, in full</h2>"]
        body += [
            folded(
                "prompt",
                "\n\n".join(
                    f"[{message['role']}]\n{message['content']}"
                    for message in prompt.messages(Question("(first caption)", "(second caption)"))
                ),
            )
        ]
    path = workdir / "annotations" / f"{name}.html"
    text = page(f"{name}: annotation", body)
    write_whole(path, lambda file: file.write(text.encode()))
    return path


def _of_the_questions(
    section: ConfigDict, dataset: PairDataset, name: str, questions: Questions, logs: list[dict[str, object]]
) -> list[str]:
    """What was asked most, how sure the answers are, position bias, unreadable answers."""
    prob = np.load(dataset.path / "preference" / name / "prob.npy", mmap_mode="r")
    label = np.full(len(questions), np.nan)
    asking = np.flatnonzero(questions.of_pair >= 0)
    label[questions.of_pair[asking]] = np.where(questions.turned[asking], 1 - prob[asking], prob[asking])
    margin = section.tie_margin if section.backend in MODELS else 0.0
    codes = to_codes(label, margin)
    top = np.argsort(-questions.counts, kind="stable")[:SHOWN]
    said, asked, unreadable = _evidence(section, questions, logs, top)

    rows = []
    for number in top.tolist():
        code = codes[number]
        marks = [{0: "better", 1: "worse"}.get(int(code) ^ side, "") if code < 2 else "" for side in (0, 1)]
        first, second = (
            f'<code class="{mark}">{esc(text) or "<i>(nothing)</i>"}</code>'
            for mark, text in zip(marks, questions.text(number), strict=True)
        )
        verdict = f'<b style="color:var(--{NAMES[code]})">{NAMES[code]}</b>'
        if not np.isnan(label[number]) and label[number] not in (0.0, 0.5, 1.0):
            verdict += f"&nbsp;<span class=soft>{label[number]:.2f}</span>"
        reason = said.get(number, "")
        cell = folded("why", reason) if len(reason) > 90 else f'<span class="soft">{esc(reason)}</span>'
        rows.append([f"{questions.counts[number]:,}", first, second, verdict, cell][: 5 if said else 4])
    body = ["<h2>Asked most</h2>", "<p class=soft>One verdict serves so many pairs; the better caption is in bold.</p>"]
    body.append(table(("pairs", "first", "second", "better", "reason")[: 5 if said else 4], rows, numbers=(0,)))

    known = label[~np.isnan(label)]
    if len(known) and not np.isin(known, (0.0, 0.5, 1.0)).all():
        heights = np.histogram(known, bins=40, range=(0, 1))[0].tolist()
        body += ["<h2>How sure the answers are</h2>"]
        body += [columns(heights, "first is better", "no preference", "second is better")]
        body += ["<p class=soft>Distinct questions by the probability that their second caption is better.</p>"]
    if len(asked):
        body += _position_bias(asked, margin)
    if unreadable:
        body += ["<h2>Answers without a verdict</h2>"]
        body += [
            folded(f"{question.first or '(nothing)'} / {question.second or '(nothing)'}", answer.said)
            for question, answer in unreadable
        ]
    return body


def _evidence(
    section: ConfigDict, questions: Questions, logs: list[dict[str, object]], top: np.ndarray
) -> tuple[dict[int, str], np.ndarray, list[tuple[Question, Answer]]]:
    """What was said about the top questions; answers in both orders; some answers without a verdict."""
    said: dict[int, str] = {}
    unreadable: list[tuple[Question, Answer]] = []
    if section.backend == "lexicon":
        lexicon = make_lexicon(section)
        for number in top.tolist():
            for _, answer in lexicon.answers([Question(*questions.text(number))]):
                said[number] = answer.said
        return said, np.empty((0, 2)), unreadable
    asked = Asked(0, np.ones(len(questions), bool))
    wanted = set(top.tolist())
    for folder in {str(log["answers"]) for log in logs if log.get("answers")}:
        for lines in batched(read_answers(Path(folder)), 4096):
            numbers, turned = questions.find([question for question, _ in lines])
            better = [np.nan if answer.second_better is None else answer.second_better for _, answer in lines]
            asked.take(numbers, turned, np.array(better))
            for number, backwards, line in zip(numbers.tolist(), turned.tolist(), lines, strict=True):
                if number >= 0 and line[1].second_better is None and len(unreadable) < EXAMPLES:
                    unreadable.append(line)
                elif number in wanted and line[1].said and not backwards:
                    said[number] = line[1].said
    return said, asked.both_answers(), unreadable


def _position_bias(asked: np.ndarray, margin: float) -> list[str]:
    """How much the order decides. asked: [J, 2], both in the question's own order."""
    codes = to_codes(asked, margin)
    flips = float(((codes[:, 0] != codes[:, 1]) & (codes < Preference.TIE).all(-1)).mean())
    changes = float((codes[:, 0] != codes[:, 1]).mean())
    shown_first = float((1 - asked[:, 0]).mean() / 2 + asked[:, 1].mean() / 2)
    return [
        "<h2>Position bias</h2>",
        tiles(
            [
                (f"{len(asked):,}", "questions answered in both orders"),
                (f"{flips:.1%}", "turn round with the order"),
                (f"{changes:.1%}", "change at all, ties counted"),
                (f"{shown_first:.1%}", "for what is shown first; 50% without bias"),
            ]
        ),
    ]


def _agreement(dataset: PairDataset, name: str, other: str) -> list[str]:
    """Two annotations side by side, where both know."""
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
                (f"{np.trace(counts[:2, :2]) / max(sided, 1):.1%}", "same side, where both take one"),
            ]
        ),
        table(head, rows, numbers=(1, 2, 3)),
    ]


def _subtitle(section: ConfigDict, logs: list[dict[str, object]]) -> str:
    words = [section.backend]
    models = sorted({str(log["model"]) for log in logs if log.get("model")})
    words += models or ([section.model] if section.model else [])
    if section.backend in MODELS:
        words += [f"mode {section.mode}"]
    words += [f"goal: {section.goal}", f"captions: {section.captions}"]
    return " · ".join(words)

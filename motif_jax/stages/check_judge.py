"""The stage check_judge: tests a judge on some questions of the dataset, before it labels all of them.

    python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/mine --stage=collect,check_judge \\
        --config.annotate.backend=model --config.annotate.model=smollm2 --config.annotate.mode=rate

The page is `workdir/check_judge/index.html`. A judge that is not good enough (docs/judges.md)
stops the stages that come after it.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.annotation.annotator import AskingCounts, Incomplete, Question
from motif_jax.annotation.backends import CaptionBackend, OpenBackend, open_judge, opened
from motif_jax.config.table import Flag, Number, Whole, value
from motif_jax.console import print_line
from motif_jax.files import write_whole
from motif_jax.pages.blocks import Block, Heading, Link, Paragraph, Span, Table, Text, Tiles, page
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.store import PairDataset, fingerprint
from motif_jax.run import Run
from motif_jax.stages import Stage, exclusive_lock
from motif_jax.stages.annotate import AnnotateConfig, check, make_backend, open_dataset
from motif_jax.stages.annotate.page import Share, find_rules, marked, share
from motif_jax.structs import UserError
from motif_jax.system.errors import Limits

STAGE_NAME = "check_judge"
FLAG = f"--config.{STAGE_NAME}"
FEWEST = 10  # questions that the rules decide as well, before agreement is told from chance
SHOWN = 12  # answers of each kind
TITLE = "The judge"  # of the report's part


@dataclass(frozen=True)
class CheckJudge:
    """A trial of the judge."""

    questions: int = value(256, Whole(20, 10**6), "maximum number of questions; no two share a message")
    agreement: float = value(0.8, Number(0, 1), "minimum agreement with the rules of the game, if it has rules")
    reversals: float = value(0.5, Number(0, 1), "maximum share of the pairs whose answer changes with their order")
    decided: float = value(0.1, Number(0, 1), "minimum share of the questions that are decided")
    anyway: bool = value(False, Flag(), "continue with a judge that fails these limits")


@dataclass(frozen=True)
class CheckJudgeConfig(AnnotateConfig):
    """The values that the stage reads."""

    check_judge: CheckJudge = CheckJudge()


def is_complete(config: CheckJudgeConfig, workdir: Path) -> bool:
    """Whether this judge was tested, and passed."""
    trial = Run(workdir).stage(STAGE_NAME, STAGE_NAME).read("trial", Trial)
    if trial is None or not (workdir / "dataset").is_dir():
        return False
    backend = make_backend(config, verdicts=True)
    is_same = trial.facts == metadata_of(backend, config, PairDataset(workdir / "dataset"))
    return is_same and (config.check_judge.anyway or not problem_of(trial, config.check_judge, backend.tie_margin))


# ---- the trial: questions of which no two show the same message, and what the answers to them show


@dataclass(frozen=True)
class Trial:
    """The results of the trial."""

    facts: Mapping[str, Any]  # of the judge
    read: Share  # questions with a verdict in both orders
    reversals: Share | None  # questions whose better caption changes with their order; None if there is no order
    decided: Share  # questions that are no ties
    agreement: Share | None  # with the rules, where both decide; None without rules for this goal
    margins: list[tuple[float, Share, Share]]  # the last two with other margins of ties


def metadata_of(backend: CaptionBackend, config: CheckJudgeConfig, dataset: PairDataset) -> dict[str, Any]:
    """Everything that the trial depends on, except its limits."""
    settings = {"captions": config.annotate.captions, "dataset": fingerprint(dataset)}
    return backend.identity() | backend.labelling() | settings | {"of": config.check_judge.questions}


def choose(questions: Questions, most: int, seed: int, by_rules: Callable[[Question], float]) -> list[Question]:
    """Draws questions of which no two show the same message, except that moments without a message may be repeated.

    Up to half of them are questions that the rules decide.
    """
    drawn = np.random.default_rng([seed, 49]).permutation(len(questions)).tolist()
    asked = [Question(*questions.text(number)) for number in drawn]
    chosen: list[Question] = []
    seen: set[str] = set()
    for which, limit in (([one for one in asked if by_rules(one) in (0.0, 1.0)], most // 2), (asked, most)):
        for question in which:
            if len(chosen) < limit and not seen & (shown := {str(one) for one in question if one}):
                seen |= shown
                chosen.append(question)
    return chosen


def measure(
    facts: Mapping[str, Any], yes: np.ndarray, turned: np.ndarray, rules: np.ndarray, margin: float,
    reversals: Share | None,
) -> Trial:  # fmt: skip
    """The results, from P(second is better) by each question, by it in the other order, and by the rules. [N]

    `margin`: answers this close to one half are ties. `reversals`: counted by the judge itself; None: from the answers,
    if the orders differ.
    """
    mean = (yes + turned) / 2
    read, has_rules = ~np.isnan(mean), not np.isnan(rules).all()
    decided_by_rules, right = ~np.isnan(rules) & (rules != 0.5), (mean > 0.5) == (rules > 0.5)
    if reversals is None and yes is not turned:
        sided = read & (yes != 0.5) & (turned != 0.5)
        reversals = share(((yes > 0.5) != (turned > 0.5))[sided])

    def beyond(margin: float) -> tuple[Share, Share]:
        decided = read & (np.abs(mean - 0.5) > margin)
        return share(decided[read]), share(right[decided & decided_by_rules])

    decided, agreement = beyond(margin)
    margins = [(one, *beyond(one)) for one in (0.0, 0.1, 0.2, 0.3, 0.4)] if has_rules else []
    return Trial(facts, share(read), reversals, decided, agreement if has_rules else None, margins)


def problem_of(trial: Trial, limits: CheckJudge, margin: float) -> str:
    """Why a judge with these results should not label a dataset, with advice; "" if it passes."""
    read, reversals, decided, agreement = trial.read, trial.reversals, trial.decided, trial.agreement
    better = (
        f"--config.annotate.tie_margin={wider}, "
        for wider, at, right in trial.margins
        if at.value >= limits.decided and right.value >= limits.agreement
    )
    advice = f"{next(better, '')}--config.annotate.mode=rate, .prompt_file, or a larger .model"
    if read.value < 0.5:
        return f"{1 - read.value:.0%} of its answers have no verdict (--config.annotate.prompt_file, .model, .mode)"
    if reversals and reversals.value > limits.reversals:
        return (
            f"the better caption of {reversals.value:.0%} of the pairs changes with their order: it names a place, and "
            "not a caption (--config.annotate.mode=rate, or another .model)"
        )
    if decided.value < limits.decided:
        return (
            f"it decides only {decided.value:.0%} of the questions, the others are ties (--config.annotate.tie_margin, "
            f"which is {margin:g}, or another .model)"
        )
    if not agreement or agreement.of < FEWEST:
        return ""
    if not agreement.low > 0.5:
        return f"its agreement with the rules is no better than chance, {agreement} ({advice})"
    if agreement.value < limits.agreement:
        return (
            f"it agrees with the rules in {agreement} of the questions, and {limits.agreement:.0%} are needed "
            f"({advice}; {FLAG}.agreement)"
        )
    return ""


# ---- asking


def run(config: CheckJudgeConfig, workdir: Path, open_backend: OpenBackend = opened) -> None:
    """Asks the questions, writes the page, and raises UserError if the judge is not good enough."""
    section, limits = config.annotate, config.check_judge
    backend, dataset = make_backend(config, verdicts=True), open_dataset(workdir)
    by_rules = find_rules(backend)
    asked = choose(Questions(dataset, section.captions), limits.questions, config.seed, by_rules)
    started, ordered = time.monotonic(), backend.both_orders > 0
    print_line(f"{STAGE_NAME}: {len(asked):,} questions of which no two show the same message")
    # A model in this process that compares pairs counts its reversals, those of cached answers are not known.
    cache_dir = None if section.mode == "score" and not ordered else section.cache_dir
    yes_of: dict[Question, float | None] = {}
    with contextlib.closing(open_judge(backend, cache_dir, AskingCounts(STAGE_NAME), open_backend)) as asking:
        try:
            both = [*asked, *(question.turned for question in asked if ordered)]
            asking.ask(both, lambda one: yes_of.update({one.question: one.answer.yes}))
        except Incomplete as stopped:
            raise UserError(f"{stopped}; the same command asks again") from None
        judge = asking.annotator
    yes = np.array([yes_of[one] for one in asked], np.float64)  # None is NaN
    turned = 1 - np.array([yes_of[one.turned] for one in asked], np.float64) if ordered else yes
    rules, pairs = np.array([by_rules(one) for one in asked]), getattr(judge, "pairs", 0)
    counted = share(np.arange(pairs) < judge.reversed) if pairs else None  # type: ignore[attr-defined]
    facts = metadata_of(backend, config, dataset)
    trial = measure(facts, yes, turned, rules, backend.tie_margin, counted)
    problem = problem_of(trial, limits, backend.tie_margin)
    figures = [*_figures(trial), (f"{time.monotonic() - started:,.0f} s", "for this trial")]

    with Run(workdir).stage(STAGE_NAME, STAGE_NAME) as stage:
        stage.bind(config)
        words = (section.backend, judge.model, f"mode {section.mode}", section.goal)
        verdict = f"Not good enough: {problem}" if problem else "Nothing speaks against this judge"
        head = Paragraph(" · ".join(filter(None, words)), "soft"), Paragraph(Span(f"{verdict}.")), Tiles(figures)
        body = [Heading("What is this judge worth?", 1), *head, *_details(trial, asked, yes, rules)]
        write_whole(stage.path / "index.html", page(f"The judge {judge.model or section.backend}", body))
        link = Paragraph(Link("details", "../check_judge/index.html"), "soft")
        stage.section(TITLE, *head, link)
        stage.report()
        stage.write("trial", trial)  # last: it marks a complete stage
    lines = [f"{figure} {what}" for figure, what in figures]
    if not trial.agreement:
        lines.append("there are no rules for this goal to compare it with")
    for line in (*lines, stage.path / "index.html"):
        print_line(f"{STAGE_NAME}: {line}")
    if problem and not limits.anyway:
        raise UserError(f"this judge is not good enough: {problem}; to continue nevertheless: {FLAG}.anyway=True")


# ---- the page


def _figures(trial: Trial) -> list[tuple[str, str]]:
    shares = [
        (trial.decided, "of {:,} questions are decided; the others are ties"),
        (trial.agreement, "of {:,} are decided as by the rules; chance is 50%"),
        (trial.reversals, "change with the order of the two captions"),
        (trial.read if trial.read.value < 1 else None, "of the answers have a verdict"),
    ]
    return [(str(part), what.format(part.of)) for part, what in shares if part]


def _details(trial: Trial, asked: list[Question], yes: np.ndarray, rules: np.ndarray) -> list[Block]:
    """The results by margin, and the surest answers, those that the rules contradict first. [N]"""
    body, tables = list[Block](), {"Surest answers": ~np.isnan(yes)}
    if trial.margins:
        rows = [[f"{margin:g}", str(decided), str(agreement)] for margin, decided, agreement in trial.margins]
        body += [
            Heading("Is it right where it is sure?", 2),
            Paragraph("Answers as close as this to one half are ties: --config.annotate.tie_margin.", "soft"),
            Table(("tie_margin", "decided", "as by the rules"), rows, numbers=(1, 2), kind="fits"),
        ]
        tables = {"Surest answers that the rules contradict": (yes - 0.5) * (rules - 0.5) < 0} | tables
    surest = np.argsort(-np.abs(yes - 0.5), kind="stable")
    for title, which in tables.items():
        captions = list[list[Text]]()
        for at in surest[which[surest]][:SHOWN].tolist():
            first, second = asked[at].first, str(asked[at].second)
            by_rules = {-1.0: "first", 0.0: "tie", 1.0: "second"}.get(float(np.sign(rules[at] - 0.5)), "–")  # NaN: none
            captions.append([*marked((first, second), int(yes[at] >= 0.5)), f"{yes[at]:.2f}", by_rules])
        if captions:
            columns = ("first", "second", "P(second is better)", "by the rules")
            body += [Heading(title, 2), Table(columns, captions, numbers=(2,))]
    return body


STAGE = Stage(
    name=STAGE_NAME,
    sections=(STAGE_NAME,),
    config=CheckJudgeConfig,
    folders=lambda config, workdir: [],  # each trial is made anew
    check=functools.partial(check, of_captions=True),
    is_complete=is_complete,
    run=run,
    lock=exclusive_lock,
    limits=Limits("--config.annotate.cache_dir", "--config.annotate.batch_size"),
)

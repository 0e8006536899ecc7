"""The stage check_judge: tests a judge on some questions of the dataset, before it labels all of them.

    python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/mine --stage=collect,check_judge \\
        --config.annotate.backend=model --config.annotate.model=smollm2 --config.annotate.mode=rate

The page is `workdir/check_judge/index.html`. A judge that is not good enough (docs/judges.md)
stops the stages that come after it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.annotation.annotator import Answered, AskingCounts, Incomplete, Question
from motif_jax.annotation.backends import CaptionBackend, Lexicon, OpenBackend, open_judge, opened
from motif_jax.annotation.section import AnnotateSection
from motif_jax.config.table import Flag, Number, Whole, value
from motif_jax.console import print_line
from motif_jax.files import write_whole
from motif_jax.pages.blocks import esc, page, table, tiles
from motif_jax.preferences.questions import Questions
from motif_jax.preferences.store import PairDataset, fingerprint
from motif_jax.rewards.statistics import share_interval
from motif_jax.run import Run, StageRun
from motif_jax.stages import Stage
from motif_jax.stages.annotate import AnnotateConfig, check, make_backend, marked, open_dataset
from motif_jax.structs import UserError

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
    backend = make_backend(config, verdicts=True)
    assert isinstance(backend, CaptionBackend)
    if trial is None or not (workdir / "dataset").is_dir():
        return False
    is_same = trial.facts == metadata_of(backend, config, PairDataset(workdir / "dataset"))
    limits = config.check_judge
    return is_same and (limits.anyway or not problem_of(vars(trial), limits, backend.tie_margin))


# ---- the trial: questions of which no two show the same message, and the answers to them


@dataclass(frozen=True)
class Answer:
    """A question with the judge's answer, and that of the rules."""

    first: str
    second: str
    yes: float  # P(second is better), NaN without a verdict
    turned: float  # the same by the question in the other order
    rules: float  # the same by the rules, NaN without rules for the goal


@dataclass(frozen=True)
class Share:
    """A share of some answers, with its interval; NaN if there are none."""

    value: float
    low: float
    high: float
    of: int


@dataclass(frozen=True)
class Trial:
    """The results of the trial."""

    facts: Mapping[str, Any]  # of the judge
    model: str  # its full name
    seconds: float
    answers: list[Answer]
    read: Share  # questions with a verdict in both orders
    reversals: Share | None  # questions whose better caption changes with their order; None if there is no order
    decided: Share  # questions that are no ties
    agreement: Share | None  # with the rules, where both decide; None without rules for this goal
    margins: list[tuple[float, Share, Share]]  # the last two with other margins of ties
    problem: str  # why the judge fails; "" if it passes


def metadata_of(backend: CaptionBackend, config: CheckJudgeConfig, dataset: PairDataset) -> dict[str, Any]:
    """Everything that the trial depends on, except its limits."""
    settings = {"captions": config.annotate.captions, "dataset": fingerprint(dataset)}
    return backend.flat_metadata() | backend.labelling() | settings | {"of": config.check_judge.questions}


def share(right: np.ndarray) -> Share:
    """The share of True. [N] bool"""
    if not len(right):
        return Share(float("nan"), 0.0, 1.0, 0)
    return Share(float(right.mean()), *share_interval(float(right.mean()), len(right)), len(right))


def choose(questions: Questions, most: int, seed: int, is_decided: Callable[[Question], bool]) -> list[Question]:
    """Draws questions of which no two show the same message, except that moments without a message may be repeated.

    `is_decided`: whether the rules decide a question. Up to half of the drawn questions are such.
    """
    drawn = np.random.default_rng([seed, 49]).permutation(len(questions)).tolist()
    asked = [Question(*questions.text(number)) for number in drawn]
    chosen: list[Question] = []
    seen: set[str] = set()
    for which, limit in (([one for one in asked if is_decided(one)], most // 2), (asked, most)):
        for question in which:
            if len(chosen) < limit and not seen & (shown := {str(one) for one in question if one}):
                seen |= shown
                chosen.append(question)
    return chosen


def measure(answers: list[Answer], margin: float, ordered: bool) -> dict[str, Any]:
    """The figures of `Trial`. `margin`: answers this close to one half are ties; `ordered`: whether orders differ."""
    own, turned, rules = (np.array([getattr(one, name) for one in answers]) for name in ("yes", "turned", "rules"))
    mean = (own + turned) / 2
    read = ~np.isnan(mean)
    sided = read & (own != 0.5) & (turned != 0.5)
    decided_by_rules, right = ~np.isnan(rules) & (rules != 0.5), (mean > 0.5) == (rules > 0.5)

    def beyond(margin: float) -> tuple[Share, Share]:
        decided = read & (np.abs(mean - 0.5) > margin)
        return share(decided[read]), share(right[decided & decided_by_rules])

    decided, agreement = beyond(margin)
    has_rules = not np.isnan(rules).all()
    return {
        "read": share(read),
        "reversals": share(((own > 0.5) != (turned > 0.5))[sided]) if ordered else None,
        "decided": decided,
        "agreement": agreement if has_rules else None,
        "margins": [(one, *beyond(one)) for one in (0.0, 0.1, 0.2, 0.3, 0.4)] if has_rules else [],
    }


def problem_of(figures: Mapping[str, Any], limits: CheckJudge, margin: float) -> str:
    """Why a judge with these figures should not label a dataset, with advice; "" if it passes."""
    read, reversals, decided, agreement = (figures[name] for name in ("read", "reversals", "decided", "agreement"))
    better = (
        f"--config.annotate.tie_margin={wider}, "
        for wider, at, right in figures["margins"]
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
        return f"its agreement with the rules is no better than chance, {percent(agreement)} ({advice})"
    if agreement.value < limits.agreement:
        return (
            f"it agrees with the rules in {percent(agreement)} of the questions, and {limits.agreement:.0%} are needed "
            f"({advice}; {FLAG}.agreement)"
        )
    return ""


def percent(part: Share) -> str:
    """A share with its interval."""
    return f"{part.value:.0%} [{part.low:.0%}, {part.high:.0%}]" if part.of else "none"


# ---- asking


def run(config: CheckJudgeConfig, workdir: Path, open_backend: OpenBackend = opened) -> None:
    """Asks the questions, writes the page, and raises UserError if the judge is not good enough."""
    section, limits = config.annotate, config.check_judge
    backend = make_backend(config, verdicts=True)
    assert isinstance(backend, CaptionBackend)
    by_rules, dataset = find_rules(backend), open_dataset(workdir)
    questions = Questions(dataset, section.captions)
    asked = choose(questions, limits.questions, config.seed, lambda question: by_rules(question) in (0.0, 1.0))
    counts, started = AskingCounts(STAGE_NAME), time.monotonic()
    print_line(f"{STAGE_NAME}: {len(asked):,} questions of which no two show the same message")
    ordered = backend.both_orders > 0
    # A model in this process that compares pairs counts its reversals, those of cached answers are not known.
    cache_dir = None if section.mode == "score" and not ordered else section.cache_dir
    yes_of: dict[Question, float] = {}

    def take(answered: Answered) -> None:
        yes = answered.answer.yes
        yes_of[answered.question] = float("nan") if yes is None else yes

    with contextlib.closing(open_judge(backend, cache_dir, counts, open_backend)) as asking:
        try:
            asking.ask([*asked, *(question.turned for question in asked if ordered)], take)
        except Incomplete as stopped:
            raise UserError(f"{stopped}; the same command asks again") from None
        judge = asking.annotator
    answers = []
    for one in asked:
        turned = 1 - yes_of[one.turned] if ordered else yes_of[one]
        answers.append(Answer(one.first, str(one.second), yes_of[one], turned, by_rules(one)))
    figures = measure(answers, backend.tie_margin, ordered)
    if pairs := getattr(judge, "pairs", 0):  # a model in this process asks in both orders by itself
        figures["reversals"] = share(np.arange(pairs) < judge.reversed)  # type: ignore[attr-defined]
    problem = problem_of(figures, limits, backend.tie_margin)
    seconds = round(time.monotonic() - started, 1)
    trial = Trial(metadata_of(backend, config, dataset), judge.model, seconds, answers, problem=problem, **figures)

    with Run(workdir).stage(STAGE_NAME, STAGE_NAME) as stage:
        stage.bind(config)
        page = write_page(stage, trial, section)
        stage.write("trial", trial)  # last: it marks a complete stage
    for share_or_time, what in _figures(trial):
        print_line(f"{STAGE_NAME}: {share_or_time} {what}")
    if not trial.agreement:
        print_line(f"{STAGE_NAME}: there are no rules for this goal to compare it with")
    print_line(f"{STAGE_NAME}: {page}")
    if problem and not limits.anyway:
        raise UserError(f"this judge is not good enough: {problem}; to continue nevertheless: {FLAG}.anyway=True")


def find_rules(backend: CaptionBackend) -> Callable[[Question], float]:
    """P(second is better) by the rules of the game; NaN if it has none for this goal."""
    try:
        rules = Lexicon(backend.texts, backend.section.goal)
    except UserError:
        return lambda question: float("nan")
    return lambda question: float(rules.answer(question).yes or 0.0)


# ---- the page


def write_page(stage: StageRun, trial: Trial, section: AnnotateSection) -> Path:
    """Writes `check_judge/index.html`, and the report's part."""
    name = " · ".join(filter(None, (section.backend, trial.model, f"mode {section.mode}", section.goal)))
    verdict = f"Not good enough: {trial.problem}" if trial.problem else "Nothing speaks against this judge"
    head = [f'<p class="soft">{esc(name)}</p>', f"<p><b>{esc(verdict)}.</b></p>", tiles(_figures(trial))]
    body = ["<h1>What is this judge worth?</h1>", *head]
    if trial.margins:
        rows = [[f"{margin:g}", percent(decided), percent(agreement)] for margin, decided, agreement in trial.margins]
        body += [
            "<h2>Is it right where it is sure?</h2>",
            '<p class="soft">Answers as close as this to one half are ties: --config.annotate.tie_margin.</p>',
            table(("tie_margin", "decided", "as by the rules"), rows, numbers=(1, 2), kind="fits"),
        ]
        wrong = [one for one in trial.answers if (one.yes - 0.5) * (one.rules - 0.5) < 0]
        body += _examples("Surest answers that the rules contradict", wrong)
    body += _examples("Surest answers", trial.answers)
    path = stage.path / "index.html"
    write_whole(path, page(f"The judge {trial.model or section.backend}", body))
    stage.section(TITLE, *head, '<p class="soft"><a href="../check_judge/index.html">details</a></p>')
    stage.report()
    return path


def _figures(trial: Trial) -> list[tuple[str, str]]:
    shares = [
        (trial.decided, "of {:,} questions are decided; the others are ties"),
        (trial.agreement, "of {:,} are decided as by the rules; chance is 50%"),
        (trial.reversals, "change with the order of the two captions"),
        (trial.read if trial.read.value < 1 else None, "of the answers have a verdict"),
    ]
    figures = [(percent(part), what.format(part.of)) for part, what in shares if part]
    return [*figures, (f"{trial.seconds:,.0f} s", "for this trial")]


def _examples(title: str, answers: list[Answer]) -> list[str]:
    read = [one for one in answers if not np.isnan(one.yes)]
    rows = []
    for one in sorted(read, key=lambda one: -abs(one.yes - 0.5))[:SHOWN]:
        captions = marked((one.first, one.second), int(one.yes >= 0.5))
        rules = {-1.0: "first", 0.0: "tie", 1.0: "second"}.get(float(np.sign(one.rules - 0.5)), "–")  # NaN: none
        rows.append([*captions, f"{one.yes:.2f}", rules])
    head = ("first", "second", "P(second is better)", "by the rules")
    return [f"<h2>{title}</h2>", table(head, rows, numbers=(2,))] if rows else []


STAGE = Stage(
    config=CheckJudgeConfig,
    sections=(STAGE_NAME,),
    check=lambda config: check(config, of_captions=True),
    is_complete=is_complete,
    run=run,
    writes="--config.annotate.cache_dir",
    memory="--config.annotate.batch_size",
    loads_jax=lambda config: False,  # a language model in this process loads it when it is opened
)

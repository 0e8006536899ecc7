"""The stage audit: looks for defects of the learnt reward, and reports them, worst first.

It plays the evaluated episodes back to see which captions were paid for, asks the judge of the annotation how much
these are worth and how consistent it is (bounded questions, past the answer cache), and shows it pairs of whole
episodes. The findings are in `workdir/audit/audit.json` and in the report. The checks are in the room `audit`.
This module is quick to import; job.py audits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import motif_jax
from motif_jax.annotation.annotator import Answered, AskingCounts, Incomplete, Question
from motif_jax.annotation.backends import OpenBackend, find_backend, open_judge, opened
from motif_jax.annotation.section import AnnotateSection
from motif_jax.audit.judge import JudgeAnswers, JudgePlan, describe
from motif_jax.config.table import PATH, Whole, flatten, shown, value
from motif_jax.console import print_line
from motif_jax.devices.releases import needs_saved, saved_facts
from motif_jax.envs.texts import texts_of
from motif_jax.envs.worlds import check_world
from motif_jax.files import write_json
from motif_jax.pages.figures import SUMMARIES, Player
from motif_jax.run import Run
from motif_jax.stages import Stage, annotate, later
from motif_jax.stages.annotate import AnnotateConfig, make_backend
from motif_jax.stages.evaluate import SUMMARY, EvaluateConfig, read_json
from motif_jax.structs import Need, UserError, naming
from motif_jax.system.metrics import Progress

# Asks the judges the questions of an audit, each round as one stream; answers that a killed run had are kept.

WRITE_EVERY_S = 30.0
UNREADABLE = -1.0  # an answer without a verdict
SECOND = "--config.audit.second_judge"
RULES, MODEL = "rules", "model:"  # the second judge; the model's name follows


def ask(
    config: AnnotateConfig, plan: JudgePlan, file: Path, open_backend: OpenBackend = opened, stage: str = "audit"
) -> JudgeAnswers:
    """The answers to all questions, and to the repeats after them. The answer cache is not used."""
    count, texts = len(plan.questions), plan.questions + plan.repeated
    if not texts:
        return JudgeAnswers(np.zeros(0), np.zeros(0))
    backend = make_backend(config, verdicts=True)
    with contextlib.closing(open_judge(backend, None, AskingCounts(stage), open_backend)) as asking:
        metadata = backend.identity() | {"model": asking.annotator.model}
        stamp = hashlib.sha256(json.dumps([texts, metadata], sort_keys=True).encode()).hexdigest()
        kept, kept_s = read_json(file) or {}, time.monotonic()
        earlier = kept["answers"] if kept.get("stamp") == stamp else [None] * len(texts)
        yes_of = np.array(earlier, np.float64)  # NaN without an answer
        done = int((~np.isnan(yes_of)).sum())
        print_line(f"{stage}: asks {describe(plan, backend.rates)}; {done:,} are answered")
        progress = Progress(stage, len(texts), "answers", done)
        due: dict[Question, int] = {}

        def take(answered: Answered) -> None:
            nonlocal kept_s, done
            if not answered.answer.refused:
                yes = answered.answer.yes
                yes_of[due[answered.question]] = UNREADABLE if yes is None else yes
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
    yes_of[yes_of == UNREADABLE] = np.nan
    return JudgeAnswers(yes_of[:count], yes_of[count:], len(texts) - done)


def second_section(first: AnnotateSection, named: str) -> AnnotateSection:
    """The section `annotate` of the second judge, with the first one's goal; raises UserError for an unknown judge."""
    model = named.removeprefix(MODEL)
    if named != RULES and model in ("", named):
        raise UserError(f"the second judge is rules or model:NAME, not {shown(named)} ({SECOND})")
    same: dict[str, Any] = {"goal": first.goal, "lexicon": first.lexicon, "system_role": first.system_role}
    if named == RULES:
        return AnnotateSection(backend="lexicon", **same)
    return AnnotateSection(backend="model", model=model, mode="rate", **same)


def second_config(config: AuditConfig) -> AnnotateConfig:
    """What the second judge is made from."""
    second = second_section(config.annotate, config.audit.second_judge)
    return AnnotateConfig(seed=config.seed, env=config.env, annotate=second)


def check_second(config: AuditConfig) -> None:
    """Raises UserError for a second judge that cannot work, or that is the first."""
    if not (named := config.audit.second_judge):
        return
    first, second = config.annotate, second_config(config)
    alike = [(one.backend, one.model, one.mode) for one in (first, second.annotate)]
    if alike[0] == alike[1] or (named == RULES and find_backend(first).by_rules):
        raise UserError(f"the judge {first.backend!r} is the second judge, {shown(named)}: name another ({SECOND})")
    with naming(SECOND):
        annotate.check(second)


def ask_second(config: AuditConfig, plan: JudgePlan, file: Path) -> tuple[str, np.ndarray] | str:
    """The second judge, and its answers about the first one's pairs in both orders; or the reason for their lack."""
    if not (named := config.audit.second_judge):
        return "no second judge is named"
    if not len(plan.pairs):
        return "there are no pairs of captions to ask about"
    own, questions = JudgePlan(), plan.questions
    own.flips = own.both(questions[at] for at in plan.flips[:, 0])
    answers = ask(second_config(config), own, file, stage="audit, second judge")
    return named, answers.mean(own.flips)


FOLDER, FILE = "audit", "audit"
RANDOM = "random"


@dataclass(frozen=True)
class AuditSection:
    """Is the reward right?"""

    steps: int = value(100_000, Whole(1, 10**9), "maximum steps to audit, of the agent's episodes and of random play's")
    flips: int = value(400, Whole(0, 100_000), "pairs of captions that the judge is asked about in both orders")
    triples: int = value(300, Whole(0, 100_000), "triples of captions, three questions each")
    repeats: int = value(200, Whole(0, 100_000), "questions to ask a second time, without the answer cache")
    wholes: int = value(
        40, Whole(0, 100_000), "pairs of whole episodes, of the agent and of random play, in both orders"
    )
    second_reward_dir: str = value(
        "", PATH, "workdir or checkpoints of a reward learnt with another seed; inversions count only if both have them"
    )
    second_judge: str = value(
        "",
        PATH,
        "a second opinion on captions: rules, or model:NAME, a model in this process that rates",
    )
    trajectories: str = value(
        "", PATH, "audit this file of another program's trajectories (docs/trajectories.md), not the workdir's agent"
    )


@dataclass(frozen=True)
class AuditConfig(EvaluateConfig, AnnotateConfig):
    """The values that the stage reads."""

    audit: AuditSection = AuditSection()


def check(config: AuditConfig) -> None:
    """Raises UserError for values that cannot work."""
    if file := config.audit.trajectories:
        if not Path(file).is_file():
            raise UserError(f"there is no file {file!r} (--config.audit.trajectories)")
        if config.audit.second_reward_dir or config.audit.second_judge:
            flags = "--config.audit.trajectories, .second_reward_dir, .second_judge"
            raise UserError(f"a file of trajectories is audited alone, without a second reward or judge ({flags})")
        return
    check_world(config.by_protocol().env)
    annotate.check(config)
    check_second(config)


def needs(config: AuditConfig, workdir: Path) -> Iterator[Need]:
    """The judges' files, and the rewards from elsewhere."""
    section, policy = config.audit, config.policy
    if section.trajectories:
        return
    yield from annotate.needs_of_judge(config)
    if section.second_judge:
        yield from annotate.needs_of_judge(second_config(config))
    yield from needs_saved(policy.reward_dir, "reward", "--config.policy.reward_dir", policy.reward_checkpoint)
    yield from needs_saved(section.second_reward_dir, "reward", "--config.audit.second_reward_dir")


def is_complete(config: AuditConfig, workdir: Path) -> bool:
    """Whether the audit was made from the results as they are now."""
    record = read_json(workdir / FOLDER / f"{FILE}.json")
    return record is not None and record.get("stamp") == stamp_of(config, workdir)


def find_players(workdir: Path) -> dict[str, Player]:
    """The `agent` to audit and `random` play in the same games, if they were evaluated.

    The agent is this workdir's own at its latest checkpoint, else another policy, else a scripted player, else random
    play itself; the whole policy rather than one of its options, and rather than its greedy play.
    """
    every = [one._replace(name=name) for name, one in Run(workdir).read_each(SUMMARIES, Player).items()]
    every = [one for one in every if not one.protocol and not one.decoding]
    every.sort(
        key=lambda one: (
            one.path == ".", bool(one.path), one.name != RANDOM, one.step, not one.option, not one.greedy
        )
    )  # fmt: skip
    return ({"agent": every[-1]} if every else {}) | {one.name: one for one in every if one.name == RANDOM}


def stamp_of(config: AuditConfig, workdir: Path) -> str:
    """A checksum of everything that the audit is made from."""
    judge = flatten(asdict(config.annotate))
    decisive = {name: judge[name] for name, known in STAGE.reads["annotate"].items() if known.decides}
    reward = [getattr(config.policy, name) for name in ("reward_dir", "reward_checkpoint", "reference_alignment")]
    rules = texts_of(config.env, config.annotate.lexicon).rules().version
    values = [asdict(config.audit), config.seed, reward, decisive, rules, motif_jax.__version__]
    if not config.audit.trajectories:  # of those, no judge is asked
        second = [second_config(config)] if config.audit.second_judge else []
        values.append([make_backend(one, verdicts=True).identity() for one in (config, *second)])
    checksum = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    files = [workdir / "evaluate" / one.name / SUMMARY for one in find_players(workdir).values()]
    files += [workdir / "reward" / "statistics.json", *sorted((workdir / "annotations").glob("*/merged.json"))]
    for other in filter(None, (config.policy.reward_dir, config.audit.second_reward_dir)):
        files += saved_facts(Path(other), "reward")
    if config.audit.trajectories:
        status = Path(config.audit.trajectories).stat()
        checksum.update(f"{status.st_size} {status.st_mtime_ns}".encode())
    for file in files:
        checksum.update(file.read_bytes() if file.is_file() else b"-")
    return checksum.hexdigest()


STAGE = Stage(
    config=AuditConfig,
    sections=("audit",),
    check=check,
    needs=needs,
    is_complete=is_complete,
    run=later("motif_jax.stages.audit.job:run"),
    writes="--config.audit.flips, .triples",
    memory="--config.audit.steps",
    loads_jax=lambda config: not config.audit.trajectories,
)

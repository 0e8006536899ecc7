"""The stage audit: looks for defects of the learnt reward, and reports them, worst first.

It plays the evaluated episodes back to see which captions were paid for, asks the judge of the annotation how much
these are worth and how consistent it is (bounded questions, past the answer cache), and shows it pairs of whole
episodes. The findings are in `workdir/audit/audit.json` and in the report. This module is quick to
import; job.py audits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import motif_jax
from motif_jax.annotation.backends import find_backend, opened
from motif_jax.annotation.section import AnnotateSection
from motif_jax.config.table import flatten, shown
from motif_jax.contrib.audit.judge import JudgePlan
from motif_jax.contrib.audit.sections import AuditSection
from motif_jax.devices.releases import needs_saved, saved_facts
from motif_jax.envs.texts import texts_of
from motif_jax.envs.worlds import check_world
from motif_jax.pages.figures import Player
from motif_jax.pages.players import EPISODES, SUMMARY, read_players
from motif_jax.stages import Stage, annotate, exclusive_lock, later
from motif_jax.stages.annotate import AnnotateConfig, ask_pairs, make_backend
from motif_jax.stages.evaluate import EvaluateConfig, read_json
from motif_jax.structs import Need, UserError, naming
from motif_jax.system.errors import Limits

SECOND = "--config.audit.second_judge"
RULES, MODEL = "rules", "model:"  # the second judge; the model's name follows


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


def check_second(config: AuditConfig, workdir: Path) -> None:
    """Raises UserError for a second judge that cannot work, or that is the first."""
    if not (named := config.audit.second_judge):
        return
    first, second = config.annotate, second_config(config)
    alike = [(one.backend, one.model, one.mode) for one in (first, second.annotate)]
    if alike[0] == alike[1] or (named == RULES and find_backend(first).by_rules):
        raise UserError(f"the judge {first.backend!r} is the second judge, {shown(named)}: name another ({SECOND})")
    with naming(SECOND):
        annotate.check(second, workdir)


def ask_second(config: AuditConfig, plan: JudgePlan, file: Path) -> tuple[str, np.ndarray] | str:
    """The second judge, and its answers about the first one's pairs in both orders; or the reason for their lack."""
    if not (named := config.audit.second_judge):
        return "no second judge is named"
    if not len(plan.pairs):
        return "there are no pairs of captions to ask about"
    own, questions = JudgePlan(), plan.questions
    own.flips = own.both(questions[at] for at in plan.flips[:, 0])
    answers = ask_pairs(second_config(config), own, file, opened, "audit, second judge")
    return named, answers.mean(own.flips)


FOLDER, FILE = "audit", "audit"
TITLE = "The audit"  # of the part of the report
RANDOM = "random"


@dataclass(frozen=True)
class AuditConfig(EvaluateConfig, AnnotateConfig):
    """The values that the stage reads."""

    @property
    def audit(self) -> AuditSection:
        section: AuditSection = self.plugins["audit"]
        return section


def check(config: AuditConfig, workdir: Path) -> Iterator[Need]:
    """Raises UserError for values that cannot work; returns what is needed."""
    if file := config.audit.trajectories:
        if not Path(file).is_file():
            raise UserError(f"there is no file {file!r} (--config.audit.trajectories)")
        if config.audit.second_reward_dir or config.audit.second_judge:
            flags = "--config.audit.trajectories, .second_reward_dir, .second_judge"
            raise UserError(f"a file of trajectories is audited alone, without a second reward or judge ({flags})")
        return iter(())
    check_world(config.by_protocol().env)
    annotate.check(config, workdir)
    check_second(config, workdir)
    return needs(config)


def needs(config: AuditConfig) -> Iterator[Need]:
    """The judges' files, and the rewards from elsewhere."""
    section, policy = config.audit, config.policy
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
    play itself; the whole policy rather than a variant, and rather than its greedy play.
    """
    every = [one._replace(name=name) for name, one in read_players(workdir).items()]
    every = [one for one in every if not one.protocol and not one.decoding]
    every.sort(
        key=lambda one: (
            one.path == ".", bool(one.path), one.name != RANDOM, one.step, not one.variant, not one.greedy
        )
    )  # fmt: skip
    return ({"agent": every[-1]} if every else {}) | {one.name: one for one in every if one.name == RANDOM}


def stamp_of(config: AuditConfig, workdir: Path) -> str:
    """A checksum of everything that the audit is made from."""
    judge = flatten(asdict(config.annotate))
    decisive = {name: judge[name] for name, known in STAGE.reads["annotate"].items() if known.decides}
    reward = [getattr(config.policy, name) for name in ("reward_dir", "reward_checkpoint", "reference_alignment")]
    rules = texts_of(config.env, config.annotate.lexicon).rules().version
    section = asdict(replace(config.audit, every_steps=0))  # of audits during training
    values = [section, config.seed, reward, decisive, rules, motif_jax.__version__]
    if not config.audit.trajectories:  # of those, no judge is asked
        second = [second_config(config)] if config.audit.second_judge else []
        values.append([make_backend(one, verdicts=True).identity() for one in (config, *second)])
    checksum = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    players = find_players(workdir).values()
    files = [workdir / "evaluate" / one.name / name for one in players for name in (SUMMARY, EPISODES)]
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
    name="audit",
    sections=(),
    config=AuditConfig,
    folders=lambda config, workdir: [],  # each audit is made anew
    check=check,
    is_complete=is_complete,
    run=later("motif_jax.contrib.audit.job:run"),
    lock=exclusive_lock,
    limits=Limits("--config.audit.flips, .triples", "--config.audit.steps"),
)

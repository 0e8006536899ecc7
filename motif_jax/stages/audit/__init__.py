"""The stage audit: looks for defects of the learnt reward, and reports them, worst first.

It plays the evaluated episodes back to see which captions were paid for, asks the judge of the annotation how much
these are worth and how consistent it is (bounded questions, past the answer cache), and shows it pairs of whole
episodes. The findings are in `workdir/audit/audit.json` and in the report. The checks are in the room `audit`.
This module is quick to import; job.py audits.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import motif_jax
from motif_jax.config.table import PATH, Text, Whole, flatten, value
from motif_jax.envs.texts import texts_of
from motif_jax.envs.worlds import check_world
from motif_jax.pages.players import SUMMARIES, Player
from motif_jax.run import Run
from motif_jax.stages import Stage, later
from motif_jax.stages.annotate.setup import AnnotateConfig, check_section
from motif_jax.stages.audit.asking import check_second
from motif_jax.stages.evaluate.contenders import EvaluateConfig
from motif_jax.stages.evaluate.summary import SUMMARY, read_json
from motif_jax.structs import UserError

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
        Text(longest=4000, piece=255, between="/"),
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
        return
    check_world(config.by_protocol().env)
    check_section(config.annotate, texts_of(config.env, config.annotate.lexicon))
    check_second(config, config.audit.second_judge)
    if (second := config.audit.second_reward_dir) and not Path(second).is_dir():
        raise UserError(f"there is no directory {second!r} (--config.audit.second_reward_dir)")


def is_complete(config: AuditConfig, workdir: Path) -> bool:
    """Whether the audit was made from the results as they are now."""
    record = read_json(workdir / FOLDER / f"{FILE}.json")
    return record is not None and record.get("stamp") == stamp_of(config, workdir)


def find_players(workdir: Path) -> dict[str, Player]:
    """The `agent` to audit and `random` play in the same games, if they were evaluated.

    The agent is this workdir's own at its latest checkpoint, else another policy, else random play itself; the whole
    policy rather than one of its options, and rather than its greedy play.
    """
    every = [one._replace(name=name) for name, one in Run(workdir).read_each(SUMMARIES, Player).items()]
    every = [one for one in every if not one.protocol and not one.decoding]
    every.sort(key=lambda one: (one.path == ".", bool(one.path), one.step, not one.option, not one.greedy))
    return ({"agent": every[-1]} if every else {}) | {one.name: one for one in every if one.name == RANDOM}


def stamp_of(config: AuditConfig, workdir: Path) -> str:
    """A checksum of everything that the audit is made from."""
    judge = flatten(asdict(config.annotate))
    decisive = {name: judge[name] for name, known in STAGE.reads["annotate"].items() if known.decides}
    reward = [getattr(config.policy, name) for name in ("reward_dir", "reward_checkpoint", "reference_alignment")]
    values = [
        asdict(config.audit),
        config.seed,
        reward,
        decisive,
        texts_of(config.env, config.annotate.lexicon).rules().version,
        motif_jax.__version__,
    ]
    checksum = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    files = [workdir / "evaluate" / one.name / SUMMARY for one in find_players(workdir).values()]
    files += [workdir / "reward" / "statistics.json", *sorted((workdir / "annotations").glob("*/merged.json"))]
    files += [Path(second) / "reward" / "statistics.json"] if (second := config.audit.second_reward_dir) else []
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
    is_complete=is_complete,
    run=later("motif_jax.stages.audit.job:run"),
    writes="--config.audit.flips, .triples",
    memory="--config.audit.steps",
    loads_jax=lambda config: not config.audit.trajectories,
)

"""Audit: checks whether the learnt reward is right, and reports its defects, worst first.

It plays the evaluated episodes back to see which captions were paid for, asks the judge of the annotation how much
these are worth and how consistent it is (bounded questions, past the answer cache), and shows it pairs of whole
episodes. The findings are in `workdir/audit/audit.json` and in the report. The checks are in the room `audit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.annotation.backends import OpenBackend, opened
from motif_jax.config.table import PATH, Tables, Text, Whole, check_values, table_of, value
from motif_jax.console import print_line
from motif_jax.envs.protocols import by_protocol
from motif_jax.envs.texts import texts_of
from motif_jax.envs.worlds import check_world
from motif_jax.stages import Stage
from motif_jax.stages.annotate.setup import check_section
from motif_jax.stages.audit.asking import ask, ask_second, check_second
from motif_jax.stages.audit.record import FILE, find_players, record_of, stamp_of, tell
from motif_jax.stages.evaluate import READS as EVALUATION
from motif_jax.stages.evaluate.summary import read_json
from motif_jax.structs import UserError
from motif_jax.system.files import write_config, write_json


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


TABLES: Tables = {"audit": table_of(AuditSection)}
READS: Tables = EVALUATION | TABLES


def check(config: ConfigDict) -> None:
    """Raises UserError for values that cannot work."""
    check_values(config, READS)
    check_world(by_protocol(config).env)
    check_section(config.annotate, texts_of(config.env, config.annotate.lexicon))
    check_second(config)
    if (second := config.audit.second_reward_dir) and not Path(second).is_dir():
        raise UserError(f"there is no directory {second!r} (--config.audit.second_reward_dir)")


def is_complete(config: ConfigDict, workdir: Path) -> bool:
    """Whether the audit was made from the results as they are now."""
    record = read_json(workdir / "audit" / FILE)
    return record is not None and record.get("stamp") == stamp_of(config, workdir)


def run(config: ConfigDict, workdir: Path, open_backend: OpenBackend = opened) -> None:
    """Writes the findings to `workdir/audit`, and prints them. `open_backend` opens the judge, if there is one."""
    from motif_jax.audit.examine import examine, make_plan
    from motif_jax.audit.judge import QuestionLimits
    from motif_jax.stages.audit.inputs import gather, load_second

    second = load_second(config, workdir)
    section, stamp, players = config.audit, stamp_of(config, workdir), find_players(workdir)
    if not players and not (workdir / "reward").is_dir():
        raise UserError(
            f"there is nothing in {str(workdir)!r} to audit yet: run --stage=train_reward or --stage=evaluate first "
            "(--workdir)"
        )
    write_config(workdir / "audit", config)

    # ---- what is known, the questions, the answers
    evidence = gather(config, workdir, players, second)
    limits = QuestionLimits(section.flips, section.triples, section.repeats)
    plan = make_plan(evidence, limits, config.seed)
    answers = ask(config, plan, workdir / "audit" / "answers.json", open_backend)
    opinion = ask_second(config, plan, workdir / "audit" / "second.json")

    # ---- what they show
    record = record_of(config, workdir, players, evidence, examine(evidence, plan, answers, opinion))
    write_json(workdir / "audit" / FILE, record | {"stamp": "" if answers.refused else stamp})
    tell(record, workdir / "audit" / FILE)
    if answers.refused:
        print_line(f"audit: the server refused {answers.refused:,} questions; the same command asks them again")


STAGE = Stage(
    tables=TABLES,
    reads=READS,
    check=check,
    is_complete=is_complete,
    run=run,
    makes=("audit",),
    writes="--config.audit.flips, .triples",
    memory="--config.audit.steps",
)

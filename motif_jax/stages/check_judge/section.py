"""The config of the stage."""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import Flag, Number, Tables, Whole, tables_of, value
from motif_jax.stages.annotate.setup import AnnotateConfig

STAGE_NAME = "check_judge"
FLAG = f"--config.{STAGE_NAME}"


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
    """What the stage reads."""

    check_judge: CheckJudge = CheckJudge()


READS = tables_of(CheckJudgeConfig)
TABLES: Tables = {STAGE_NAME: READS[STAGE_NAME]}

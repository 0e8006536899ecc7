"""Says what a judge is worth, before its labels cost anything: it asks some questions of the dataset twice.

    python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/mine --stage=collect,check_judge \\
        --config.annotate.backend=model --config.annotate.model=smollm2 --config.annotate.mode=rate

The page is `workdir/check_judge/index.html`. A judge that docs/judges.md would not train an agent with stops the stages
that come after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from motif_jax.annotation.backends import CaptionBackend, find_backend
from motif_jax.config.table import Flag, Number, Tables, Whole, tables_of, value
from motif_jax.envs.texts import texts_of
from motif_jax.run import SECTIONS, Run
from motif_jax.stages import Stage, later
from motif_jax.stages.annotate.setup import AnnotateConfig, check_section, make_backend
from motif_jax.structs import UserError

STAGE_NAME = "check_judge"
FLAG = f"--config.{STAGE_NAME}"


@dataclass(frozen=True)
class CheckJudge:
    """A trial of the judge."""

    questions: int = value(256, Whole(20, 10**6), "most questions, no two of them about the same message")
    agreement: float = value(0.75, Number(0, 1), "least agreement with the rules of the game, where it has rules")
    reversals: float = value(0.5, Number(0, 1), "most of the pairs whose better caption changes with their order")
    decided: float = value(0.1, Number(0, 1), "least share of the questions that are decided")
    anyway: bool = value(False, Flag(), "go on with a judge that is not good enough")


@dataclass(frozen=True)
class CheckJudgeConfig(AnnotateConfig):
    """What the stage reads."""

    check_judge: CheckJudge = CheckJudge()


READS = tables_of(CheckJudgeConfig)
TABLES: Tables = {STAGE_NAME: READS[STAGE_NAME]}


def check(config: CheckJudgeConfig) -> None:
    """Raises UserError for values that cannot work."""
    check_section(config.annotate, texts_of(config.env, config.annotate.lexicon))
    if not issubclass(find_backend(config.annotate), CaptionBackend):
        raise UserError(
            f"the annotator {config.annotate.backend!r} compares numbers of the game: there is no judge of captions to "
            "check (--config.annotate.backend)"
        )


def is_complete(config: CheckJudgeConfig, workdir: Path) -> bool:
    """Whether this judge was checked, and may go on."""
    from motif_jax.stages.check_judge.trial import Trial

    trial = Run(workdir).stage(STAGE_NAME, STAGE_NAME).read("trial", Trial)
    backend = make_backend(config)
    assert isinstance(backend, CaptionBackend)
    return trial is not None and trial.facts == backend.facts() and (config.check_judge.anyway or not trial.problem)


STAGE = Stage(
    config=CheckJudgeConfig,
    tables=TABLES,
    reads=READS,
    check=check,
    is_complete=is_complete,
    run=later(f"motif_jax.stages.{STAGE_NAME}.trial:run"),
    makes=(STAGE_NAME, SECTIONS),
    writes="--config.annotate.cache_dir",
    memory="--config.annotate.batch_size",
    loads_jax=lambda config: False,  # a language model in this process loads it when it is opened
)

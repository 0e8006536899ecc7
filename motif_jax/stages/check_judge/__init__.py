"""Says what a judge is worth, before its labels cost anything: it asks some questions of the dataset.

    python -m motif_jax.launch --config=configs/quickstart.py --workdir=runs/mine --stage=collect,check_judge \\
        --config.annotate.backend=model --config.annotate.model=smollm2 --config.annotate.mode=rate

The page is `workdir/check_judge/index.html`. A judge that is not good enough (docs/judges.md)
stops the stages that come after it.
"""

from __future__ import annotations

from pathlib import Path

from motif_jax.annotation.backends import CaptionBackend, find_backend
from motif_jax.envs.texts import texts_of
from motif_jax.preferences.store import PairDataset
from motif_jax.run import Run
from motif_jax.stages import Stage, later
from motif_jax.stages.annotate.setup import check_section, make_backend
from motif_jax.stages.check_judge.section import READS, STAGE_NAME, TABLES, CheckJudgeConfig
from motif_jax.stages.check_judge.trial import Trial, facts_of, problem_of
from motif_jax.structs import UserError


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
    trial = Run(workdir).stage(STAGE_NAME, STAGE_NAME).read("trial", Trial)
    backend = make_backend(config)
    assert isinstance(backend, CaptionBackend)
    if trial is None or not (workdir / "dataset").is_dir():
        return False
    if trial.facts != facts_of(backend, config, PairDataset(workdir / "dataset")):
        return False
    return config.check_judge.anyway or not problem_of(vars(trial), config.check_judge, backend.tie_margin)


STAGE = Stage(
    config=CheckJudgeConfig,
    tables=TABLES,
    reads=READS,
    check=check,
    is_complete=is_complete,
    run=later("motif_jax.stages.check_judge.job:run"),
    writes="--config.annotate.cache_dir",
    memory="--config.annotate.batch_size",
    loads_jax=lambda config: False,  # a language model in this process loads it when it is opened
)

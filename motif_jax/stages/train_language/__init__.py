"""The stage train_language: trains a language model on transcripts, to write the agent's texts.

Next-token training on the agent's tokens: behavioural cloning of a scripted player, of a trained agent, or of people.
The result is in `language/model`, in the Hugging Face layout: `motif_jax.load_language` and transformers read it.
This module is quick to import; model.py trains.
"""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import Text, value
from motif_jax.envs.babyai.manual import read_manual
from motif_jax.language.config import FOLDER, MODEL, check_model
from motif_jax.names import TRANSCRIPT_FORMATS, find
from motif_jax.offline.recipes import OfflineSection, check_learning
from motif_jax.stages import later, offline_stage
from motif_jax.stages.train_language.data import (
    MANUAL,
    TranscriptsConfig,
    check_origin,
    check_prompts,
    check_template,
    find_manuals,
)
from motif_jax.structs import UserError
from motif_jax.system.meeting import find_meeting


@dataclass(frozen=True)
class TrainLanguage:
    """Training of the language model (--stage=train_language)."""

    recipe: str = value(
        "bc", Text(("bc", "filtered_bc")), "bc: clone all episodes; filtered_bc: the best", decides=True
    )


@dataclass(frozen=True)
class CloningSection(OfflineSection, TrainLanguage):
    """The section train_language."""


@dataclass(frozen=True)
class CloningConfig(TranscriptsConfig):
    """The values that the stage reads."""

    train_language: CloningSection = CloningSection()


def check(config: CloningConfig) -> None:
    """Raises UserError for values that cannot work."""
    language = config.language
    check_learning(config.train_language, "train_language")
    check_model(language.model, language.width, language.heads, "--config.language")
    template = config.transcripts.template
    if not language.model and language.tokeniser == "letters" and template != "marks":
        only = f"marks for the template 'marks' only, and not for {template!r}"
        flags = "--config.language.tokeniser, --config.transcripts.template"
        raise UserError(f"a tokeniser of letters has {only} ({flags})")
    if language.lora_rank and not language.model:
        why = "low-rank additions to an untrained model learn little: name a model, or choose lora_rank 0"
        raise UserError(f"{why} (--config.language.lora_rank, .model)")
    check_template(language, template, "--config.language.model")
    check_origin(config.transcripts)
    if config.transcripts.import_format == MANUAL and config.transcripts.import_from:
        check_prompts(template)
        for file in find_manuals(config.transcripts.import_from.split(",")):
            read_manual(file)
    if config.transcripts.import_from and (played := find(TRANSCRIPT_FORMATS, config.transcripts.import_format)):
        played.check(config.env)
    find_meeting(config.distributed)  # raises UserError for bad values


STAGE = offline_stage(
    "train_language", FOLDER, f"{MODEL}/config.json", config=CloningConfig, check=check,
    sections=("transcripts", "language", "train_language"), run=later("motif_jax.stages.train_language.model:train"),
)  # fmt: skip

"""The stage train_language: trains a language model on transcripts, to write the agent's texts.

Next-token training on the agent's tokens: behavioural cloning of a scripted player, of a trained agent, or of people.
The result is in `language/model`, in the Hugging Face layout: `motif_jax.load_language` and transformers read it.
This module is quick to import; model.py trains.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict

from motif_jax.config.table import PATH, PATHS, Tables, Text, Whole, check_values, table_of, value
from motif_jax.envs.babyai.manual import read_manual
from motif_jax.envs.worlds import TABLE as ENV
from motif_jax.language.config import FOLDER, MODEL, check_model
from motif_jax.offline.offline_settings import Learning, Running, check_num_parts
from motif_jax.stages import EXPERIMENT
from motif_jax.stages.offline import declare
from motif_jax.stages.train_language.data import MANUAL, TWEETS, check_prompts, check_template, find_manuals, wordle_of
from motif_jax.structs import UserError
from motif_jax.system.meeting import find_meeting

IMPORTS = ("lmrl", "lmrl_wordle", "tweets", "visdial", "reddit", "manual", "trl")


@dataclass(frozen=True)
class TranscriptsSection:
    """Recorded conversations."""

    path: str = value("", PATH, "directory of transcripts; empty: transcripts/ of this workdir", decides=True)
    import_from: str = value(
        "", PATHS, "files to import into transcripts/ of this workdir, separated by commas", decides=True
    )
    import_format: str = value(
        "lmrl", Text(IMPORTS), "their format: lmrl is LMRL-Gym's, manual BabyAI's (docs/transcripts.md)", decides=True
    )
    template: str = value(
        "words",
        Text(("words", "marks", "lines", "none")),
        "marks around texts; marks: <a> </a> <s> </s>, as in ILQL",
        decides=True,
    )


@dataclass(frozen=True)
class TrainLanguageSection:
    """The language model that learns from transcripts."""

    model: str = value("", PATH, "directory in the Hugging Face layout; empty: a new model", decides=True)
    tokeniser: str = value("words", Text(("words", "letters")), "of a new model, made of the transcripts", decides=True)
    family: str = value("gpt2", Text(("gpt2", "llama")), "architecture of a new model", decides=True)
    width: int = value(96, Whole(2, 2**14), "size of hidden states, of a new model", decides=True)
    layers: int = value(2, Whole(1, 200), "layers of a new model", decides=True)
    heads: int = value(4, Whole(1, 256), "attention heads of a new model", decides=True)
    dtype: str = value(
        "float32", Text(("float32", "bfloat16")), "dtype of matrix products; bfloat16 is faster on GPUs", decides=True
    )


@dataclass(frozen=True)
class TrainLanguage:
    """Training of the language model (--stage=train_language)."""

    recipe: str = value(
        "bc", Text(("bc", "filtered_bc")), "bc: clone all episodes; filtered_bc: the best", decides=True
    )


TABLES: Tables = {
    "transcripts": table_of(TranscriptsSection),
    "language": table_of(TrainLanguageSection),
    "train_language": table_of(TrainLanguage) | table_of(Running) | table_of(Learning),
}
READS: Tables = EXPERIMENT | {"env": ENV} | TABLES


def check(config: ConfigDict) -> None:
    """Raises UserError for values that cannot work."""
    check_values(config, READS)
    section, language = config.train_language, config.language
    check_num_parts(section, "train_language")
    check_model(language.model, language.width, language.heads, "--config.language")
    if not language.model and language.tokeniser == "letters" and config.transcripts.template != "marks":
        raise UserError(
            "a tokeniser of letters has marks for the template 'marks' only, and not for "
            f"{config.transcripts.template!r} (--config.language.tokeniser, --config.transcripts.template)"
        )
    check_template(language, config.transcripts.template, "--config.language.model")
    if config.transcripts.path and config.transcripts.import_from:
        raise UserError(
            "transcripts are either read from a directory or imported (--config.transcripts.path, .import_from)"
        )
    if config.transcripts.import_format == MANUAL and config.transcripts.import_from:
        check_prompts(config.transcripts.template)
        for file in find_manuals(config.transcripts.import_from.split(",")):
            read_manual(file)
    if config.transcripts.import_format == TWEETS and config.transcripts.import_from:
        wordle_of(config.env)
    find_meeting(config.distributed)  # raises UserError for bad values


def run(config: ConfigDict, workdir: Path) -> None:
    """Trains the model and writes `workdir/language`."""
    from motif_jax.stages.train_language.model import train

    train(config, workdir, workdir / FOLDER)


STAGE = declare("train_language", FOLDER, f"{MODEL}/config.json", tables=TABLES, reads=READS, check=check, run=run)

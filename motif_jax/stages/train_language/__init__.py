"""The stage train_language: trains a language model on transcripts, to write the agent's texts.

Next-token training on the agent's tokens: behavioural cloning of a scripted player, of a trained agent, or of people.
The result is in `language/model`, in the Hugging Face layout: `motif_jax.load_language` and transformers read it.
This module is quick to import; model.py trains.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motif_jax.config.table import PATH, PATHS, Number, Text, Whole, deciding, section
from motif_jax.envs.worlds import TABLE as ENV
from motif_jax.language.config import FOLDER, MODEL, LanguageConfig, check_model
from motif_jax.language.hub import check_language_model, read_model_tokeniser
from motif_jax.names import TRANSCRIPT_FORMATS, check_end, import_named
from motif_jax.offline.recipes import OfflineSection
from motif_jax.stages import Experiment, decisive_in, later, offline_stage
from motif_jax.structs import Need, UserError, naming
from motif_jax.system.foreign import check_readable
from motif_jax.system.meeting import find_meeting
from motif_jax.tokens import BuiltInTokeniser, LetterTokeniser, Tokeniser, WordTokeniser
from motif_jax.transcripts.imports import FLAG as IMPORT_FLAG
from motif_jax.transcripts.imports import TranscriptFormat
from motif_jax.transcripts.render import FLAG as TEMPLATE_FLAG
from motif_jax.transcripts.render import TEMPLATES, LiveRenderer
from motif_jax.transcripts.store import FLAG as TRANSCRIPTS_FLAG
from motif_jax.transcripts.store import read_stored_record

MODEL_FLAG = "--config.language.model"
BUILT_IN: dict[str, type[BuiltInTokeniser]] = {"words": WordTokeniser, "letters": LetterTokeniser}


@dataclass(frozen=True)
class TranscriptsSection:
    """Recorded conversations."""

    path: str = deciding("", PATH, "directory of transcripts; empty: transcripts/ of this workdir")
    import_from: str = deciding("", PATHS, "files to import into transcripts/ of this workdir, separated by commas")
    import_format: str = deciding(
        "lmrl",
        Text(tuple(TRANSCRIPT_FORMATS)),
        "their format: lmrl is LMRL-Gym's, manual BabyAI's (docs/transcripts.md)",
    )
    template: str = deciding("words", Text((*TEMPLATES,)), "marks around texts; marks: <a> </a> <s> </s>, as in ILQL")

    @property
    def names(self) -> list[str]:
        """Those of the files to import."""
        return self.import_from.split(",") if self.import_from else []

    @property
    def format(self) -> TranscriptFormat:
        return import_named(TRANSCRIPT_FORMATS[self.import_format])


@dataclass(frozen=True)
class LanguageSection:
    """The language model that learns from transcripts."""

    model: str = deciding("", PATH, "directory in the Hugging Face layout, GGUF file, or smollm2; empty: a new model")
    tokeniser: str = deciding("words", Text(("words", "letters")), "of a new model, made of the transcripts")
    family: str = deciding("gpt2", Text(("gpt2", "llama")), "architecture of a new model")
    width: int = deciding(96, Whole(2, 2**14), "size of hidden states, of a new model")
    layers: int = deciding(2, Whole(1, 200), "layers of a new model")
    heads: int = deciding(4, Whole(1, 256), "attention heads of a new model")
    dtype: str = deciding("float32", Text(("float32", "bfloat16")), "type of matrix products; bfloat16: faster on GPUs")
    lora_rank: int = deciding(0, Whole(0, 2**12), "train additions of this rank to a model's matrices; 0: all weights")
    lora_alpha: float = deciding(16.0, Number(0, 1e6, above=True), "additions are multiplied by alpha / rank")
    lora_names: str = deciding("q,v", Text(longest=1000), "matrices with additions: q, k, v, o, up, down, gate")


@dataclass(frozen=True)
class TranscriptsConfig(Experiment):
    """The values with which transcripts are opened."""

    env: Mapping[str, Any] = section(ENV)
    transcripts: TranscriptsSection = TranscriptsSection()
    language: LanguageSection = LanguageSection()


@dataclass(frozen=True)
class TrainLanguage:
    """Training of the language model (--stage=train_language)."""

    recipe: str = deciding("bc", Text(("bc", "filtered_bc")), "bc: clone all episodes; filtered_bc: the best")


@dataclass(frozen=True)
class CloningSection(OfflineSection, TrainLanguage):
    """The section train_language."""


@dataclass(frozen=True)
class CloningConfig(TranscriptsConfig):
    """The values that the stage reads."""

    train_language: CloningSection = CloningSection()

    def decisive(self) -> set[str]:
        return decisive_in(self, "", "transcripts", "language", "train_language")


def check(config: CloningConfig, workdir: Path) -> Iterator[Need]:
    """Raises UserError for values that cannot work; returns the needs of transcripts and of the model to train."""
    language = config.language
    check_offline(config, config.train_language, "train_language")
    check_model(language.model, language.width, language.heads, "--config.language")
    if language.lora_rank and not language.model:
        why = "low-rank additions to an untrained model learn little: name a model, or choose lora_rank 0"
        raise UserError(f"{why} (--config.language.lora_rank, .model)")
    template = config.transcripts.template
    check_template(language, template)
    if names := config.transcripts.names:
        if config.transcripts.format.prompts:
            check_prompts(template)
        config.transcripts.format.check(names, config.env)
    model = needs_model(config, language.model, config.train_language, "train_language", MODEL_FLAG)
    return itertools.chain(needs_transcripts(config, workdir), model)


def needs_transcripts(config: TranscriptsConfig, workdir: Path) -> Iterator[Need]:
    """The directory of transcripts, or the files to import, unless they were imported."""
    section = config.transcripts
    if section.path:
        folder = Path(section.path)
        yield Need(lambda: read_stored_record(folder, TRANSCRIPTS_FLAG), folder)
    for file in () if (workdir / "transcripts").exists() else section.format.find(section.names):
        yield Need(functools.partial(check_readable, file, IMPORT_FLAG), file)


def needs_model(
    config: TranscriptsConfig, name: str, section: OfflineSection, stage: str, flag: str, writes: bool = False
) -> Iterator[Need]:
    """The model `name` to begin with, "" for none, which `stage` trains with the values of its `section`."""

    def check() -> None:
        model = check_language_model(name, flag)
        check_trained(model, name, section.max_length, stage, flag)
        with naming(flag):
            tokeniser = read_model_tokeniser(Path(name), model)
        check_tokeniser(tokeniser, config.transcripts.template, writes)

    if name:
        yield Need(check, Path(name))


def check_offline(config: TranscriptsConfig, section: OfflineSection, stage: str) -> None:
    """Raises UserError for values that cannot work in either stage."""
    if section.batch_size % section.num_parts:
        problem = f"batch_size {section.batch_size} cannot be split into {section.num_parts} parts"
        raise UserError(f"{problem} (--config.{stage}.batch_size, .num_parts)")
    check_end(section.learning_rate_decay, section.learning_rate_end, f"--config.{stage}.learning_rate_end")
    if config.transcripts.path and config.transcripts.import_from:
        flags = "--config.transcripts.path, .import_from"
        raise UserError(f"transcripts are either read from a directory or imported ({flags})")
    find_meeting(config.distributed)  # raises UserError for bad values


def check_prompts(template: str) -> None:
    """Raises UserError for a template that does not suit prompts and names of actions."""
    if template != "none":
        raise UserError(
            f"a policy that plays reads the name of an action right after the prompt, without the mark of the template "
            f"{template!r}: choose none ({TEMPLATE_FLAG}), in another --workdir if training has begun in this one"
        )


def check_template(language: LanguageSection, template: str, directory: str = "", writes: bool = False) -> None:
    """Raises UserError if the tokeniser of a new model cannot encode a template; that of others is a stage's need.

    `directory`: of a model in place of the section's. `writes`: its texts must also end with one token.
    """
    if not (directory or language.model):
        check_tokeniser(BUILT_IN[language.tokeniser].from_texts(()), template, writes)


def check_tokeniser(tokeniser: Tokeniser, template: str, writes: bool = False) -> None:
    """Raises UserError for a tokeniser that cannot encode a template."""
    if template == "words" and not isinstance(tokeniser, WordTokeniser):
        why = "the template 'words' is for tokenisers whose tokens are words, unlike this model's"
        raise UserError(f"{why}: choose marks, lines or none ({TEMPLATE_FLAG})")
    if writes:
        LiveRenderer(tokeniser, TEMPLATES[template])


def check_trained(config: LanguageConfig, name: str, max_length: int, stage: str, flag: str) -> None:
    """Raises UserError if the model `name` cannot be trained, or not on rows of this length."""
    if config.is_encoder_decoder:
        raise UserError(f"{name!r} is an encoder-decoder, but only decoders can be trained ({flag})")
    if config.max_positions and max_length > config.max_positions:
        rows = f"rows have {max_length:,} (--config.{stage}.max_length, {flag})"
        raise UserError(f"the model reads {config.max_positions:,} tokens at most, and {rows}")


STAGE = offline_stage(
    "train_language", FOLDER, f"{MODEL}/config.json", config=CloningConfig, check=check,
    sections=("transcripts", "language", "train_language"), run=later("motif_jax.stages.train_language.model:train"),
)  # fmt: skip

"""Transcripts for a language model: importing, tokenising, choosing episodes, checking the template."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motif_jax.config.table import PATH, PATHS, Number, Text, Whole, deciding, section
from motif_jax.console import print_line
from motif_jax.envs.babyai.manual import EXERCISES, find_manual, make_examples, make_exercises, read_manual
from motif_jax.envs.babyai.words import all_words
from motif_jax.envs.worlds import TABLE as ENV
from motif_jax.envs.worlds import essential
from motif_jax.language.config import locate_model
from motif_jax.language.gguf_file import read_gguf_tokeniser
from motif_jax.names import TRANSCRIPT_FORMATS, find
from motif_jax.stages import Experiment
from motif_jax.stages.collect import report_transcripts
from motif_jax.structs import Episode, UserError, naming
from motif_jax.tokens import (
    FILE,
    UNKNOWN_TOKEN,
    BuiltInTokeniser,
    LetterTokeniser,
    Tokeniser,
    WordTokeniser,
    read_tokeniser,
)
from motif_jax.transcripts import imports
from motif_jax.transcripts.render import FLAG as TEMPLATE_FLAG
from motif_jax.transcripts.render import TEMPLATES, LiveRenderer, Renderer
from motif_jax.transcripts.store import Transcripts, are_decision_points, decision_point, vocabulary

MANUAL = "manual"  # a value of `transcripts.import_format`
BUILT_IN: dict[str, type[BuiltInTokeniser]] = {"words": WordTokeniser, "letters": LetterTokeniser}
IMPORTS = ("lmrl", "lmrl_wordle", *TRANSCRIPT_FORMATS, "visdial", "reddit", "manual", "trl")


@dataclass(frozen=True)
class TranscriptsSection:
    """Recorded conversations."""

    path: str = deciding("", PATH, "directory of transcripts; empty: transcripts/ of this workdir")
    import_from: str = deciding("", PATHS, "files to import into transcripts/ of this workdir, separated by commas")
    import_format: str = deciding(
        "lmrl", Text(IMPORTS), "their format: lmrl is LMRL-Gym's, manual BabyAI's (docs/transcripts.md)"
    )
    template: str = deciding(
        "words", Text(("words", "marks", "lines", "none")), "marks around texts; marks: <a> </a> <s> </s>, as in ILQL"
    )


@dataclass(frozen=True)
class LanguageSection:
    """The language model that learns from transcripts."""

    model: str = deciding("", PATH, "directory in the Hugging Face layout, GGUF file, or smollm2; empty: a new model")
    tokeniser: str = deciding("words", Text(("words", "letters")), "of a new model, made of the transcripts")
    family: str = deciding("gpt2", Text(("gpt2", "llama")), "architecture of a new model")
    width: int = deciding(96, Whole(2, 2**14), "size of hidden states, of a new model")
    layers: int = deciding(2, Whole(1, 200), "layers of a new model")
    heads: int = deciding(4, Whole(1, 256), "attention heads of a new model")
    dtype: str = deciding(
        "float32", Text(("float32", "bfloat16")), "dtype of matrix products; bfloat16 is faster on GPUs"
    )
    lora_rank: int = deciding(
        0, Whole(0, 2**12), "train additions of this rank to the matrices of a model; 0: all parameters"
    )
    lora_alpha: float = deciding(16.0, Number(0, 1e6, above=True), "additions are multiplied by alpha / rank")
    lora_names: str = deciding("q,v", Text(longest=1000), "matrices with additions: q, k, v, o, up, down, gate")


@dataclass(frozen=True)
class TranscriptsConfig(Experiment):
    """The values with which transcripts are opened."""

    env: Mapping[str, Any] = section(ENV)
    transcripts: TranscriptsSection = TranscriptsSection()
    language: LanguageSection = LanguageSection()


def check_origin(section: TranscriptsSection) -> None:
    """Raises UserError if transcripts have two origins."""
    if section.path and section.import_from:
        raise UserError(
            "transcripts are either read from a directory or imported (--config.transcripts.path, .import_from)"
        )


def open_transcripts(config: TranscriptsConfig, workdir: Path, may_import: bool) -> Transcripts:
    """The config's transcripts; imports them into the workdir if the config says so and they do not exist yet.

    `may_import`: whether this process may import them, as one host does.
    """
    given = config.transcripts
    path = Path(given.path) if given.path else workdir / "transcripts"
    if given.import_from and may_import:
        names = given.import_from.split(",")
        provenance: dict[str, Any] = {"format": given.import_format}
        if given.import_format == MANUAL:
            files, window = find_manuals(names), config.env["babyai"]["window"]
            provenance["window"] = window
            if EXERCISES in names:
                provenance[EXERCISES] = True
            episodes = manual_episodes(files, window, EXERCISES in names)
        else:
            files = [Path(name).expanduser() for name in names]
            if played := find(TRANSCRIPT_FORMATS, given.import_format):
                provenance |= {"env": essential(config.env), "seed": config.seed}  # decide the words
                episodes = played.episodes(files, config.env, config.seed)
            else:
                episodes = _episodes(files, given.import_format)
        provenance["files"] = [file.name for file in files]
        is_new = not path.exists()
        transcripts = imports.import_episodes(episodes, path, provenance) if is_new else Transcripts(path)
        if transcripts.record["provenance"] != provenance:
            raise UserError(f"{str(path)!r} has other transcripts: choose another --workdir ({imports.FLAG})")
        report_transcripts(workdir)  # also of earlier ones: a kill may have come between the two
        if is_new:
            texts = f"{len(transcripts):,} episodes with {transcripts.num_texts:,} texts"
            print_line(f"transcripts: imported {texts} to {str(path)!r}")
        return transcripts
    transcripts = Transcripts(path)
    if not transcripts.is_action.any():
        raise UserError(f"{str(path)!r} has no turn of an agent: there is nothing to learn (--config.transcripts.path)")
    return transcripts


def _episodes(files: list[Path], kind: str) -> Iterator[Episode]:
    if kind == "reddit":
        return imports.read_reddit(files)
    if kind == "visdial":
        if len(files) > 2:
            raise UserError(f"visual dialogues have one or two files, not {len(files)} ({imports.FLAG})")
        return imports.read_visdial(*files)
    read = {"lmrl": imports.read_lmrl, "lmrl_wordle": imports.read_lmrl_wordle, "trl": imports.read_trl}[kind]
    return itertools.chain.from_iterable(map(read, files))


def find_manuals(names: list[str]) -> list[Path]:
    """Returns the files of the manuals among the names; the exercises have no file."""
    return [find_manual(name) for name in names if name != EXERCISES]


def manual_episodes(files: list[Path], window: int, with_exercises: bool) -> Iterator[Episode]:
    """All words of the world, then the examples of BabyAI-Text manuals, or exercises in reading made of them."""
    yield from vocabulary(all_words())
    lessons = [lesson for file in files for lesson in read_manual(file)]
    if with_exercises:
        yield from make_exercises(lessons, window)
        return
    for example in make_examples(lessons, window):
        yield decision_point(example.prompt, example.action)


def make_renderer(transcripts: Transcripts, tokeniser: Any, template: str, discount: float = 1.0) -> Renderer:
    """Makes the renderer of the transcripts; raises UserError if the template does not suit them."""
    made = transcripts.record["provenance"]
    prompts = are_decision_points(transcripts) or made.get("format") == MANUAL
    if prompts:
        check_prompts(template)
    check_words(tokeniser, template)
    return Renderer(transcripts.turns(), tokeniser, TEMPLATES[template], discount=discount, apart=prompts)


def check_prompts(template: str) -> None:
    """Raises UserError for a template that does not suit prompts and names of actions."""
    if template != "none":
        raise UserError(
            f"a policy that plays reads the name of an action right after the prompt, without the mark of the template "
            f"{template!r}: choose none ({TEMPLATE_FLAG}), in another --workdir if training has begun in this one"
        )


def check_known(transcripts: Transcripts, tokeniser: Any, flag: str) -> None:
    """Raises UserError if a tokeniser, made for other transcripts, does not know all of a text."""
    if not isinstance(tokeniser, BuiltInTokeniser):
        return  # tokenisers of bytes know all texts
    for text in transcripts.texts():
        if UNKNOWN_TOKEN in tokeniser.encode(text):
            where = f"{text[:60]!r} in {str(transcripts.path)!r} ({flag}, --config.transcripts.path)"
            raise UserError(f"the policy's tokeniser, made for other transcripts, does not know all of {where}")


def check_template(
    language: LanguageSection, template: str, flag: str, directory: str = "", writes: bool = False
) -> None:
    """Raises UserError if the model does not exist, or if its tokeniser cannot encode a template.

    `directory`: of a model in place of the section's. `writes`: its texts must also end with one token.
    """
    model = directory or language.model
    if not model:
        tokeniser: Tokeniser = BUILT_IN[language.tokeniser].from_texts(())
    else:
        path = locate_model(model, flag)
        if not path.is_file() and not (path / FILE).is_file():
            return  # errors are raised when the model is read
        with naming(flag):
            tokeniser = read_gguf_tokeniser(path) if path.is_file() else read_tokeniser(path / FILE)
    check_words(tokeniser, template)
    if writes:
        LiveRenderer(tokeniser, TEMPLATES[template])


def check_words(tokeniser: Tokeniser, template: str) -> None:
    """Raises UserError for the template "words" if tokens are not words."""
    if template == "words" and not isinstance(tokeniser, WordTokeniser):
        why = "the template 'words' is for tokenisers whose tokens are words, unlike this model's"
        raise UserError(f"{why}: choose marks, lines or none ({TEMPLATE_FLAG})")

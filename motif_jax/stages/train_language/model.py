"""The language model to train: read or new; the transcripts that it learns from; training; writing the result."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from motif_jax.console import print_line
from motif_jax.devices.hosts import Hosts
from motif_jax.files import make_anew, remove_folder
from motif_jax.language.adapt import activation_bytes, bytes_of, new_additions, print_memory
from motif_jax.language.config import FOLDER, MODEL, LanguageConfig, make_config
from motif_jax.language.hub import read_config, read_language_model, read_model_tokeniser, write_language_model
from motif_jax.language.model import Types, as_functions, make_language_model
from motif_jax.names import TRANSCRIPT_FORMATS, find
from motif_jax.offline.recipes import OfflineSection, Recipe, recipe_of, settings_of
from motif_jax.offline.update import init_state
from motif_jax.run import StageRun
from motif_jax.stages import offline
from motif_jax.stages.collect import report_transcripts
from motif_jax.stages.offline import Done, LanguageParts, Learner
from motif_jax.stages.train_language import (
    BUILT_IN,
    CloningConfig,
    LanguageSection,
    TranscriptsConfig,
    check_prompts,
    check_tokeniser,
    check_trained,
)
from motif_jax.structs import UserError, naming
from motif_jax.tokens import Tokeniser, write_tokeniser
from motif_jax.transcripts import imports
from motif_jax.transcripts.render import TEMPLATES, Renderer
from motif_jax.transcripts.store import Transcripts, are_decision_points

STAGE, FLAG = "train_language", "--config.language.model"


def open_transcripts(config: TranscriptsConfig, workdir: Path, hosts: Hosts) -> Transcripts:
    """The config's transcripts; the first host imports them into the workdir if the config says so."""
    given = config.transcripts
    path = Path(given.path) if given.path else workdir / "transcripts"
    if given.names and hosts.me == 0:
        import_transcripts(config, workdir, path)
    hosts.agree()
    transcripts = Transcripts(path)
    if not transcripts.is_action.any():
        raise UserError(f"{str(path)!r} has no turn of an agent: there is nothing to learn (--config.transcripts.path)")
    return transcripts


def import_transcripts(config: TranscriptsConfig, workdir: Path, path: Path) -> None:
    """Imports the transcripts into the workdir if they do not exist yet; raises UserError if it has others."""
    given = config.transcripts
    files = given.format.find(given.names)
    provenance: dict[str, Any] = {"format": given.import_format, "files": [file.name for file in files]}
    provenance |= given.format.about(config.env, config.seed)
    episodes = given.format.episodes(files, config.env, config.seed)
    is_new = not path.exists()
    transcripts = imports.import_episodes(episodes, path, provenance) if is_new else Transcripts(path)
    if transcripts.record["provenance"] != provenance:
        raise UserError(f"{str(path)!r} has other transcripts: choose another --workdir ({imports.FLAG})")
    report_transcripts(workdir)  # also of earlier ones: a kill may have come between the two
    if is_new:
        texts = f"{len(transcripts):,} episodes with {transcripts.num_texts:,} texts"
        unpaid = int((np.add.reduceat(transcripts.reward != 0, transcripts.starts) == 0).sum())
        without = f"; {unpaid:,} of them have no reward but 0" if unpaid else ""
        print_line(f"transcripts: imported {texts} to {str(path)!r}{without}")


def make_renderer(
    transcripts: Transcripts, tokeniser: Any, template: str, discount: float = 1.0, keep: str = "start"
) -> Renderer:
    """Makes the renderer of the transcripts; raises UserError if the template does not suit them."""
    imported = find(TRANSCRIPT_FORMATS, transcripts.record["provenance"].get("format"))
    prompts = are_decision_points(transcripts) or (imported is not None and imported.prompts)
    if prompts:
        check_prompts(template)
    check_tokeniser(tokeniser, template)
    return Renderer(
        transcripts.turns(), tokeniser, TEMPLATES[template], discount=discount, apart=prompts, keep_end=keep == "end"
    )


def make_parts(
    section: LanguageSection, transcripts: Transcripts, training: OfflineSection, seed: int, flag: str = FLAG,
    stage: str = STAGE, *, recipe: Recipe,
) -> LanguageParts:  # fmt: skip
    """Reads the model that the section `language` names, or makes a new one for these transcripts.

    `training`: the section `stage`, and `recipe` the one in it. `flag`: the value of the config that names the model.
    """
    types, max_length = Types.trained(section.dtype, section.lora_rank), training.max_length
    if section.model:
        directory = Path(section.model)
        with naming(flag):
            _print_memory(section, training, read_config(directory), types, stage, recipe)
            graph, params, config = read_language_model(directory, types)
            tokeniser: Tokeniser = read_model_tokeniser(directory, config)
    else:
        tokeniser = BUILT_IN[section.tokeniser].from_texts(transcripts.texts())
        options: dict[str, Any] = {"eos_token_id": tokeniser.end_id, "pad_token_id": 0}
        options["n_positions" if section.family == "gpt2" else "max_position_embeddings"] = max_length
        config = make_config(section.family, tokeniser.size, section.width, section.layers, section.heads, **options)
        graph, params = nnx.split(make_language_model(config, types, seed=seed))
    check_trained(config, section.model, max_length, stage, flag)
    params = jax.tree.map(np.asarray, params)
    parts = LanguageParts(as_functions(graph, config), params, tokeniser, config, graph)
    if not section.lora_rank:
        return parts
    return parts._replace(additions=_additions(section, params, seed), factor=section.lora_alpha / section.lora_rank)


def _print_memory(
    section: LanguageSection, training: OfflineSection, config: LanguageConfig, types: Types, stage: str, recipe: Recipe
) -> None:
    graph, params = nnx.split(nnx.eval_shape(lambda: make_language_model(config, types)))
    start = jax.eval_shape(lambda: _additions(section, params, 0)) if section.lora_rank else params
    settings, key, language = settings_of(training, 1), jax.random.key(0), as_functions(graph, config)
    state = jax.eval_shape(lambda start: init_state(key, language, recipe, settings, start, start), start)
    given = 0 if recipe.learns_policy and not section.lora_rank else bytes_of(params)
    weights = bytes_of((state.learnt, state.target)) + given
    learning = bytes_of((state.learnt, state.optimizer)) + (2 * bytes_of(params) if section.lora_rank else 0)
    rows = training.batch_size // training.num_parts
    logits = (training.chunk or rows * training.max_length) * config.vocabulary * 8  # float32, and their gradients
    activations = activation_bytes(config, rows, training.max_length, types.compute.itemsize, remat=False) + logits
    flags = f"--config.{stage}.num_parts, .batch_size, .max_length, .chunk, --config.language.lora_rank"
    copies = bytes_of(params) + 2 * bytes_of(state)  # the model, the first state, and a checkpoint
    print_memory(stage, state.learnt, weights, learning, activations, copies, flags)


def _additions(section: LanguageSection, params: Any, seed: int) -> Any:
    with naming("--config.language.lora_names"):
        return new_additions(params, section.lora_names.split(","), section.lora_rank, seed)


def new_params(parts: LanguageParts, seed: int) -> Any:
    """New initial parameters of the same model, on the host."""
    _, params = nnx.split(make_language_model(parts.config, seed=seed))
    return jax.tree.map(np.asarray, params)


def write_model(directory: Path, parts: LanguageParts, params: Any) -> None:
    """Writes a directory for `load_language` and transformers, in place of an older one."""
    partial = directory.with_name(f"{directory.name}.partial")
    make_anew(partial)
    write_tokeniser(partial, parts.tokeniser)
    write_language_model(partial, nnx.merge(parts.graph, jax.tree.map(np.asarray, params)))
    remove_folder(directory)
    os.replace(partial, directory)


def train(config: CloningConfig, workdir: Path) -> None:
    """Trains the model on the workdir's transcripts, or resumes an earlier run."""
    section, recipe = config.train_language, recipe_of(config.train_language.recipe)
    with offline.open_session(config, section, workdir, STAGE, FOLDER) as session:
        transcripts = open_transcripts(config, workdir, session.hosts)
        parts = make_parts(config.language, transcripts, section, config.seed, recipe=recipe)
        renderer = make_renderer(transcripts, parts.tokeniser, config.transcripts.template, keep=section.keep)
        learner = Cloning(config, session, recipe, transcripts, parts, renderer)
        with offline.resume(learner, session) as training:
            session.stage.bind(config)
            training.run()
        if session.stage.writes:
            finish(session.stage, learner, training.done)


class Cloning(Learner):
    """The policy alone."""

    title = "The language model"

    def evaluate(self, state: Any) -> dict[str, float]:
        means = super().evaluate(state)
        return {name: means[name] for name in ("loss", "accuracy")}


def finish(stage: StageRun, learner: Cloning, done: Done) -> None:
    """Writes the best model, the report's part and the summary, and prints a line."""
    number, state = offline.read_state(stage, learner, "best")
    params = learner.parts.whole(state.learnt)["policy"]
    write_model(stage.path / MODEL, learner.parts, params)
    size = sum(array.size for array in jax.tree.leaves(params))
    offline.write_summary(stage, learner, done, {"checkpoint": number, "parameters": size})
    best = f"{done.best['valid_loss']:.4f} per token of the agent, {done.best['valid_accuracy']:.1%} of them predicted"
    reads = f"motif_jax.load_language reads {str(stage.path / MODEL)!r}"
    print_line(f"{STAGE}: {done.steps:,} updates, {size:,} parameters; best validation loss {best}; {reads}")

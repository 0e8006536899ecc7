"""The language model to train: read from a directory or new; as functions for `offline`; written to a directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from motif_jax.language.config import LanguageConfig
from motif_jax.language.hub import read_language_model, read_model_tokeniser, write_language_model
from motif_jax.language.hub_config import make_config
from motif_jax.language.layers import Types
from motif_jax.language.model import make_language_model
from motif_jax.offline.values import Language
from motif_jax.policies.programs import as_functions
from motif_jax.stages.train_language.data import BUILT_IN
from motif_jax.structs import UserError
from motif_jax.system.own_folders import make_anew, remove_made
from motif_jax.tokens import Tokeniser, write_tokeniser
from motif_jax.transcripts.store import Transcripts

FLAG = "--config.language.model"
FILES = r"(generation_|tokenizer_)?config\.json|tokenizer\.json|model(-\d+-of-\d+)?\.safetensors(\.index\.json)?"


class LanguageParts(NamedTuple):
    """A language model, its parameters and its tokeniser."""

    language: Language
    params: Any  # on the host
    tokeniser: Tokeniser
    config: LanguageConfig
    graph: Any  # `nnx.merge(graph, params)` is the model


def make_parts(
    section: ConfigDict,
    transcripts: Transcripts,
    max_length: int,
    seed: int,
    flag: str = FLAG,
    stage: str = "train_language",
) -> LanguageParts:
    """Reads the model that the section `language` names, or makes a new one for these transcripts.

    Args:
      section: the config's section `language`.
      transcripts: a new model's tokeniser is made from them.
      max_length: tokens of a row, a value of the section `stage`.
      seed: of a new model.
      flag: the value of the config that names the model, for messages.
      stage: for messages.
    """
    types = Types(jnp.dtype(section.dtype), jnp.dtype(jnp.float32))
    if section.model:
        directory = Path(section.model)
        try:
            graph, params, config = read_language_model(directory, types)
            tokeniser: Tokeniser = read_model_tokeniser(directory, config)
        except UserError as error:
            raise UserError(f"{error} ({flag})") from error
        if config.is_encoder_decoder:
            raise UserError(f"{section.model!r} is an encoder-decoder, but only decoders can be trained ({flag})")
    else:
        tokeniser = BUILT_IN[section.tokeniser].from_texts(transcripts.texts())
        more: dict[str, Any] = {"eos_token_id": tokeniser.end_id, "pad_token_id": 0}
        more["n_positions" if section.family == "gpt2" else "max_position_embeddings"] = max_length
        config = make_config(section.family, tokeniser.size, section.width, section.layers, section.heads, **more)
        graph, params = nnx.split(make_language_model(config, types, seed=seed))
    if config.max_positions and max_length > config.max_positions:
        raise UserError(
            f"the model reads {config.max_positions:,} tokens at most, and rows have {max_length:,} "
            f"(--config.{stage}.max_length, {flag})"
        )
    return LanguageParts(as_functions(graph, config), jax.tree.map(np.asarray, params), tokeniser, config, graph)


def new_params(parts: LanguageParts, seed: int) -> Any:
    """New initial parameters of the same model, on the host."""
    _, params = nnx.split(make_language_model(parts.config, seed=seed))
    return jax.tree.map(np.asarray, params)


def write_model(directory: Path, parts: LanguageParts, params: Any) -> None:
    """Writes a directory for `load_language` and transformers, in place of an older one; see `remove_made`."""
    partial = directory.with_name(f"{directory.name}.partial")
    make_anew(partial, FILES)
    write_tokeniser(partial, parts.tokeniser)
    write_language_model(partial, nnx.merge(parts.graph, jax.tree.map(np.asarray, params)))
    remove_made(directory, FILES)
    os.replace(partial, directory)

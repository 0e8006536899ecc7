"""Language models in directories in the Hugging Face layout, or in GGUF files: never downloaded.

    config.json                       architecture and sizes
    model.safetensors                 all tensors; or several such files and model.safetensors.index.json
    generation_config.json            further tokens that end a text; optional
    tokenizer.json                    see tokens.py
    chat_template.jinja               or in tokenizer_config.json: searched for a known format (chat.py), never executed

A directory with an adapter of PEFT (peft.py) is read as the adapter's model with its additions, whatever lies beside
it. GGUF files (gguf_file.py) are read, but not written.

Reading executes no code. Sizes and types in these files are checked before memory is allocated, and a UserError names
the first mismatch. Links may lead to other files of the directory or into the "blobs" of the Hub's cache, nowhere else.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx
from safetensors.numpy import save

from motif_jax.devices.parameters import leaves_by_path, rebuild
from motif_jax.files import write_json, write_whole
from motif_jax.language import gguf_file, peft
from motif_jax.language.chat import ChatFormat, recognise_chat
from motif_jax.language.config import LanguageConfig, locate_model
from motif_jax.language.hub_config import config_from_hub, config_to_hub
from motif_jax.language.layers import FLOAT32, Types
from motif_jax.language.model import Decoder, EncoderDecoder, make_language_model
from motif_jax.language.tensors import (
    Tensor,
    canonical,
    find_file,
    hub_tensors,
    open_tensors,
    parts_of,
    read_foreign,
    same,
)
from motif_jax.structs import UserError, legible
from motif_jax.system.errors import in_words
from motif_jax.system.machine import available_mib
from motif_jax.tokens import FILE, SETTINGS, Tokeniser, read_tokeniser

CONFIG, GENERATION, TEMPLATE = "config.json", "generation_config.json", "chat_template.jinja"
TENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = 5 * 10**9  # maximum bytes of a written file of tensors
HEAD = "lm_head.weight"


def read_language_model(
    directory: Path, types: Types = FLOAT32, remat: bool = False
) -> tuple[Any, Any, LanguageConfig]:
    """Reads a model: graph and parameters as of `nnx.split`, with NumPy arrays, and the config.

    `directory`: in the layout above, or of an adapter; or a GGUF file, or a name that `locate_model` knows.
    """
    adapter, directory = peft.find_adapter(locate_model(directory))
    config = read_config(directory)
    tensors: Mapping[str, Tensor | gguf_file.GgufTensor]
    tensors = (
        gguf_file.read_gguf_tensors(directory, config) if directory.is_file() else _read_tensors(directory, config)
    )
    head = tensors.get(HEAD)
    other = tensors.get(hub_tensors(config)["embedding"].name)
    if isinstance(head, Tensor) and (config.tied or config.family == "t5"):  # as in transformers, the tensors decide
        config = config._replace(tied=isinstance(other, Tensor) and same(head, other))
    graph, shapes = _split_shapes(config, types, remat)
    wanted = leaves_by_path(shapes)
    _check(directory, config, wanted, tensors)
    arrays = {path: np.empty(leaf.shape, leaf.dtype) for path, leaf in wanted.items()}
    used: set[str] = set()
    for path, at, name, place, _ in parts_of(config, wanted):
        used.add(name)
        tensor, part = tensors[name].array, arrays[path][at]
        view = place.ours(tensor if adapter is None else adapter.added(name, tensor))
        for first in range(0, view.shape[-1], 256):  # transposing in strips takes a sixth of the time
            part[..., first : first + 256] = view[..., first : first + 256]
        if not np.isfinite(part).all():
            raise UserError(f"{name} in {tensors[name].file!r} has a value that is not finite")
    if adapter is not None:
        peft.check_used(adapter, used, directory)
    return graph, rebuild(shapes, arrays, directory, "the directory of a language model"), config


@functools.lru_cache(maxsize=8)
def _split_shapes(config: LanguageConfig, types: Types, remat: bool) -> tuple[Any, Any]:
    """Graph and shapes of the parameters, cached because making them takes longer than reading a small model."""
    return nnx.split(make_language_model(config, types, remat, seed=None))


def read_config(directory: Path) -> LanguageConfig:
    """Reads the architecture alone."""
    directory = peft.find_adapter(locate_model(directory))[1]
    if directory.is_file():
        return gguf_file.read_gguf_config(directory)
    content = read_foreign(directory, CONFIG)
    with legible(f"the model in {str(directory)!r}"):
        config = config_from_hub(content)
        if (directory / GENERATION).exists():
            more = {"eos_token_id": read_foreign(directory, GENERATION).get("eos_token_id")}
            ends = (*config.ends, *config_from_hub(content | more).ends)
            config = config._replace(ends=tuple(dict.fromkeys(ends)))
    return config


def read_model_tokeniser(directory: Path, config: LanguageConfig) -> Tokeniser:
    """Reads the tokeniser beside a model, or an adapter; the embedding must have a row for each token."""
    directory = locate_model(directory)
    if not os.path.exists(directory / FILE):
        directory = peft.find_adapter(directory)[1]
    is_file = directory.is_file()
    tokeniser = gguf_file.read_gguf_tokeniser(directory) if is_file else read_tokeniser(find_file(directory, FILE))
    check_size(tokeniser, config, f" in {str(directory)!r}")
    return tokeniser


def read_chat_format(directory: Path) -> ChatFormat | None:
    """The format of conversations that a model has learnt; None if it has none, or an unknown one."""
    directory, template = peft.find_adapter(locate_model(directory))[1], None
    if directory.is_file():
        template = gguf_file.read_header(directory).metadata.get("tokenizer.chat_template")
    elif (directory / TEMPLATE).exists():
        template = read_foreign(directory, TEMPLATE, bytes.decode)
    elif (directory / SETTINGS).exists():
        template = read_foreign(directory, SETTINGS).get("chat_template")
    if isinstance(template, list):  # of named templates
        named = (one.get("template") for one in template if isinstance(one, dict) and one.get("name") == "default")
        template = next((text for text in named if isinstance(text, str)), None)
    return recognise_chat(template) if isinstance(template, str) else None


def check_size(tokeniser: Tokeniser, config: LanguageConfig, where: str = "") -> None:
    """Raises UserError if the tokeniser, which comes from `where`, has more tokens than the embedding has rows."""
    if tokeniser.size > config.vocabulary:
        rows = f"the language model's embedding only {config.vocabulary:,} rows"
        raise UserError(f"the tokeniser{where} has {tokeniser.size:,} tokens, but {rows}")


def _read_tensors(directory: Path, config: LanguageConfig) -> dict[str, Tensor]:
    """All tensors by the names in `hub_tensors`. They stay in their files until they are used."""
    index: dict[str, Any] = {}
    names = [TENSORS]
    if (directory / INDEX).exists():
        index = read_foreign(directory, INDEX).get("weight_map")
        files = index.values() if isinstance(index, dict) else [None]
        if not all(re.fullmatch(r"[^/]+\.safetensors", str(file)) for file in files):
            raise UserError(f"{str(directory / INDEX)!r} has no weight_map to .safetensors files beside it")
        names = sorted(set(files))
    elif not (directory / TENSORS).exists():
        others = [file.name for file in sorted(directory.glob("*.bin"))]
        why = f"; {others[0]!r} is a pickle, which is not read: save the model with safetensors" if others else ""
        raise UserError(f"there is neither {TENSORS} nor {INDEX} in {str(directory)!r}{why}")
    tensors: dict[str, Tensor] = {}
    for file in names:
        opened = open_tensors(directory, file)
        if lost := [name for name, where in index.items() if where == file and name not in opened]:
            raise UserError(f"{str(directory / file)!r} lacks {lost[0]!r:.200}, which {INDEX} says is in it")
        for name, tensor in opened.items():
            if (ours := canonical(name, config)) is None:
                continue
            if ours in tensors and not same(tensors[ours], tensor):
                raise UserError(f"{name!r:.200} in {tensor.file!r} is not the same as {ours}, which it should be")
            tensors[ours] = tensor
    return tensors


def _check(
    directory: Path, config: LanguageConfig, wanted: Mapping, tensors: Mapping[str, Tensor | gguf_file.GgufTensor]
) -> None:
    """Raises UserError if tensors are missing, unknown, or of another shape, or do not fit into the memory."""
    shapes = {part.name: part.shape for part in parts_of(config, wanted)}
    problems = {
        "missing": [name for name in shapes if name not in tensors],
        "unknown": [name for name in tensors if name not in shapes and not (name == HEAD and config.tied)],
        "of another shape": [
            f"{name} is {tensors[name].shape}, not {list(shape)}"
            for name, shape in shapes.items()
            if name in tensors and tensors[name].shape != list(shape)
        ],
    }
    if listed := [f"{len(names)} {how} ({_some(names)})" for how, names in problems.items() if names]:
        model = f"the {config.family} in its {'metadata' if directory.is_file() else CONFIG}"
        raise UserError(f"the tensors in {str(directory)!r} do not fit {model}: {'; '.join(listed)}")
    needed = sum(leaf.size * leaf.dtype.itemsize for leaf in wanted.values())
    if needed >> 20 > (available := available_mib()):
        memory = f"{in_words(needed)} of memory as {next(iter(wanted.values())).dtype}"
        raise UserError(f"{str(directory)!r} needs {memory}, but {in_words(available * 2**20)} are available")


def _some(names: list[str]) -> str:
    return ", ".join(f"{name!r:.200}" for name in names[:3]) + (", ..." if len(names) > 3 else "")


def write_language_model(directory: Path, model: Decoder | EncoderDecoder, shard_bytes: int = SHARD) -> None:
    """Writes a model for `read_language_model` and transformers; config.json is written last.

    The directory must not contain a model. `shard_bytes`: maximum size of a file of tensors; a larger tensor has its
    own file.
    """
    if (directory / CONFIG).exists():
        raise UserError(f"there is a model in {str(directory)!r} already: choose another directory")
    config = model.config
    tensors: dict[str, np.ndarray] = {}
    arrays = {path: np.asarray(leaf) for path, leaf in leaves_by_path(nnx.state(model, nnx.Param)).items()}
    for path, at, name, place, shape in parts_of(config, arrays):
        tensor = tensors.setdefault(name, np.empty(shape, arrays[path].dtype))
        place.ours(tensor)[...] = arrays[path][at]  # a view
    if config.family == "t5" and config.tied and not config.scale_logits:
        tensors[HEAD] = tensors["shared.weight"]  # the config alone would be read as untied
    shards: list[dict[str, np.ndarray]] = [{}]
    for name, array in sorted(tensors.items()):
        if shards[-1] and sum(stored.nbytes for stored in shards[-1].values()) + array.nbytes > shard_bytes:
            shards.append({})
        shards[-1][name] = array
    names = [f"model-{number + 1:05}-of-{len(shards):05}.safetensors" for number in range(len(shards))]
    names = names if len(shards) > 1 else [TENSORS]
    for name, shard in zip(names, shards, strict=True):
        write_whole(directory / name, save(shard, {"format": "pt"}))
    if len(shards) > 1:
        where = {tensor_name: name for name, shard in zip(names, shards, strict=True) for tensor_name in shard}
        size = sum(array.nbytes for array in tensors.values())
        write_json(directory / INDEX, {"metadata": {"total_size": size}, "weight_map": where})
    dtype = next(iter(tensors.values())).dtype.name
    write_json(directory / CONFIG, config_to_hub(config) | {"dtype": dtype, "torch_dtype": dtype})

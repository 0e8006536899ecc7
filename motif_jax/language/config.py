"""What a language model is built from: sizes and styles.

All families here are one network with switches: blocks of attention and a multi-layer perceptron (MLP), each with a
norm before it and a residual connection around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from motif_jax.config.table import shown
from motif_jax.structs import UserError

DECODERS = ("gpt2", "llama", "mistral", "qwen2", "qwen3")
ENCODER_DECODERS = ("t5",)
FAMILIES = (*DECODERS, *ENCODER_DECODERS)
SMALLEST_NUMBER, LARGEST_NUMBER = 1e-12, 1e12  # of a number in the config of a model
USABLE = f"{SMALLEST_NUMBER:g} to {LARGEST_NUMBER:g}"
ACTIVATIONS = ("relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu")


class Rotary(NamedTuple):
    """Rotary positions (Su et al. 2021): `theta` is the base; the rest stretches them for long contexts."""

    theta: float = 10_000.0
    kind: str = "default"  # "linear" divides all frequencies by `factor`, "llama3" the low ones only
    factor: float = 1.0
    low: float = 1.0  # "llama3": frequencies of fewer turns in `old_length` are divided by `factor`
    high: float = 4.0  # "llama3": those of more turns are left; between the two it is gradual
    old_length: int = 0  # "llama3": longest context before the stretching


class LanguageConfig(NamedTuple):
    """Sizes and styles of a language model."""

    family: str  # of FAMILIES
    vocabulary: int  # rows of the embedding; may be more than the tokeniser has
    width: int  # of the hidden states
    layers: int  # of the decoder
    heads: int
    head_size: int
    mlp_size: int
    activation: str  # of ACTIVATIONS
    gated: bool  # the MLP is down(act(gate(x)) * up(x)), and not down(act(up(x)))
    norm: str  # "layer" or "rms"
    epsilon: float  # of the norms
    positions: str  # "learned", "rotary" or "relative"
    tied: bool  # logits are made with the embedding, and not with a matrix of their own
    kv_heads: int  # keys and values; queries share them in groups
    encoder_layers: int = 0  # 0: a decoder alone
    max_positions: int = 0  # longest row of tokens; 0: no limit
    attention_bias: bool = False  # of queries, keys and values
    output_bias: bool = False  # of attention's output
    mlp_bias: bool = False
    query_norm: bool = False  # queries and keys are normed, per head
    scale_logits: bool = False  # hidden states are divided by sqrt(width) before the logits (T5 v1.0)
    rotary: Rotary = Rotary()
    buckets: int = 32  # of relative positions
    max_distance: int = 128  # from which on all relative positions are in the last bucket
    start: int = 0  # token with which an encoder-decoder's decoder starts
    pad: int = -1  # padding; -1: there is no such token
    ends: tuple[int, ...] = ()  # tokens that end a text

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether a text is read by an encoder, and continued by a decoder of its own."""
        return self.family in ENCODER_DECODERS


def to_record(config: LanguageConfig) -> dict[str, Any]:
    """An architecture as JSON holds it."""
    return config._asdict() | {"rotary": list(config.rotary), "ends": list(config.ends)}


def from_record(record: Mapping[str, Any]) -> LanguageConfig:
    """The architecture that `to_record` wrote."""
    rotary = Rotary(*record["rotary"])
    config = LanguageConfig(**{**record, "rotary": rotary, "ends": tuple(record["ends"])})
    for name, value in {"epsilon": config.epsilon, **rotary._asdict()}.items():
        if name not in ("kind", "old_length") and not is_usable(value):
            raise UserError(f"{name} of a language model is {shown(value)}, where {USABLE} is possible")
    return config


def is_usable(value: float) -> bool:
    """Whether float32 computes with a number of a config, multiplied and divided by others, without an overflow."""
    return SMALLEST_NUMBER <= value <= LARGEST_NUMBER

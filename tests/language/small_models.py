"""Small random models of every family, made by transformers and read by us, once per process."""

import functools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax import nnx

from motif_jax.language.hub import read_language_model

VOCABULARY = 61
LLAMA = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 128,
    "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}  # fmt: skip
T5 = {
    "vocab_size": VOCABULARY, "d_model": 32, "d_kv": 12, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 16, "relative_attention_max_distance": 24, "decoder_start_token_id": 0,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {  # name: class in transformers, values of its config
    "gpt2": ("GPT2", {
        "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "bos_token_id": 2,
        "eos_token_id": 1, "pad_token_id": 0}),
    "llama": ("Llama", LLAMA),
    "llama3": ("Llama", LLAMA | {
        "rope_parameters": LLAMA3, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    "qwen2": ("Qwen2", LLAMA),
    "qwen3": ("Qwen3", LLAMA | {"head_dim": 12, "tie_word_embeddings": True}),
    "mistral": ("Mistral", LLAMA | {"sliding_window": None}),
    "t5": ("T5", T5 | {"feed_forward_proj": "relu"}),
    "flan": ("T5", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}  # fmt: skip
CLASSES = {"T5": "T5ForConditionalGeneration", "GPT2": "GPT2LMHeadModel"}
ALL = list(MODELS)
FEW = ["gpt2", "qwen3", "flan"]  # one with learned, rotary, relative positions each
_FOLDER = tempfile.TemporaryDirectory(prefix="motif_jax-language-")


class Small(NamedTuple):
    directory: Path
    theirs: Any
    model: Any  # ours
    graph: Any
    params: Any
    config: Any

    @property
    def is_encoder_decoder(self) -> bool:
        return self.config.is_encoder_decoder


@functools.cache
def make_small(name: str) -> Small:
    """A random model whose weights are far from zero, so that every part of it shows in the logits."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: bash launch/test.sh installs it")
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install motif_jax[dev]")
    kind, values = MODELS[name]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = getattr(transformers, f"{kind}Config")(**values)
    theirs = getattr(transformers, CLASSES.get(kind, f"{kind}ForCausalLM"))(config).eval()
    with torch.no_grad():
        if name == "flan":  # untied: transformers itself makes no such models any more, but reads and writes them
            theirs.lm_head.weight = torch.nn.Parameter(torch.zeros(VOCABULARY, 32))
        for parameter in theirs.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(1 + 0.3 * noise if parameter.ndim == 1 else noise * 0.25)
    directory = Path(_FOLDER.name) / name
    theirs.save_pretrained(directory)
    graph, params, read = read_language_model(directory)
    params = jax.tree.map(jax.numpy.asarray, params)
    return Small(directory, theirs, nnx.merge(graph, params), graph, params, read)


def compute_logits(name: str, params: Any, *arguments: np.ndarray) -> jax.Array:
    """All logits of tokens and segments; for an encoder-decoder, what its decoder reads and its segments follow."""
    model = nnx.merge(make_small(name).graph, params)
    return model.logits(model(*(jax.numpy.asarray(argument, jax.numpy.int32) for argument in arguments)))


@functools.cache
def logits_program(name: str) -> Any:
    return jax.jit(functools.partial(compute_logits, name))


def logits_of(name: str, *arguments: np.ndarray) -> np.ndarray:
    arguments = tuple(np.asarray(argument, np.int32) for argument in arguments)
    return np.asarray(logits_program(name)(make_small(name).params, *arguments))


def some_tokens(num_rows: int = 3, length: int = 11, seed: int = 0) -> np.ndarray:
    """[B, L]"""
    return np.random.default_rng(seed).integers(3, VOCABULARY, (num_rows, length))

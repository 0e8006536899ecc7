"""Small GGUF files as llama.cpp's converter makes them, written with the library `gguf`; and a slow tokeniser."""

from __future__ import annotations

import functools
import itertools
import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import nnx
from own_models import make_random

from motif_jax.language.config import make_config
from motif_jax.language.hub import parts_of

TEXTS = [
    "Goal of the agent: go to the red ball. You see a grey key 2 steps left and 13 steps forward, a wall",
    "turn left, turn right, go forward, don't pick up, they'll drop 1234567 things",
    "été café naïve ЖЖЖ 日本語 \n\n\n x  y\t z",
]  # fmt: skip
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # control tokens
OWN = ["<tool_call>", "<think>"]  # added tokens that are not special
WHOLE = "Ġunmergeable"  # a word that no merges make
ROWS, WIDTH = 512, 64  # of the embedding; more than there are tokens
FAMILIES = ("llama", "qwen2", "qwen3")
THEIRS = {
    "embedding": "token_embd.weight", "stack.norm.scale": "output_norm.weight", "head.kernel": "output.weight",
    "attention_norm.scale": "attn_norm.weight", "mlp_norm.scale": "ffn_norm.weight",
    **{f"attention.{it}.kernel": f"attn_{it}.weight" for it in "qkv"}, "attention.o.kernel": "attn_output.weight",
    **{f"attention.{it}.bias": f"attn_{it}.bias" for it in "qkv"}, "attention.o.bias": "attn_output.bias",
    **{f"attention.{it}_norm.scale": f"attn_{it}_norm.weight" for it in "qk"},
    **{f"mlp.{it}.kernel": f"ffn_{it}.weight" for it in ("gate", "up", "down")},
}  # fmt: skip


@functools.cache
def vocabulary_of() -> tuple[list[str], list[str]]:
    """Tokens and merges of a BPE of bytes that was trained on a few texts. Skips without the library."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install motif_jax[language]")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420, show_progress=False, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(TEXTS * 3, trainer)
    model = json.loads(made.to_str())["model"]
    words = sorted(model["vocab"], key=model["vocab"].get)
    return words, [" ".join(pair) for pair in model["merges"]]


@functools.cache
def make_model(family: str, width: int = WIDTH) -> Any:
    """A random model whose norms and biases are random, too; that of llama is tied, and its heads share keys."""
    more = {"num_key_value_heads": 2, "rope_theta": 5000.0, "pad_token_id": None, "eos_token_id": None}
    more |= {"tie_word_embeddings": family == "llama", "max_position_embeddings": 256, "rms_norm_eps": 1e-5}
    more |= {"head_dim": 128} if family == "qwen3" else {}  # transformers does not read attention.key_length
    config = make_config(family, vocabulary=ROWS, width=width, layers=2, heads=4, **more)
    return make_random(config)


def tensors_of(family: str, width: int = WIDTH) -> dict[str, np.ndarray]:
    """Its tensors, with the names and the order of rows of llama.cpp."""
    from motif_jax.devices.parameters import leaves_by_path

    model = make_model(family, width)
    leaves = leaves_by_path(nnx.state(model, nnx.Param))
    tensors = {}
    for part in parts_of(model.config, leaves):
        theirs = THEIRS[".".join(part.path).removeprefix("stack.blocks.")]
        array = np.asarray(leaves[part.path])[part.index]
        array = array.T if part.transposed else array
        if family == "llama" and theirs.startswith(("attn_q.", "attn_k.")):  # as convert_hf_to_gguf.py does it
            heads = model.config.heads if "_q" in theirs else model.config.kv_heads
            halves = array.reshape(heads, 2, len(array) // heads // 2, *array.shape[1:])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        tensors[theirs if part.index is ... else f"blk.{part.index}.{theirs}"] = np.ascontiguousarray(array)
    return tensors


def metadata_of(family: str, width: int = WIDTH, pre: str = "gpt-2") -> dict[str, Any]:
    """Its metadata; numbers are written as UINT32, FLOAT32 and BOOL."""
    config = make_model(family, width).config
    words, merges = vocabulary_of()
    tokens = [*MARKS, *words, WHOLE, *OWN, "<|extra|>"]
    kinds = [3] * len(MARKS) + [1] * len(words) + [1] + [4] * len(OWN) + [3]
    tokens += [f"[PAD{number}]" for number in range(len(tokens), ROWS)]
    sizes = {
        "block_count": config.layers, "context_length": config.max_positions, "embedding_length": config.width,
        "feed_forward_length": config.mlp_size, "attention.head_count": config.heads,
        "attention.head_count_kv": config.kv_heads, "rope.freq_base": config.rotary.theta,
        "attention.layer_norm_rms_epsilon": config.epsilon, "rope.dimension_count": config.head_size,
        "attention.key_length": config.head_size,
    }  # fmt: skip
    return {
        "general.name": "small", "general.tags": ["a", "b"], "general.file_type": 0,
        **{f"{family}.{name}": value for name, value in sizes.items()},
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds + [5] * (ROWS - len(kinds)), "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
    }  # fmt: skip


def write_gguf(
    file: Path, family: str = "llama", kind: str = "F32", width: int = WIDTH, pre: str = "gpt-2",
    changes: dict[str, Any] | None = None, tensors: dict[str, np.ndarray | None] | None = None, arch: str = "",
) -> Path:  # fmt: skip
    """Writes a model. `kind`: of its matrices. `changes` and `tensors` replace values, or remove them with None."""
    gguf = pytest.importorskip("gguf", reason="needs gguf: pip install motif_jax[language]")
    writer = gguf.GGUFWriter(file, arch or family)
    add = {bool: "add_bool", int: "add_uint32", float: "add_float32", str: "add_string", list: "add_array"}
    for name, value in (metadata_of(family, width, pre) | (changes or {})).items():
        if value is not None:
            getattr(writer, add[type(value)])(name, value)
    quantised = gguf.GGMLQuantizationType[kind]
    for name, tensor in (tensors_of(family, width) | (tensors or {})).items():
        if tensor is not None and kind != "F32" and tensor.ndim > 1:
            writer.add_tensor(name, gguf.quants.quantize(tensor, quantised), raw_dtype=quantised)
        elif tensor is not None:
            writer.add_tensor(name, tensor)
    finish(writer)
    return file


def finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- a slow tokeniser

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CUTS = {  # expressions that cut a text, one after the other
    "gpt-2": [GPT2], "smollm": [r"\p{N}", GPT2], "qwen2": [GPT4 % r"\p{N}"], "llama-bpe": [GPT4 % r"\p{N}{1,3}"],
}  # fmt: skip


class SlowTokeniser:
    """BPE of bytes by its definition: cut the text, then merge the first pair in the list until none is left."""

    def __init__(self, metadata: dict[str, Any]):
        self.pre = metadata["tokenizer.ggml.pre"]
        self.ids = {word: number for number, word in enumerate(metadata["tokenizer.ggml.tokens"])}
        self.ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(metadata["tokenizer.ggml.merges"])}
        kinds = metadata["tokenizer.ggml.token_type"]
        self.added = [word for word, kind in zip(self.ids, kinds, strict=True) if kind in (3, 4)]
        visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
        hidden = [byte for byte in range(256) if byte not in visible]
        self.letters = {byte: chr(byte) for byte in visible} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}

    def encode(self, text: str) -> list[int]:
        import regex

        tokens = []
        marks = "|".join(regex.escape(word) for word in sorted(self.added, key=len, reverse=True))
        for piece in regex.split(f"({marks})", text):
            if piece in self.added:
                tokens.append(self.ids[piece])
                continue
            pieces = [unicodedata.normalize("NFC", piece) if self.pre == "qwen2" else piece]
            for cut in CUTS[self.pre]:
                pieces = [part for whole in pieces for part in regex.findall(rf"{cut}|(?:(?!{cut})[\s\S])+", whole)]
            for part in pieces:
                tokens += self.merge([self.letters[byte] for byte in part.encode()])
        return tokens

    def merge(self, parts: list[str]) -> list[int]:
        if self.pre == "llama-bpe" and "".join(parts) in self.ids:
            return [self.ids["".join(parts)]]
        while pairs := [pair for pair in itertools.pairwise(parts) if pair in self.ranks]:
            best, merged = min(pairs, key=self.ranks.__getitem__), []
            while parts:
                whole = tuple(parts[:2]) == best
                merged.append("".join(parts[:2]) if whole else parts[0])
                parts = parts[2:] if whole else parts[1:]
            parts = merged
        return [self.ids[part] for part in parts if part in self.ids]


HOSTILE = [
    "", " ", "    a     b  ", "\n\n\n", "\t \r\n x\r", "a" * 300, " " * 300, "don't DON'T we'LL I’m 'S",
    "1 12 123 1234 12345678901234567890 3.14 1e9 ½ ²³ Ⅷ ٣٤٥ १२३ ๑๒ \U0001d7d8\U0001d7d9 ①⑵ 一二三",
    "e\u0301 a\u0308\u0327 \u1e9b\u0323 \u00c5 \u212b \ufb01 \u1100\u1161 \uac00\u11a8",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\U0001f3fd \U0001f1e9\U0001f1ea \u2602\ufe0f \U0001f680\U0001f680",
    "\x00\x01\x04\x06\x13\x1d\x7f\x80\x85\xa0\u2028\u2029\ufeff", "\ufffd\ufffe\U0010ffff",
    "\ud800 lone \udfff".encode("utf-8", "replace").decode(),
    "日本語のテキスト、汉字。 עברית العربية ไทย हिन्दी தமிழ்",
    "<|im_start|>user\nHello <|im_end|><|im_end|>x<|endoftext|> <|im_ start|> <tool_call>{}</tool_call>",
    "<|<|im_end|>|>", "Ġa Ċ âĢĻ", "x\u0301\u0302\u0303" * 20, "«¿¡» §±÷ ¶ \u00ad", "http://a.b/c?d=e&f=%20#g",
    "def f(x):\n    return x**2  # ok\n", "ǅ ǈ ŉ İ ı ß ẞ σς", "\u202eabc\u202c", "A\u0300\u0316 \u0345\u0301",
    "\u3000\u2003 \u200b\u2060x",
]  # fmt: skip

"""Language models in GGUF files: config, tokeniser and tensors. Does not load JAX.

    "GGUF", version, number of tensors, number of metadata
    metadata: name, type, value          sizes, the tokeniser's tokens and merges, the chat template
    tensors: name, sizes, type, offset   each in its type: floats, or blocks of quantised numbers
    the tensors' numbers

Such a file comes from other people. Every length in it is compared with the bytes that the file has before anything
is read or allocated. The library `gguf` dequantises. Its own reader is not used: it trusts the lengths, and takes ten
seconds for the tokens of a small model.

The tensors get the names and orientation of Hugging Face's files. llama.cpp rotates the neighbours (2i, 2i + 1) of a
head where Hugging Face rotates (i, i + H/2), so files of the family llama have the rows of queries and keys in another
order.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from motif_jax.language.config import LanguageConfig, config_from_hub, well_formed
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import open_regular
from motif_jax.tokens import Tokeniser, tokeniser_from_text

FAMILIES = ("llama", "qwen2", "qwen3")  # general.architecture
VERSIONS = (2, 3)
HEADER, ITEMS = 2**27, 2**22  # maximum bytes and items before the tensors; the largest vocabularies have a quarter
SCALARS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))  # types of numbers, and those of `struct`
TEXT, ARRAY = 8, 9  # further types of metadata
TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
CHUNK = 2**18  # numbers that are dequantised at a time, whole blocks of each type
TOKENS, KINDS, MERGES = (f"tokenizer.ggml.{name}" for name in ("tokens", "token_type", "merges"))
CONTROL, OWN, UNUSED = 3, 4, 5  # kinds of tokens: special ones, further ones that are added as they are, and fillers
ENDS = ("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>")  # control tokens that end texts
OURS = {  # tensors of a block
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj",
    **{f"attn_{it}": f"self_attn.{it}_proj" for it in "qkv"},
    **{f"attn_{it}_norm": f"self_attn.{it}_norm" for it in "qk"},
    **{f"ffn_{it}": f"mlp.{it}_proj" for it in ("gate", "up", "down")},
}  # fmt: skip
OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}  # fmt: skip
FREQUENCIES = "rope_freqs.weight"


class Header(NamedTuple):
    """Everything before the tensors' numbers."""

    metadata: dict[str, Any]  # the tokeniser's arrays as lists of texts and as NumPy arrays; None for other arrays
    tensors: dict[str, GgufTensor]


class GgufTensor(NamedTuple):
    """A tensor that stays in its file until it is used."""

    file: str
    kind: str  # one of TYPES
    shape: list[int]  # outputs first
    start: int  # offset in the file
    heads: int = 0  # above 0: the number of heads whose rows are in llama.cpp's order

    @property
    def array(self) -> np.ndarray:
        """The dequantised numbers. float32"""
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        kind = GGMLQuantizationType[self.kind]
        array = np.empty(math.prod(self.shape), np.float32)
        with open(self.file, "rb") as file:
            file.seek(self.start)
            for first in range(0, len(array), CHUNK):
                part = array[first : first + CHUNK]
                data = file.read(_row_bytes(self.kind, len(part)))
                with np.errstate(all="ignore"):  # numbers that are not finite are refused later
                    part[...] = dequantize(np.frombuffer(data, np.uint8)[None], kind)[0]
        if self.heads:
            pairs = array.reshape(self.heads, self.shape[0] // self.heads // 2, 2, -1)
            return pairs.swapaxes(1, 2).reshape(self.shape)
        return array.reshape(self.shape)


def read_header(path: Path) -> Header:
    """Reads everything before the tensors' numbers; raises UserError for another kind of file or a damaged one."""
    if importlib.util.find_spec("gguf") is None:
        raise UserError(f"reading {str(path)!r} needs the library gguf: pip install 'motif_jax[language]'")
    with legible(f"{str(path)!r} as a GGUF file"), well_formed(), open_regular(path) as file:
        return _Bytes(file, path).header()


class _Bytes:
    """Reads a header; compares each length with the bytes that are left."""

    def __init__(self, file: BinaryIO, path: Path):
        self.file, self.path = file, path
        self.size = path.stat().st_size
        self.left, self.items = min(self.size, HEADER), ITEMS

    def header(self) -> Header:
        if self.take(min(4, self.left)) != b"GGUF" or self.number("I") not in VERSIONS:
            raise ValueError("it does not begin with GGUF and the version 2 or 3, little-endian")
        num_tensors, num_values = self.number("Q"), self.number("Q")
        metadata = {(name := self.text()): self.value(name in (TOKENS, KINDS, MERGES)) for _ in range(num_values)}
        described = [self.tensor() for _ in range(num_tensors)]
        align = int(metadata.get("general.alignment", 32))  # ValueError for NaN, with which no comparison is true
        start = end = -(-self.file.tell() // align) * align
        tensors: dict[str, GgufTensor] = {}
        for name, kind, shape, offset in described:
            count = math.prod(shape[:-1]) * _row_bytes(kind, shape[-1])
            end += count  # tensors that share bytes could need more memory than the file has
            if max(start + offset + count, end) > self.size:
                raise ValueError(f"the file ends at {self.size:,} bytes, before the end of its tensor {name!r:.100}")
            tensors[name] = GgufTensor(str(self.path), kind, shape, start + offset)
        return Header(metadata, tensors)

    def take(self, count: int) -> bytes:
        self.left, self.items = self.left - count, self.items - 1
        data = self.file.read(count) if self.left >= 0 and self.items >= 0 else b""
        if len(data) < count:
            raise ValueError(
                f"its header claims more than the {min(self.size, HEADER):,} bytes or {ITEMS:,} items that it can have"
            )
        return data

    def number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self.take(struct.calcsize(kind)))[0]

    def text(self) -> str:
        return self.take(self.number("Q")).decode()

    def value(self, keep: bool) -> Any:
        """One value; None for an array, unless it is to be kept."""
        kind = self.number("I")
        if kind == TEXT:
            return self.text()
        if kind != ARRAY:
            return self.number(SCALARS[kind])
        kind, count = self.number("I"), self.number("Q")
        if kind == TEXT:
            texts = [self.take(self.number("Q")) for _ in range(count)]
            return [text.decode() for text in texts] if keep else None
        data = self.take(count * struct.calcsize(SCALARS[kind]))
        return np.frombuffer(data, f"<{SCALARS[kind]}") if keep else None

    def tensor(self) -> tuple[str, str, list[int], int]:
        """Name, type, shape and offset of a tensor."""
        from gguf.constants import GGMLQuantizationType

        name, dims = self.text(), self.number("I")
        if not 1 <= dims <= 4:
            raise ValueError(f"it has a tensor of {dims} dimensions, not 1 to 4")
        shape = [self.number("Q") for _ in range(dims)][::-1]
        kind = GGMLQuantizationType(self.number("I")).name  # ValueError if there is no such type
        if kind not in TYPES:
            raise ValueError(f"it has a tensor of the type {kind}, but must have {', '.join(TYPES)}")
        return name, kind, shape, self.number("Q")


def _row_bytes(kind: str, numbers: int) -> int:
    """The bytes of a row of `numbers` numbers; raises ValueError if they are not whole blocks."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    numbers_of_block, bytes_of_block = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    if numbers % numbers_of_block:
        raise ValueError(f"it has rows of {numbers:,} numbers in {kind}, whose blocks have {numbers_of_block}")
    return numbers // numbers_of_block * bytes_of_block


# ---- config


def read_gguf_config(path: Path) -> LanguageConfig:
    """Reads the architecture alone."""
    header = read_header(path)
    with legible(f"the model of {str(path)!r}"), well_formed():
        return config_from_hub(_hub_values(*header))


def _hub_values(metadata: dict[str, Any], tensors: dict[str, GgufTensor]) -> dict[str, Any]:
    """The content of the config.json that the metadata stand for."""
    family = metadata.get("general.architecture")
    if family not in FAMILIES:
        raise ValueError(f"its general.architecture must be one of {', '.join(FAMILIES)}, not {family!r:.80}")

    def value(name: str, default: Any = None) -> Any:
        return metadata.get(f"{family}.{name}", default)

    names = {
        "hidden_size": "embedding_length", "num_hidden_layers": "block_count",
        "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
        "max_position_embeddings": "context_length", "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    }  # fmt: skip
    head_size = value("attention.key_length", value("rope.dimension_count"))
    # All numbers of a head are rotated.
    only = {"rope.dimension_count": head_size, "expert_count": 0, "attention.causal": True, "rope.scale_linear": 1.0}
    for name, supported in only.items():
        if value(name, supported) != supported:
            raise ValueError(f"its {family}.{name} is {value(name)!r:.80}, which is not supported")
    # Control tokens with well-known names end a text, too.
    ends = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    if TOKENS in metadata:
        tokens = enumerate(zip(*_words(metadata), strict=True))
        ends += [number for number, (word, kind) in tokens if kind == CONTROL and word in ENDS]
    window = value("attention.sliding_window")
    return {
        "model_type": family, "vocab_size": tensors["token_embd.weight"].shape[0],
        **{name: metadata[f"{family}.{their_name}"] for name, their_name in names.items()},
        "num_key_value_heads": value("attention.head_count_kv"), "rope_theta": value("rope.freq_base"),
        "head_dim": head_size, "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors, "mlp_bias": "blk.0.ffn_up.bias" in tensors,
        "rope_scaling": _rope_scaling(value, tensors), "sliding_window": window,
        "use_sliding_window": window is not None, "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
        "eos_token_id": list(dict.fromkeys(end for end in ends if end is not None)),
    }  # fmt: skip


def _rope_scaling(value: Callable[..., Any], tensors: dict[str, GgufTensor]) -> dict[str, Any] | None:
    """The entry rope_scaling of config.json, which extends rotary positions."""
    kind = value("rope.scaling.type", "none")
    if kind != "none":
        return {"rope_type": kind, "factor": value("rope.scaling.factor")}
    if FREQUENCIES not in tensors:
        return None
    # Llama 3.1 and later: the file has the divisor of each frequency, not the values that they were computed from.
    half, theta = tensors[FREQUENCIES].shape[-1], value("rope.freq_base", 10_000.0)
    divisors = tensors[FREQUENCIES].array
    length, low, high, factor = 8192, 1.0, 4.0, float(divisors.max())
    turns = length * theta ** (-np.arange(half) / half) / (2 * math.pi)
    keep = np.clip((turns - low) / (high - low), 0, 1)
    if not np.allclose(divisors, 1 / (keep + (1 - keep) / factor), rtol=1e-4, atol=0):
        raise ValueError(f"its {FREQUENCIES} extend the context in another way than Llama 3.1")
    return {
        "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
        "original_max_position_embeddings": length,
    }  # fmt: skip


# ---- tensors


def read_gguf_tensors(path: Path, config: LanguageConfig) -> dict[str, GgufTensor]:
    """All tensors by the names in Hugging Face's files, also unknown ones."""
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads} if config.family == "llama" else {}
    tensors = {}
    for name, tensor in read_header(path).tensors.items():
        block = re.fullmatch(r"blk\.(\d{1,4})\.(\w+)\.(weight|bias)", name)
        if block and block[2] in OURS:
            tensor = tensor._replace(heads=heads.get(block[2], 0))
            tensors[f"model.layers.{int(block[1])}.{OURS[block[2]]}.{block[3]}"] = tensor
        elif name != FREQUENCIES:
            tensors[OUTSIDE.get(name, name)] = tensor
    return tensors


# ---- tokeniser


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(digits: str) -> tuple[dict[str, Any], ...]:
    """Words with the character before them, numbers, and the rest with line ends."""
    regex = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return split, _byte_level(use_regex=False)


LLAMA3 = ("llama-bpe", "llama3", "llama-v3")  # take a word that is a token whole; a special token begins each text
PRE_TOKENISERS = {  # the values of tokenizer.ggml.pre, which stand for the tokenisers of published models
    **dict.fromkeys(("default", "gpt-2"), (_byte_level(use_regex=True),)),
    "smollm": ({"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True)),
    "qwen2": _split(r"\p{N}"),
    **dict.fromkeys(LLAMA3, _split(r"\p{N}{1,3}")),
}


def read_gguf_tokeniser(path: Path) -> Tokeniser:
    """The tokeniser of a GGUF file; raises UserError if it cannot be made."""
    metadata = read_header(path).metadata
    with legible(f"the tokeniser of {str(path)!r}", "", UserError), well_formed():
        return tokeniser_from_text(_tokenizer_json(metadata))


def _tokenizer_json(metadata: dict[str, Any]) -> str:
    """The tokenizer.json that the metadata stand for; raises ValueError for an unknown kind of tokeniser."""
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2" or pre not in PRE_TOKENISERS:
        known = f"gpt2 (BPE of bytes) with one of {', '.join(PRE_TOKENISERS)}"
        raise ValueError(f"its tokenizer.ggml.model and .pre must be {known}, not {kind!r:.80} with {pre!r:.80}")
    words, kinds = _words(metadata)
    added = [
        {"id": number, "content": words[number], "special": kinds[number] == CONTROL, "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False}
        for number in range(len(words)) if kinds[number] in (CONTROL, OWN)
    ]  # fmt: skip
    content = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": PRE_TOKENISERS[pre]},
        "post_processor": _template(metadata, words, pre in LLAMA3),
        "decoder": _byte_level(use_regex=True),
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": pre in LLAMA3,
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": [merge.split(" ") for merge in metadata[MERGES]],
        },
    }  # fmt: skip
    return json.dumps(content, ensure_ascii=False)


def _words(metadata: dict[str, Any]) -> tuple[list[str], list[int]]:
    """The tokens and their kinds, without fillers at the end."""
    words = metadata[TOKENS]
    kinds = np.asarray(metadata.get(KINDS, np.ones(len(words))), np.int64)
    if len(kinds) != len(words):
        raise ValueError(f"its {KINDS} is not a number for each of its {len(words):,} tokens")
    size = int(np.flatnonzero(kinds != UNUSED)[-1]) + 1
    return words[:size], kinds[:size].tolist()


def _template(metadata: dict[str, Any], words: list[str], begins: bool) -> dict[str, Any]:
    """The entry of tokenizer.json that puts special tokens around texts; `begins`: by default one before them."""
    special: dict[str, dict[str, Any]] = {}
    single: list[dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    for name, default, at in (("bos", begins, 0), ("eos", False, 2)):
        number = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if metadata.get(f"tokenizer.ggml.add_{name}_token", default) and number is not None:
            special[words[number]] = {"id": words[number], "ids": [number], "tokens": [words[number]]}
            single.insert(at, {"SpecialToken": {"id": words[number], "type_id": 0}})
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


# ---- what is asked of the files of a model


def gguf_files(path: Path) -> GgufFiles | None:
    """The files of a model in this format; None for a directory."""
    return GgufFiles(path) if path.is_file() else None


class GgufFiles:
    """A model in a GGUF file; see `ModelFiles` in hub.py."""

    def __init__(self, path: Path):
        self.path = path

    def read_config(self) -> LanguageConfig:
        return read_gguf_config(self.path)

    def check_tensors(self, config: LanguageConfig) -> object:
        return read_gguf_tensors(self.path, config)

    def read_tensors(self, config: LanguageConfig) -> tuple[LanguageConfig, Mapping[str, GgufTensor]]:
        return config, read_gguf_tensors(self.path, config)

    def find_tokeniser(self) -> Path:
        return self.path

    def read_tokeniser(self) -> Tokeniser:
        return read_gguf_tokeniser(self.path)

    def read_template(self) -> Any:
        return read_header(self.path).metadata.get("tokenizer.chat_template")

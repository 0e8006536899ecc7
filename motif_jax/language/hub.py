"""Language models in directories in the Hugging Face layout, or in GGUF files: never downloaded.

    config.json                       architecture and sizes
    model.safetensors                 all tensors; or several such files and model.safetensors.index.json
    generation_config.json            further tokens that end a text; optional
    tokenizer.json                    see tokens.py
    chat_template.jinja               or in tokenizer_config.json: searched for a known format (chat.py), never executed

A directory with a low-rank adapter in PEFT's layout is read as the adapter's model with its additions, whatever lies
beside it. Our own additions are written so, and transformers loads them:

    adapter_config.json               rank, alpha, names of the matrices, and the model: a directory or a GGUF file here
    adapter_model.safetensors         per matrix lora_A [rank, inputs] and lora_B [outputs, rank]

    matrix + alpha / rank * lora_B @ lora_A        (alpha / sqrt(rank) with use_rslora)

Other kinds of adapters are refused. GGUF files (gguf_file.py) are read, but not written.

Reading executes no code. Sizes and types in these files are checked before memory is allocated, and a UserError names
the first mismatch. Links may lead to other files of the directory or into the "blobs" of the Hub's cache, nowhere else.
JAX is loaded only when parameters are read or written.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from motif_jax.config.table import shown
from motif_jax.files import write_json, write_whole
from motif_jax.language import gguf_file
from motif_jax.language.chat import ChatFormat, recognise_chat
from motif_jax.language.config import LanguageConfig, config_from_hub, config_to_hub, locate_model, well_formed
from motif_jax.structs import UserError, legible, naming
from motif_jax.system.foreign import LIMIT, check_regular, leads_out, parse_foreign_json, read_bytes
from motif_jax.tokens import FILE, SETTINGS, Tokeniser, read_tokeniser

if TYPE_CHECKING:
    from motif_jax.language.model import Decoder, EncoderDecoder, Types

CONFIG, GENERATION, TEMPLATE = "config.json", "generation_config.json", "chat_template.jinja"
TENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = 5 * 10**9  # maximum bytes of a written file of tensors
HEAD = "lm_head.weight"
FLOATS = ("F32", "BF16", "F16", "F64")  # safetensors' names of types


def read_language_model(
    directory: Path, types: Types | None = None, remat: bool = False
) -> tuple[Any, Any, LanguageConfig]:
    """Reads a model: graph and parameters as of `nnx.split`, with NumPy arrays, and the config.

    `directory`: in the layout above, or of an adapter; or a GGUF file, or a name that `locate_model` knows. `types`: of
    its arrays; None: float32.
    """
    from motif_jax.devices.parameters import leaves_by_path, rebuild

    with legible(f"the language model in {str(directory)!r}", "", SafetensorError), well_formed():
        located = locate_model(directory)
        content, additions, directory = find_adapter(located)
        config = read_config(directory)
        tensors: Mapping[str, Tensor | gguf_file.GgufTensor]
        tensors = (
            gguf_file.read_gguf_tensors(directory, config) if directory.is_file() else _read_tensors(directory, config)
        )
        head = tensors.get(HEAD)
        other = tensors.get(f"{hub_names(config)['embedding']}.weight")
        if isinstance(head, Tensor) and (config.tied or config.family == "t5"):  # as in transformers, tensors decide
            config = config._replace(tied=isinstance(other, Tensor) and same(head, other))
        graph, shapes = _split_shapes(config, types, remat)
        wanted = leaves_by_path(shapes)
        parts = [*parts_of(config, wanted)]
        shapes_of = {part.name: list(part.shape) for part in parts}
        if unknown := additions.keys() - set(itertools.chain(*map(_factors_of, shapes_of))):
            raise UserError(f"the adapter in {str(located)!r} has {min(unknown)!r:.200}, which the model lacks")
        found = {name: tensor.shape for name, tensor in tensors.items() if not (name == HEAD and config.tied)}
        if wrong := sorted(name for name in shapes_of | found if shapes_of.get(name) != found.get(name)):
            first = f"the shape of {wrong[0]!r:.200} is {found.get(wrong[0])!s:.100}, not {shapes_of.get(wrong[0])}"
            does = f"{len(wrong):,} tensors in {str(directory)!r} do not fit the {config.family} of its config"
            raise UserError(f"{does}: {first}")
        arrays = {path: np.empty(leaf.shape, leaf.dtype) for path, leaf in wanted.items()}
        for part in parts:
            array, tensor = arrays[part.path][part.index], tensors[part.name]
            view = part.ours(_with_addition(part.name, tensor.array, content, additions))
            for at in range(0, view.shape[-1], 256):  # transposing in strips takes a sixth of the time
                array[..., at : at + 256] = view[..., at : at + 256]
            if not np.isfinite(array).all():
                raise UserError(f"{part.name} in {tensor.file!r} has a value that is not finite")
        return graph, rebuild(shapes, arrays, directory, "the directory of a language model"), config


@functools.lru_cache(maxsize=8)
def _split_shapes(config: LanguageConfig, types: Types | None, remat: bool) -> tuple[Any, Any]:
    """Graph and shapes of the parameters, cached because making them takes longer than reading a small model."""
    from flax import nnx

    from motif_jax.language.model import FLOAT32, make_language_model

    return nnx.split(make_language_model(config, types or FLOAT32, remat, seed=None))


def check_language_model(name: str, flag: str) -> LanguageConfig:
    """Reads all but the numbers of a model; raises UserError, which names `flag`, if it is none. Returns its config."""
    with naming(flag), legible(f"the language model in {name!r}", "", SafetensorError), well_formed():
        directory = locate_model(name)
        base, config = find_adapter(directory)[-1], read_config(directory)
        if base.is_file():
            gguf_file.read_gguf_tensors(base, config)
        else:
            _read_tensors(base, config)
            find_file(directory if os.path.exists(directory / FILE) else base, FILE)
        return config


def read_config(directory: Path) -> LanguageConfig:
    """Reads the architecture alone."""
    directory = find_adapter(locate_model(directory))[-1]
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
        directory = find_adapter(directory)[-1]
    is_file = directory.is_file()
    tokeniser = gguf_file.read_gguf_tokeniser(directory) if is_file else read_tokeniser(find_file(directory, FILE))
    check_size(tokeniser, config, f" in {str(directory)!r}")
    return tokeniser


def read_chat_format(directory: Path) -> ChatFormat | None:
    """The format of conversations that a model has learnt; None if it has none, or an unknown one."""
    directory, template = find_adapter(locate_model(directory))[-1], None
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
    """All tensors by their names in `parts_of`. They stay in their files until they are used."""
    names = [TENSORS]
    if (directory / INDEX).exists():
        names = sorted({*map(str, read_foreign(directory, INDEX)["weight_map"].values())})
        if any(name != os.path.basename(name) for name in names):  # a file has many names such as ././model
            raise ValueError(f"its {INDEX} must name files beside it")
    elif not (directory / TENSORS).exists():
        others = [file.name for file in sorted(directory.glob("*.bin"))]
        why = f"; {others[0]!r} is a pickle, which is not read: save the model with safetensors" if others else ""
        raise UserError(f"there is neither {TENSORS} nor {INDEX} in {str(directory)!r}{why}")
    tensors: dict[str, Tensor] = {}
    for file in names:
        for name, tensor in open_tensors(directory, file).items():
            if (ours := canonical(name, config)) is None:
                continue
            if ours in tensors and not same(tensors[ours], tensor):
                raise UserError(f"{name!r:.200} in {tensor.file!r} is not the same as {ours}, which it should be")
            tensors[ours] = tensor
    return tensors


def write_language_model(directory: Path, model: Decoder | EncoderDecoder, shard_bytes: int = SHARD) -> None:
    """Writes a model for `read_language_model` and transformers; config.json is written last.

    The directory must not contain a model. `shard_bytes`: maximum size of a file of tensors; a larger tensor has its
    own file.
    """
    from flax import nnx

    from motif_jax.devices.parameters import leaves_by_path

    if (directory / CONFIG).exists():
        raise UserError(f"there is a model in {str(directory)!r} already: choose another directory")
    config = model.config
    tensors: dict[str, np.ndarray] = {}
    arrays = {path: np.asarray(leaf) for path, leaf in leaves_by_path(nnx.state(model, nnx.Param)).items()}
    for part in parts_of(config, arrays):
        array = arrays[part.path][part.index]
        part.ours(tensors.setdefault(part.name, np.empty(part.shape, array.dtype)))[...] = array  # a view
    if config.family == "t5" and config.tied and not config.scale_logits:
        tensors[HEAD] = tensors["shared.weight"]  # the config alone would be read as untied
    shards: list[dict[str, np.ndarray]] = [{}]
    for name, array in sorted(tensors.items()):
        if shards[-1] and sum(stored.nbytes for stored in shards[-1].values()) + array.nbytes > shard_bytes:
            shards.append({})
        shards[-1][name] = array
    where: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors" if len(shards) > 1 else TENSORS
        write_whole(directory / file, save(shard, {"format": "pt"}))
        where |= dict.fromkeys(shard, file)
    if len(shards) > 1:
        size = sum(array.nbytes for array in tensors.values())
        write_json(directory / INDEX, {"metadata": {"total_size": size}, "weight_map": where})
    dtype = next(iter(tensors.values())).dtype.name
    write_json(directory / CONFIG, config_to_hub(config) | {"dtype": dtype, "torch_dtype": dtype})


# ---- files of other people's models


class Tensor(NamedTuple):
    """A tensor in an open file, loaded into memory only when used."""

    opened: Any
    name: str  # in its file
    file: str

    @property
    def array(self) -> np.ndarray:
        """The numbers, as a copy; raises UserError if they are not floats."""
        if (dtype := self.opened.get_slice(self.name).get_dtype()) not in FLOATS:
            raise UserError(f"{self.name!r:.200} in {self.file!r} has type {dtype}, but must have {', '.join(FLOATS)}")
        return self.opened.get_tensor(self.name)

    @property
    def shape(self) -> list[int]:
        return self.opened.get_slice(self.name).get_shape()


def read_foreign(directory: Path, name: str, parse: Callable[[bytes], Any] = parse_foreign_json) -> Any:
    """The content of a file of the directory, by default a JSON object."""
    file = find_file(directory, name)
    with legible(repr(str(file))):
        return parse(read_bytes(file, LIMIT))


def find_file(directory: Path, name: str) -> Path:
    """The path of an existing file of the directory; a link may only lead into the directory or the Hub's cache."""
    file = directory / name
    if not file.exists():
        raise UserError(f"there is no {name} in {str(directory)!r}")
    blobs = Path(os.path.realpath(directory)).parent.parent / "blobs"
    if leads_out(file, directory) and Path(os.path.realpath(file)).parent != blobs:
        raise UserError(f"{str(file)!r} is a link that leads out of its directory")
    return file


def open_tensors(directory: Path, name: str) -> dict[str, Tensor]:
    """The tensors in a file of the directory, which the library checks."""
    file = find_file(directory, name)
    with legible(repr(str(file)), "", SafetensorError):
        check_regular(file)
        opened = safe_open(file, "numpy")
        return {name: Tensor(opened, name, str(file)) for name in opened.keys()}  # noqa: SIM118


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same type and values."""
    ours, theirs = one.array, other.array
    return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


# ---- tensors
#
# Maps our parameters to the tensors in Hugging Face files, with one literal table per family. Hugging Face numbers
# tensors by block ("{}" here); ours are stacked over blocks. PyTorch's linear maps are [outputs, inputs], ours are
# [inputs, outputs]. GPT-2 also has [inputs, outputs], with queries, keys and values in one tensor.


class Part(NamedTuple):
    """A part of one of our arrays that is in a single tensor of a file."""

    path: tuple[str, ...]  # of our array
    index: Any  # of the part in it: the number of its block, or all
    name: str  # of the tensor
    shape: tuple[int, ...]  # of the tensor
    transposed: bool
    third: int | None  # 0, 1 or 2: the part is this third of the tensor along its last axis

    def ours(self, tensor: np.ndarray) -> np.ndarray:
        """The part, as a view of the tensor."""
        if self.third is not None:
            tensor = np.split(tensor, 3, -1)[self.third]
        return tensor.T if self.transposed else tensor


# Names of modules in a block: ours, and theirs.
LLAMA = {
    "attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm",
    **{f"attention.{it}": f"self_attn.{it}_proj" for it in "qkvo"},
    **{f"attention.{it}_norm": f"self_attn.{it}_norm" for it in "qk"},
    **{f"mlp.{it}": f"mlp.{it}_proj" for it in ("gate", "up", "down")},
}  # fmt: skip
GPT2 = {
    "attention_norm": "ln_1", "mlp_norm": "ln_2", **{f"attention.{it}": "attn.c_attn" for it in "qkv"},
    "attention.o": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj",
}  # fmt: skip


def _t5(cross: bool, gated: bool) -> dict[str, str]:
    mlp = "layer.2" if cross else "layer.1"
    return {
        "attention_norm": "layer.0.layer_norm", **{f"attention.{it}": f"layer.0.SelfAttention.{it}" for it in "qkvo"},
        "cross_norm": "layer.1.layer_norm", **{f"cross.{it}": f"layer.1.EncDecAttention.{it}" for it in "qkvo"},
        "mlp_norm": f"{mlp}.layer_norm", "mlp.gate": f"{mlp}.DenseReluDense.wi_0",
        "mlp.up": f"{mlp}.DenseReluDense.{'wi_1' if gated else 'wi'}", "mlp.down": f"{mlp}.DenseReluDense.wo",
    }  # fmt: skip


def hub_names(config: LanguageConfig) -> dict[str, str]:
    """Their name for each of our modules, with {} for the number of the block; some models of the family lack some."""
    if config.family == "t5":
        names = {"embedding": "shared"}
        for stack in ("encoder", "decoder"):
            table = _t5(stack == "decoder", config.gated)
            names |= {f"{stack}.blocks.{our}": f"{stack}.block.{{}}.{their}" for our, their in table.items()}
            names[f"{stack}.norm"] = f"{stack}.final_layer_norm"
            names[f"{stack}.relative"] = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
    elif config.family == "gpt2":
        names = {"embedding": "transformer.wte", "positions": "transformer.wpe", "stack.norm": "transformer.ln_f"}
        names |= {f"stack.blocks.{our}": f"transformer.h.{{}}.{their}" for our, their in GPT2.items()}
    else:
        names = {"embedding": "model.embed_tokens", "stack.norm": "model.norm"}
        names |= {f"stack.blocks.{our}": f"model.layers.{{}}.{their}" for our, their in LLAMA.items()}
    return names | {"head": "lm_head"}


def parts_of(config: LanguageConfig, leaves: Mapping[tuple[str, ...], Any]) -> Iterator[Part]:
    """The parts of a model's arrays, or shapes, by their paths."""
    names = hub_names(config)
    for path, leaf in leaves.items():
        module = ".".join(path if ".".join(path) in names else path[:-1])  # without kernel, scale or bias
        name = names[module] + (".bias" if path[-1] == "bias" else ".weight")
        third = "qkv".index(module[-1]) if names[module].endswith("c_attn") else None
        transposed = path[-1] == "kernel" and (config.family != "gpt2" or module == "head")
        stacked = "{}" in name
        shape = leaf.shape[1:] if stacked else leaf.shape
        shape = shape[::-1] if transposed else shape
        if third is not None:
            shape = *shape[:-1], 3 * shape[-1]
        for number in range(leaf.shape[0] if stacked else 1):
            yield Part(path, number if stacked else ..., name.format(number), shape, transposed, third)


# Other names of T5's embedding, some of which files repeat.
ALIASES = dict.fromkeys(("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), "shared.weight")
PREFIXES = {"gpt2": "transformer.", "t5": ""}  # files of a model without head lack the prefix; default: "model."
# Buffers that older versions saved, and an unused table of T5.
UNUSED = (
    ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
)  # fmt: skip


def canonical(name: str, config: LanguageConfig) -> str | None:
    """The name of a tensor in `parts_of`; None for an unused tensor."""
    if name.endswith(UNUSED):
        return None
    prefix = PREFIXES.get(config.family, "model.")
    if name != "lm_head.weight" and not name.startswith(prefix):
        name = prefix + name
    return ALIASES.get(name, name)


# ---- adapters

ADAPTER_CONFIG, ADAPTER = "adapter_config.json", "adapter_model.safetensors"
LORA_PREFIX = "base_model.model."
LORA_ENDS = ".lora_A.weight", ".lora_B.weight"
LORA_PLAIN: dict[str, tuple[Any, ...]] = {  # settings that change the sum, and the values of each that are read
    "peft_type": ("LORA",), "bias": (None, "none"), "use_dora": (None, False), "lora_bias": (None, False),
    "modules_to_save": (None, []), "trainable_token_indices": (None, []), "megatron_config": (None,),
    "target_parameters": (None, []), "alora_invocation_tokens": (None, []), "layer_replication": (None, []),
    "use_qalora": (None, False),
    # With others, such as pissa and loftq, PEFT also changes the model's own matrices when it loads an adapter.
    "init_lora_weights": (None, True, False, "gaussian", "eva", "orthogonal"),
}  # fmt: skip


def find_adapter(directory: Path) -> tuple[dict[str, Any], dict[str, Tensor], Path]:
    """The content of ADAPTER_CONFIG in a directory, and the tensors; both empty if there is no adapter.

    Also returns the directory of the model that the adapter is for, which may be the same.
    """
    if not os.path.exists(directory / ADAPTER_CONFIG):  # False for names too long
        return {}, {}, directory
    content, tensors = read_foreign(directory, ADAPTER_CONFIG), open_tensors(directory, ADAPTER)
    for name, values in LORA_PLAIN.items():
        if content.get(name) not in values:
            file = str(directory / ADAPTER_CONFIG)
            raise UserError(f"{file!r} has {name} {shown(content.get(name))}: only low-rank products are read")
    named = str(content.get("base_model_name_or_path"))
    for path in (Path(named), directory / named):  # also relative to the adapter's own
        with contextlib.suppress(UserError):
            base = locate_model(path)
            break
    else:
        what = f"the model {named!r:.200}, which is not a directory here"
        raise UserError(f"the adapter in {str(directory)!r} is for {what}: put its path into {ADAPTER_CONFIG}")
    if (base / ADAPTER_CONFIG).exists() and not base.samefile(directory):
        raise UserError(f"the model of the adapter in {str(directory)!r}, {str(base)!r}, has an adapter of its own")
    return content, tensors, base


def _factors_of(name: str) -> list[str]:
    """The names of both factors of the addition to the tensor of this name."""
    return [LORA_PREFIX + name.removesuffix(".weight") + end for end in LORA_ENDS]


def _with_addition(
    name: str, tensor: np.ndarray, content: Mapping[str, Any], additions: Mapping[str, Tensor]
) -> np.ndarray:
    """A tensor of the model plus what an adapter adds to it; for the last two see `find_adapter`."""
    if additions.keys().isdisjoint(_factors_of(name)):
        return tensor
    a, b = (additions[factor] for factor in _factors_of(name))
    shape, turned = [*b.shape[:1], *a.shape[1:]], content.get("fan_in_fan_out")
    # Before a product that is larger than any memory.
    if not len(a.shape) == len(b.shape) == 2 or shape[:: -1 if turned else 1] != [*tensor.shape]:
        raise UserError(f"the adapter's {name!r:.200} is {shape}, the model's {list(tensor.shape)}")
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = (part.array.astype(np.float32) for part in (a, b))
        rank = math.sqrt(len(low)) if content.get("use_rslora") else len(low)
        product = high @ low * (_alpha(content, name.removesuffix(".weight")) / rank)
        return (tensor.astype(np.float32) + (product.T if turned else product)).astype(tensor.dtype)


def _alpha(content: Mapping[str, Any], module: str) -> float:
    """That of the first pattern which the end of the module's name matches; patterns must be plain names."""
    for pattern, alpha in (content.get("alpha_pattern") or {}).items():
        name = pattern.replace("\\", "")
        if not re.fullmatch(r"[\w.]+", name):
            raise UserError(f"the adapter's alpha_pattern {pattern!r:.100} is not a module's name")
        if f".{module}".endswith(f".{name}"):
            return float(alpha)
    return float(content["lora_alpha"])


def write_adapter(directory: Path, model: Any, base: str) -> None:
    """Writes the low-rank additions of a model. `base`: the directory, or name, of the model without them."""
    from flax import nnx

    from motif_jax.language.adapt import LowRank

    low = {(*map(str, path), "kernel"): module for path, module in nnx.iter_modules(model) if type(module) is LowRank}
    if not low:
        raise UserError("this language model has no low-rank additions: lora_rank was 0")
    arrays = {path: [np.asarray(factor[...]) for factor in (one.low_a, one.low_b)] for path, one in low.items()}
    factors: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for part in parts_of(model.config, {path: module.base.kernel for path, module in low.items()}):
        a, b = (factor[part.index] for factor in arrays[part.path])
        if part.third is not None:  # each third has its own part of the rank
            size = b.shape[1]
            b = np.pad(b, ((0, 0), (part.third * size, (2 - part.third) * size)))
        factors.setdefault(part.name.removesuffix(".weight"), []).append((a.T, b.T))
    tensors: dict[str, np.ndarray] = {}
    ranks: dict[str, int] = {}
    for name, thirds in factors.items():
        a, b = (np.concatenate(each, axis) for axis, each in enumerate(zip(*thirds, strict=True)))
        tensors |= {f"{LORA_PREFIX}{name}{end}": factor for end, factor in zip(LORA_ENDS, (a, b), strict=True)}
        ranks[name] = len(a)
    module = next(iter(low.values()))
    rank, factor = module.low_a.shape[-1], module.factor
    content = {
        "peft_type": "LORA", "task_type": "SEQ_2_SEQ_LM" if model.config.family == "t5" else "CAUSAL_LM",
        "base_model_name_or_path": base, "r": rank, "lora_alpha": factor * rank, "lora_dropout": 0.0, "bias": "none",
        "target_modules": sorted(factors), "fan_in_fan_out": model.config.family == "gpt2", "inference_mode": True,
        "rank_pattern": {re.escape(name): count for name, count in ranks.items() if count != rank},
        "alpha_pattern": {re.escape(name): factor * count for name, count in ranks.items() if count != rank},
    }  # fmt: skip
    ordered = {name: np.ascontiguousarray(array, np.float32) for name, array in sorted(tensors.items())}
    write_whole(directory / ADAPTER, save(ordered, {"format": "pt"}))
    write_json(directory / ADAPTER_CONFIG, content)

"""Language models in directories in the Hugging Face layout, or in GGUF files: never downloaded.

    config.json                       architecture and sizes
    model.safetensors                 all tensors; or several such files and model.safetensors.index.json
    generation_config.json            further tokens that end a text; optional
    tokenizer.json                    see tokens.py
    chat_template.jinja               or in tokenizer_config.json: searched for a known format (chat.py), never executed

Each format of files has a class with the methods of `ModelFiles`: `HubFiles` for this layout; gguf_file.py has another.
This layout alone is written, too.

Reading executes no code. Sizes and types in these files are checked before memory is allocated, and a UserError names
the first mismatch. Links may lead to other files of the directory or into the "blobs" of the Hub's cache, nowhere else.
JAX is loaded only when parameters are read or written.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from motif_jax.files import write_json, write_whole
from motif_jax.language.chat import ChatFormat, recognise_chat
from motif_jax.language.config import LanguageConfig, config_from_hub, config_to_hub, locate_model, well_formed
from motif_jax.names import READERS, import_named
from motif_jax.structs import UserError, legible, naming
from motif_jax.system.foreign import LIMIT, check_regular, leads_out, parse_foreign_json, read_bytes
from motif_jax.tokens import FILE, SETTINGS, Tokeniser, read_tokeniser

if TYPE_CHECKING:
    from motif_jax.language.model import Decoder, EncoderDecoder, Types

CONFIG, GENERATION, TEMPLATE = "config.json", "generation_config.json", "chat_template.jinja"
TENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER = "adapter_config.json"  # of additions to the model, in formats of plugins
SHARD = 5 * 10**9  # maximum bytes of a written file of tensors
HEAD = "lm_head.weight"
FLOATS = ("F32", "BF16", "F16", "F64")  # safetensors' names of types


def read_language_model(
    directory: Path, types: Types | None = None, remat: bool = False
) -> tuple[Any, Any, LanguageConfig]:
    """Reads a model: graph and parameters as of `nnx.split`, with NumPy arrays, and the config.

    `directory`: or a file, in any format that is read; or a name that `locate_model` knows. `types`: of its arrays;
    None: float32.
    """
    from motif_jax.devices.parameters import leaves_by_path, rebuild

    with legible(f"the language model in {str(directory)!r}", "", SafetensorError), well_formed():
        files = find_files(directory)
        config, tensors = files.read_tensors(files.read_config())
        graph, shapes = _split_shapes(config, types, remat)
        wanted = leaves_by_path(shapes)
        parts = [*parts_of(config, wanted)]
        shapes_of = {part.name: list(part.shape) for part in parts}
        found = {name: tensor.shape for name, tensor in tensors.items()}
        if wrong := sorted(name for name in shapes_of | found if shapes_of.get(name) != found.get(name)):
            first = f"the shape of {wrong[0]!r:.200} is {found.get(wrong[0])!s:.100}, not {shapes_of.get(wrong[0])}"
            does = f"{len(wrong):,} tensors in {str(directory)!r} do not fit the {config.family} of its config"
            raise UserError(f"{does}: {first}")
        arrays = {path: np.empty(leaf.shape, leaf.dtype) for path, leaf in wanted.items()}
        for part in parts:
            array, tensor = arrays[part.path][part.index], tensors[part.name]
            view = part.ours(tensor.array)
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
        files = find_files(name)
        config = files.read_config()
        files.check_tensors(config)
        files.find_tokeniser()
        return config


def read_config(directory: Path) -> LanguageConfig:
    """Reads the architecture alone."""
    return find_files(directory).read_config()


def read_model_tokeniser(directory: Path, config: LanguageConfig) -> Tokeniser:
    """Reads the tokeniser of a model; the embedding must have a row for each token."""
    files = find_files(directory)
    tokeniser = files.read_tokeniser()
    check_size(tokeniser, config, f" in {str(files.find_tokeniser())!r}")
    return tokeniser


def read_chat_format(directory: Path) -> ChatFormat | None:
    """The format of conversations that a model has learnt; None if it has none, or an unknown one."""
    template = find_files(directory).read_template()
    if isinstance(template, list):  # of named templates
        named = (one.get("template") for one in template if isinstance(one, dict) and one.get("name") == "default")
        template = next((text for text in named if isinstance(text, str)), None)
    return recognise_chat(template) if isinstance(template, str) else None


def check_size(tokeniser: Tokeniser, config: LanguageConfig, where: str = "") -> None:
    """Raises UserError if the tokeniser, which comes from `where`, has more tokens than the embedding has rows."""
    if tokeniser.size > config.vocabulary:
        rows = f"the language model's embedding only {config.vocabulary:,} rows"
        raise UserError(f"the tokeniser{where} has {tokeniser.size:,} tokens, but {rows}")


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


# ---- formats


class ModelTensor(Protocol):
    """A tensor that stays in its file until its numbers are used. [outputs, inputs]"""

    @property
    def file(self) -> str: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def array(self) -> np.ndarray: ...


class ModelFiles(Protocol):
    """The files of a language model, in one format; plugins have further ones (`Plugin.readers`).

    Errors of other people's files are ValueErrors, or a UserError that says what is wrong.
    """

    def read_config(self) -> LanguageConfig: ...  # the architecture alone
    def check_tensors(self, config: LanguageConfig) -> object: ...  # all that can be said without reading numbers
    def read_tensors(self, config: LanguageConfig) -> tuple[LanguageConfig, Mapping[str, ModelTensor]]:
        """The tensors by their names in `parts_of`, and the config as these have it."""
        ...

    def find_tokeniser(self) -> Path: ...  # the file; raises UserError without one
    def read_tokeniser(self) -> Tokeniser: ...
    def read_template(self) -> Any: ...  # of conversations, as tokenizer_config.json may have it; None: none


def find_files(name: str | Path) -> ModelFiles:
    """The files of the model of this name, by the first reader that knows their format."""
    path = locate_model(name)
    found = (import_named(reader)(path) for reader in READERS.values())
    if files := next(filter(None, found), None):
        return files
    if os.path.exists(path / ADAPTER):  # False for names too long
        what = f"{str(path)!r} has an adapter, {ADAPTER!r}, which no reader of adapters that is installed reads"
        raise UserError(f"{what}: write the model with the adapter merged, or remove the adapter")
    return HubFiles(path)


class HubFiles:
    """A directory in the layout above."""

    def __init__(self, path: Path):
        self.path = path

    def read_config(self) -> LanguageConfig:
        content = read_foreign(self.path, CONFIG)
        with legible(f"the model in {str(self.path)!r}"):
            config = config_from_hub(content)
            if (self.path / GENERATION).exists():
                more = {"eos_token_id": read_foreign(self.path, GENERATION).get("eos_token_id")}
                ends = (*config.ends, *config_from_hub(content | more).ends)
                config = config._replace(ends=tuple(dict.fromkeys(ends)))
        return config

    def check_tensors(self, config: LanguageConfig) -> dict[str, Tensor]:
        """All tensors by their names in `parts_of`. They stay in their files until they are used."""
        directory = self.path
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

    def read_tensors(self, config: LanguageConfig) -> tuple[LanguageConfig, Mapping[str, ModelTensor]]:
        tensors = self.check_tensors(config)
        head, other = tensors.get(HEAD), tensors.get(f"{hub_names(config)['embedding']}.weight")
        if head and (config.tied or config.family == "t5"):  # as in transformers, tensors decide
            config = config._replace(tied=other is not None and same(head, other))
        if config.tied:
            tensors.pop(HEAD, None)
        return config, tensors

    def find_tokeniser(self) -> Path:
        return find_file(self.path, FILE)

    def read_tokeniser(self) -> Tokeniser:
        return read_tokeniser(self.find_tokeniser())

    def read_template(self) -> Any:
        if (self.path / TEMPLATE).exists():
            return read_foreign(self.path, TEMPLATE, bytes.decode)
        return read_foreign(self.path, SETTINGS).get("chat_template") if (self.path / SETTINGS).exists() else None


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

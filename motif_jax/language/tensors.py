"""Files of other people's language models: JSON, and tensors that stay in their files until they are used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from motif_jax.language.config import LanguageConfig
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import LIMIT, check_regular, leads_out, parse_foreign_json, read_bytes

FLOATS = ("F32", "BF16", "F16", "F64")  # safetensors' names of types


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
    try:
        ours, theirs = one.array, other.array
    except ValueError:  # a shape that NumPy does not support
        return False
    return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


# Maps our parameters to the tensors in Hugging Face files, with one literal table per family.
#
# Hugging Face numbers tensors by block ("{}" here); ours are stacked over blocks. PyTorch's linear maps are [outputs,
# inputs], ours are [inputs, outputs]. GPT-2 also has [inputs, outputs], with queries, keys and values in one tensor.


class HubTensor(NamedTuple):
    """A Hugging Face tensor that contains one of our arrays."""

    name: str  # with {} for the number of the block
    transposed: bool = False
    third: int | None = None  # 0, 1 or 2: our array is this third along the last axis

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the tensor, from the shape of our array in one block."""
        shape = shape[::-1] if self.transposed else shape
        return shape if self.third is None else (*shape[:-1], 3 * shape[-1])

    def ours(self, tensor: np.ndarray) -> np.ndarray:
        """Our array, as a view of the tensor."""
        if self.third is not None:
            tensor = np.split(tensor, 3, -1)[self.third]
        return tensor.T if self.transposed else tensor


LLAMA = {
    "attention_norm.scale": HubTensor("input_layernorm.weight"),
    "mlp_norm.scale": HubTensor("post_attention_layernorm.weight"),
    **{f"attention.{it}.kernel": HubTensor(f"self_attn.{it}_proj.weight", True) for it in "qkvo"},
    **{f"attention.{it}.bias": HubTensor(f"self_attn.{it}_proj.bias") for it in "qkvo"},
    **{f"attention.{it}_norm.scale": HubTensor(f"self_attn.{it}_norm.weight") for it in "qk"},
    **{f"mlp.{it}.kernel": HubTensor(f"mlp.{it}_proj.weight", True) for it in ("gate", "up", "down")},
    **{f"mlp.{it}.bias": HubTensor(f"mlp.{it}_proj.bias") for it in ("gate", "up", "down")},
}
GPT2 = {
    **{f"attention_norm.{our}": HubTensor(f"ln_1.{their}") for our, their in (("scale", "weight"), ("bias", "bias"))},
    **{f"mlp_norm.{our}": HubTensor(f"ln_2.{their}") for our, their in (("scale", "weight"), ("bias", "bias"))},
    **{f"attention.{it}.kernel": HubTensor("attn.c_attn.weight", third=index) for index, it in enumerate("qkv")},
    **{f"attention.{it}.bias": HubTensor("attn.c_attn.bias", third=index) for index, it in enumerate("qkv")},
    "attention.o.kernel": HubTensor("attn.c_proj.weight"),
    "attention.o.bias": HubTensor("attn.c_proj.bias"),
    "mlp.up.kernel": HubTensor("mlp.c_fc.weight"),
    "mlp.up.bias": HubTensor("mlp.c_fc.bias"),
    "mlp.down.kernel": HubTensor("mlp.c_proj.weight"),
    "mlp.down.bias": HubTensor("mlp.c_proj.bias"),
}


def _t5(cross: bool, gated: bool) -> dict[str, HubTensor]:
    mlp = "layer.2" if cross else "layer.1"
    up = "wi_1" if gated else "wi"
    return {
        "attention_norm.scale": HubTensor("layer.0.layer_norm.weight"),
        **{f"attention.{it}.kernel": HubTensor(f"layer.0.SelfAttention.{it}.weight", True) for it in "qkvo"},
        "cross_norm.scale": HubTensor("layer.1.layer_norm.weight"),
        **{f"cross.{it}.kernel": HubTensor(f"layer.1.EncDecAttention.{it}.weight", True) for it in "qkvo"},
        "mlp_norm.scale": HubTensor(f"{mlp}.layer_norm.weight"),
        "mlp.gate.kernel": HubTensor(f"{mlp}.DenseReluDense.wi_0.weight", True),
        "mlp.up.kernel": HubTensor(f"{mlp}.DenseReluDense.{up}.weight", True),
        "mlp.down.kernel": HubTensor(f"{mlp}.DenseReluDense.wo.weight", True),
    }


def hub_tensors(config: LanguageConfig) -> dict[str, HubTensor]:
    """The tensor for each of our names, including names that some models of the family lack."""
    head = {"head.kernel": HubTensor("lm_head.weight", True)}
    if config.family == "t5":
        tensors = {"embedding": HubTensor("shared.weight")} | head
        for stack in ("encoder", "decoder"):
            table = _t5(stack == "decoder", config.gated)
            tensors |= {f"{stack}.blocks.{our}": _below(f"{stack}.block.{{}}.", its) for our, its in table.items()}
            tensors[f"{stack}.norm.scale"] = HubTensor(f"{stack}.final_layer_norm.weight")
            bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            tensors[f"{stack}.relative"] = HubTensor(bias)
        return tensors
    if config.family == "gpt2":
        names = {"embedding": "transformer.wte.weight", "positions": "transformer.wpe.weight",
                 "stack.norm.scale": "transformer.ln_f.weight", "stack.norm.bias": "transformer.ln_f.bias"}  # fmt: skip
        tensors = {our: HubTensor(their) for our, their in names.items()} | head
        return tensors | {f"stack.blocks.{our}": _below("transformer.h.{}.", its) for our, its in GPT2.items()}
    head |= {"embedding": HubTensor("model.embed_tokens.weight"), "stack.norm.scale": HubTensor("model.norm.weight")}
    return head | {f"stack.blocks.{our}": _below("model.layers.{}.", its) for our, its in LLAMA.items()}


def _below(prefix: str, tensor: HubTensor) -> HubTensor:
    return tensor._replace(name=prefix + tensor.name)


ALIASES = {  # other names of a tensor, some of which files repeat
    "t5": {"encoder.embed_tokens.weight": "shared.weight", "decoder.embed_tokens.weight": "shared.weight"}
}
PREFIXES = {"gpt2": "transformer.", "t5": ""}  # files of a model without head lack the prefix; default: "model."
# Buffers that older versions saved, and an unused table of T5.
UNUSED = (
    ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
)  # fmt: skip


def canonical(name: str, config: LanguageConfig) -> str | None:
    """The name of a tensor in `hub_tensors`; None for an unused tensor."""
    if name.endswith(UNUSED):
        return None
    prefix = PREFIXES.get(config.family, "model.")
    if name != "lm_head.weight" and not name.startswith(prefix):
        name = prefix + name
    return ALIASES.get(config.family, {}).get(name, name)


def blocks_of(shape: tuple[int, ...], tensor: HubTensor) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names of the tensors that contain one of our arrays, with the shape of our part of each."""
    if "{}" not in tensor.name:
        yield tensor.name, shape
        return
    for number in range(shape[0]):
        yield tensor.name.format(number), shape[1:]


class Part(NamedTuple):
    """A part of one of our arrays that is in a single tensor."""

    path: tuple[str, ...]  # of our array
    at: Any  # index of the part in it
    name: str  # of the tensor
    place: HubTensor
    shape: tuple[int, ...]  # of the tensor


def parts_of(config: LanguageConfig, leaves: Mapping[tuple[str, ...], Any]) -> Iterator[Part]:
    """All parts of the arrays, or shapes, of a model."""
    places = hub_tensors(config)
    for path, leaf in leaves.items():
        place = places[".".join(path)]
        for number, (name, shape) in enumerate(blocks_of(leaf.shape, place)):
            yield Part(path, number if "{}" in place.name else ..., name, place, place.their_shape(shape))

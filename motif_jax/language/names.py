"""Maps our parameters to the tensors in Hugging Face files, with one literal table per family.

Hugging Face numbers tensors by block ("{}" here); ours are stacked over blocks. PyTorch's linear maps are [outputs,
inputs], ours are [inputs, outputs]. GPT-2 also has [inputs, outputs], with queries, keys and values in one tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from motif_jax.language.config import LanguageConfig


class Place(NamedTuple):
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
    "attention_norm.scale": Place("input_layernorm.weight"),
    "mlp_norm.scale": Place("post_attention_layernorm.weight"),
    **{f"attention.{it}.kernel": Place(f"self_attn.{it}_proj.weight", True) for it in "qkvo"},
    **{f"attention.{it}.bias": Place(f"self_attn.{it}_proj.bias") for it in "qkvo"},
    **{f"attention.{it}_norm.scale": Place(f"self_attn.{it}_norm.weight") for it in "qk"},
    **{f"mlp.{it}.kernel": Place(f"mlp.{it}_proj.weight", True) for it in ("gate", "up", "down")},
    **{f"mlp.{it}.bias": Place(f"mlp.{it}_proj.bias") for it in ("gate", "up", "down")},
}
GPT2 = {
    **{f"attention_norm.{our}": Place(f"ln_1.{their}") for our, their in (("scale", "weight"), ("bias", "bias"))},
    **{f"mlp_norm.{our}": Place(f"ln_2.{their}") for our, their in (("scale", "weight"), ("bias", "bias"))},
    **{f"attention.{it}.kernel": Place("attn.c_attn.weight", third=index) for index, it in enumerate("qkv")},
    **{f"attention.{it}.bias": Place("attn.c_attn.bias", third=index) for index, it in enumerate("qkv")},
    "attention.o.kernel": Place("attn.c_proj.weight"),
    "attention.o.bias": Place("attn.c_proj.bias"),
    "mlp.up.kernel": Place("mlp.c_fc.weight"),
    "mlp.up.bias": Place("mlp.c_fc.bias"),
    "mlp.down.kernel": Place("mlp.c_proj.weight"),
    "mlp.down.bias": Place("mlp.c_proj.bias"),
}


def _t5(cross: bool, gated: bool) -> dict[str, Place]:
    mlp = "layer.2" if cross else "layer.1"
    up = "wi_1" if gated else "wi"
    return {
        "attention_norm.scale": Place("layer.0.layer_norm.weight"),
        **{f"attention.{it}.kernel": Place(f"layer.0.SelfAttention.{it}.weight", True) for it in "qkvo"},
        "cross_norm.scale": Place("layer.1.layer_norm.weight"),
        **{f"cross.{it}.kernel": Place(f"layer.1.EncDecAttention.{it}.weight", True) for it in "qkvo"},
        "mlp_norm.scale": Place(f"{mlp}.layer_norm.weight"),
        "mlp.gate.kernel": Place(f"{mlp}.DenseReluDense.wi_0.weight", True),
        "mlp.up.kernel": Place(f"{mlp}.DenseReluDense.{up}.weight", True),
        "mlp.down.kernel": Place(f"{mlp}.DenseReluDense.wo.weight", True),
    }


def places(config: LanguageConfig) -> dict[str, Place]:
    """The tensor for each of our names, including names that some models of the family lack."""
    head = {"head.kernel": Place("lm_head.weight", True)}
    if config.family == "t5":
        tensors = {"embedding": Place("shared.weight")} | head
        for stack in ("encoder", "decoder"):
            table = _t5(stack == "decoder", config.gated)
            tensors |= {f"{stack}.blocks.{our}": _below(f"{stack}.block.{{}}.", place) for our, place in table.items()}
            tensors[f"{stack}.norm.scale"] = Place(f"{stack}.final_layer_norm.weight")
            bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            tensors[f"{stack}.relative"] = Place(bias)
        return tensors
    if config.family == "gpt2":
        tensors = {"embedding": Place("transformer.wte.weight"), "positions": Place("transformer.wpe.weight")} | head
        tensors |= {f"stack.blocks.{our}": _below("transformer.h.{}.", place) for our, place in GPT2.items()}
        norm = {"stack.norm.scale": "transformer.ln_f.weight", "stack.norm.bias": "transformer.ln_f.bias"}
        return tensors | {our: Place(their) for our, their in norm.items()}
    tensors = {"embedding": Place("model.embed_tokens.weight"), "stack.norm.scale": Place("model.norm.weight")} | head
    return tensors | {f"stack.blocks.{our}": _below("model.layers.{}.", place) for our, place in LLAMA.items()}


def _below(prefix: str, place: Place) -> Place:
    return place._replace(name=prefix + place.name)


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
    """The name of a tensor in `places`; None for an unused tensor."""
    if name.endswith(UNUSED):
        return None
    prefix = PREFIXES.get(config.family, "model.")
    if name != "lm_head.weight" and not name.startswith(prefix):
        name = prefix + name
    return ALIASES.get(config.family, {}).get(name, name)


def blocks_of(shape: tuple[int, ...], place: Place) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names of the tensors that contain one of our arrays, with the shape of our part of each."""
    if "{}" not in place.name:
        yield place.name, shape
        return
    for number in range(shape[0]):
        yield place.name.format(number), shape[1:]

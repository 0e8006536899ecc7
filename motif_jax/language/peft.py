"""Low-rank adapters in PEFT's layout, which transformers loads: written from our additions, and read into a model.

    adapter_config.json            rank, alpha, and names of the matrices
    adapter_model.safetensors      per matrix lora_A [rank, inputs] and lora_B [outputs, rank]

    matrix + alpha / rank * lora_B @ lora_A        (alpha / sqrt(rank) with use_rslora)

The adapter's model is named by `base_model_name_or_path`, which has to be a directory or a GGUF file here. Other kinds
of adapters, and additions that are not low-rank products, are refused.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
from flax import nnx
from safetensors.numpy import save

from motif_jax.config.table import LARGEST, shown
from motif_jax.files import write_json, write_whole
from motif_jax.language.adapt import LowRank
from motif_jax.language.config import locate_model
from motif_jax.language.tensors import Tensor, blocks_of, hub_tensors, open_tensors, read_foreign
from motif_jax.structs import UserError

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
MODEL = "config.json"  # of a directory with a whole model
PREFIX = "base_model.model."
ENDS = {"a": ".lora_A.weight", "b": ".lora_B.weight"}
PLAIN: dict[str, tuple[Any, ...]] = {  # settings that change the sum, and the values of each that are read
    "peft_type": ("LORA",), "bias": (None, "none"), "use_dora": (None, False), "lora_bias": (None, False),
    "modules_to_save": (None, []), "trainable_token_indices": (None, []), "megatron_config": (None,),
    "target_parameters": (None, []), "alora_invocation_tokens": (None, []), "layer_replication": (None, []),
    "use_qalora": (None, False),
    # With others, such as pissa and loftq, PEFT also changes the model's own matrices when it loads an adapter.
    "init_lora_weights": (None, True, False, "gaussian", "eva", "orthogonal"),
}  # fmt: skip
KINDS = {"alpha_pattern": dict, "use_rslora": bool, "fan_in_fan_out": bool}  # of other values that are read, or null


class Adapter(NamedTuple):
    """Additions to the matrices of a model."""

    base: str  # the model's directory
    content: dict[str, Any]  # of CONFIG
    tensors: Mapping[str, Tensor]

    def added(self, name: str, tensor: np.ndarray) -> np.ndarray:
        """The tensor of this name with its addition."""
        module = PREFIX + name.removesuffix(".weight")
        if module + ENDS["a"] not in self.tensors:
            return tensor
        a, b = (self.tensors[module + end] for end in ENDS.values())
        shape, turned = [b.shape[0], a.shape[1]], self.content.get("fan_in_fan_out")
        if shape[:: -1 if turned else 1] != [*tensor.shape]:  # before a product that is larger than any memory
            raise UserError(f"the adapter's {name!r:.200} is {shape}, the model's {list(tensor.shape)}")
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = (part.array.astype(np.float32) for part in (a, b))
            alpha = _alpha(self.content, name.removesuffix(".weight"))
            rank = math.sqrt(len(low)) if self.content.get("use_rslora") else len(low)
            product = high @ low * (alpha / rank)
            added = (tensor.astype(np.float32) + (product.T if turned else product)).astype(tensor.dtype)
        if not np.isfinite(added).all():
            raise UserError(f"{name!r:.200} with the adapter's addition has a value that is not finite")
        return added


def find_adapter(directory: Path) -> tuple[Adapter | None, Path]:
    """The adapter in a directory, if there is one, and the directory of its model, which may be the same."""
    if not os.path.exists(directory / CONFIG):  # False for names too long
        return None, directory
    content, tensors = read_foreign(directory, CONFIG), open_tensors(directory, TENSORS)
    adapter = make_adapter(content, tensors, directory / CONFIG)
    for name in (Path(adapter.base), directory / adapter.base):  # also relative to the adapter's own
        with contextlib.suppress(UserError):
            base = locate_model(name)
            break
    else:
        what = f"the model {adapter.base!r:.200}, which is not a directory here"
        raise UserError(f"the adapter in {str(directory)!r} is for {what}: put its path into {CONFIG}")
    if base.is_dir() and not (base / MODEL).exists():
        raise UserError(f"there is no {MODEL} in {str(base)!r}, the model of the adapter in {str(directory)!r}")
    if (base / CONFIG).exists() and not base.samefile(directory):
        raise UserError(f"the model of the adapter in {str(directory)!r}, {str(base)!r}, has an adapter of its own")
    return adapter, base


def make_adapter(content: dict[str, Any], tensors: Mapping[str, Tensor], file: Path) -> Adapter:
    """Checks an adapter's files; raises UserError for another kind of adapter or tensors that do not fit together."""
    for name, values in PLAIN.items():
        if content.get(name) not in values:
            raise UserError(f"{str(file)!r} has {name} {shown(content.get(name))}: only low-rank products are read")
    base, alpha = content.get("base_model_name_or_path"), content.get("lora_alpha", math.nan)
    if not isinstance(base, str) or not _is_number(alpha):
        raise UserError(f"{str(file)!r} has no base_model_name_or_path and lora_alpha")
    for name, kind in KINDS.items():
        if not isinstance(content.get(name), (kind, NoneType)):
            raise UserError(f"{str(file)!r} has {name} {shown(content[name])}, which must be a {kind.__name__}")
    for name, tensor in tensors.items():
        if not name.startswith(PREFIX) or not name.endswith(tuple(ENDS.values())) or len(tensor.shape) != 2:
            raise UserError(f"the adapter of {str(file)!r} has {name!r:.200}, which is not a low-rank product")
        module = name.rpartition(".lora_")[0]
        a, b = (tensors[module + end].shape if module + end in tensors else [0, 0] for end in ENDS.values())
        if not a[0] or a[0] != b[1]:
            raise UserError(f"lora_A and lora_B of {module!r:.200} in the adapter do not fit each other")
    return Adapter(base, content, tensors)


def check_used(adapter: Adapter, names: set[str], directory: Path) -> None:
    """Raises UserError if the adapter has a matrix that is not among the tensors that were read."""
    modules = (name.removeprefix(PREFIX).rpartition(".lora_")[0] for name in adapter.tensors)
    if unknown := [module for module in modules if f"{module}.weight" not in names]:
        raise UserError(f"the adapter in {str(directory)!r} has {unknown[0]!r:.200}, which the model lacks")


def write_adapter(directory: Path, model: Any, base: str) -> None:
    """Writes the low-rank additions of a model. `base`: the directory, or name, of the model without them."""
    low = [(".".join(map(str, path)), module) for path, module in nnx.iter_modules(model) if type(module) is LowRank]
    if not low:
        raise UserError("this language model has no low-rank additions: lora_rank was 0")
    fused = model.config.family == "gpt2"  # its matrices are [inputs, outputs], and q, k and v are one
    parts: dict[str, dict[int, tuple[np.ndarray, np.ndarray]]] = {}
    for path, module in low:
        hub_tensor = hub_tensors(model.config)[f"{path}.kernel"]
        a, b = np.asarray(module.low_a[...]), np.asarray(module.low_b[...])
        third = -1 if hub_tensor.third is None else hub_tensor.third  # -1: the whole matrix
        for number, (name, _) in enumerate(blocks_of(a.shape, hub_tensor)):
            parts.setdefault(name.removesuffix(".weight"), {})[third] = a[number].T, b[number].T
    tensors: dict[str, np.ndarray] = {}
    ranks: dict[str, int] = {}
    for name, thirds in parts.items():
        a = np.concatenate([low for low, _ in thirds.values()])
        b = np.concatenate([  # each third has its own part of the rank
            high if third < 0 else np.pad(high, ((third * len(high), (2 - third) * len(high)), (0, 0)))
            for third, (_, high) in thirds.items()
        ], 1)  # fmt: skip
        tensors |= {f"{PREFIX}{name}{ENDS['a']}": a, f"{PREFIX}{name}{ENDS['b']}": b}
        ranks[name] = len(a)
    rank, factor = low[0][1].low_a.shape[-1], low[0][1].factor
    content = {
        "peft_type": "LORA", "task_type": "SEQ_2_SEQ_LM" if model.config.family == "t5" else "CAUSAL_LM",
        "base_model_name_or_path": base, "r": rank, "lora_alpha": factor * rank, "lora_dropout": 0.0, "bias": "none",
        "target_modules": sorted(parts), "fan_in_fan_out": fused, "inference_mode": True,
        "rank_pattern": {re.escape(name): count for name, count in ranks.items() if count != rank},
        "alpha_pattern": {re.escape(name): factor * count for name, count in ranks.items() if count != rank},
    }  # fmt: skip
    ordered = {name: np.ascontiguousarray(array, np.float32) for name, array in sorted(tensors.items())}
    write_whole(directory / TENSORS, save(ordered, {"format": "pt"}))
    write_json(directory / CONFIG, content)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST  # False for NaN


def _alpha(content: dict[str, Any], module: str) -> float:
    """That of the first pattern which the end of the module's name matches; patterns must be plain names."""
    for pattern, alpha in (content.get("alpha_pattern") or {}).items():
        name = pattern.replace("\\", "")
        if not re.fullmatch(r"[\w.]+", name) or not _is_number(alpha):
            raise UserError(f"the adapter's alpha_pattern {pattern!r:.100} is not a module's name with a number")
        if f".{module}".endswith(f".{name}"):
            return float(alpha)
    return content["lora_alpha"]

"""Low-rank adapters of language models, in PEFT's layout, which transformers loads. Our own additions are written so.

    adapter_config.json               rank, alpha, names of the matrices, and the model: a directory or a GGUF file here
    adapter_model.safetensors         per matrix lora_A [rank, inputs] and lora_B [outputs, rank]

    matrix + alpha / rank * lora_B @ lora_A        (alpha / sqrt(rank) with use_rslora)

A directory with an adapter is read as the adapter's model with its additions, whatever lies beside it. Other kinds of
adapters are refused. JAX is loaded only when an adapter is written.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save

from motif_jax.config.table import shown
from motif_jax.files import write_json, write_whole
from motif_jax.language.config import LanguageConfig, locate_model
from motif_jax.language.hub import (
    HubFiles,
    ModelFiles,
    ModelTensor,
    Tensor,
    find_file,
    find_files,
    open_tensors,
    parts_of,
    read_foreign,
)
from motif_jax.structs import UserError
from motif_jax.tokens import FILE, Tokeniser, read_tokeniser

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


def adapter_files(path: Path) -> AdapterFiles | None:
    """The files of an adapter and of its model; None for what is no adapter."""
    return AdapterFiles(path) if os.path.exists(path / ADAPTER_CONFIG) else None  # False for names too long


class AdapterFiles:
    """A model with the additions of an adapter; see `ModelFiles` in language/hub.py."""

    def __init__(self, path: Path):
        self.path, self._content = path, read_foreign(path, ADAPTER_CONFIG)
        self._additions = open_tensors(path, ADAPTER)
        for name, values in LORA_PLAIN.items():
            if self._content.get(name) not in values:
                file, value = str(path / ADAPTER_CONFIG), shown(self._content.get(name))
                raise UserError(f"{file!r} has {name} {value}: only low-rank products are read")
        self._base = self._find_base(str(self._content.get("base_model_name_or_path")))

    def _find_base(self, named: str) -> ModelFiles:
        """The files of the model that the adapter is for, which may lie in the same directory."""
        for path in (Path(named), self.path / named):  # also relative to the adapter's own
            with contextlib.suppress(UserError):
                base = locate_model(path)
                break
        else:
            what = f"the model {named!r:.200}, which is not a directory here"
            raise UserError(f"the adapter in {str(self.path)!r} is for {what}: put its path into {ADAPTER_CONFIG}")
        if base.is_dir() and base.samefile(self.path):
            return HubFiles(base)
        if (base / ADAPTER_CONFIG).exists():
            where = f"the model of the adapter in {str(self.path)!r}, {str(base)!r}"
            raise UserError(f"{where}, has an adapter of its own")
        return find_files(base)

    def read_config(self) -> LanguageConfig:
        return self._base.read_config()

    def check_tensors(self, config: LanguageConfig) -> object:
        return self._base.check_tensors(config)

    def read_tensors(self, config: LanguageConfig) -> tuple[LanguageConfig, Mapping[str, ModelTensor]]:
        config, tensors = self._base.read_tensors(config)
        if unknown := self._additions.keys() - set(itertools.chain(*map(_factors_of, tensors))):
            raise UserError(f"the adapter in {str(self.path)!r} has {min(unknown)!r:.200}, which the model lacks")
        return config, {name: self._added(name, tensor) for name, tensor in tensors.items()}

    def _added(self, name: str, tensor: ModelTensor) -> ModelTensor:
        if self._additions.keys().isdisjoint(_factors_of(name)):
            return tensor
        low, high = (self._additions[factor] for factor in _factors_of(name))
        return Added(name, tensor, low, high, self._content)

    def find_tokeniser(self) -> Path:
        return find_file(self.path, FILE) if os.path.exists(self.path / FILE) else self._base.find_tokeniser()

    def read_tokeniser(self) -> Tokeniser:
        own = os.path.exists(self.path / FILE)
        return read_tokeniser(self.find_tokeniser()) if own else self._base.read_tokeniser()

    def read_template(self) -> Any:
        return self._base.read_template()


def _factors_of(name: str) -> list[str]:
    """The names of both factors of the addition to the tensor of this name."""
    return [LORA_PREFIX + name.removesuffix(".weight") + end for end in LORA_ENDS]


class Added(NamedTuple):
    """A tensor of the model plus what an adapter adds to it."""

    name: str
    tensor: ModelTensor
    low: Tensor
    high: Tensor
    content: Mapping[str, Any]  # of ADAPTER_CONFIG

    @property
    def file(self) -> str:
        return self.tensor.file

    @property
    def shape(self) -> list[int]:
        return self.tensor.shape

    @property
    def array(self) -> np.ndarray:
        """The sum; raises UserError if the product has another shape."""
        tensor, a, b, turned = self.tensor.array, self.low, self.high, self.content.get("fan_in_fan_out")
        shape = [*b.shape[:1], *a.shape[1:]]
        # Before a product that is larger than any memory.
        if not len(a.shape) == len(b.shape) == 2 or shape[:: -1 if turned else 1] != [*tensor.shape]:
            raise UserError(f"the adapter's {self.name!r:.200} is {shape}, the model's {list(tensor.shape)}")
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = (part.array.astype(np.float32) for part in (a, b))
            rank = math.sqrt(len(low)) if self.content.get("use_rslora") else len(low)
            product = high @ low * (_alpha(self.content, self.name.removesuffix(".weight")) / rank)
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

"""Reads policies that write texts, with their values, from the directory of `--stage=train_values`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.devices.checkpoints import find_checkpoints, reading
from motif_jax.devices.parameters import check_parameters, leaves_by_path, rebuild, sum_of_arrays
from motif_jax.language.adapt import with_additions
from motif_jax.language.config import LanguageConfig
from motif_jax.language.hub import read_language_model, read_model_tokeniser
from motif_jax.language.model import Types
from motif_jax.offline.recipes import Recipe, recipe_of
from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser
from motif_jax.transcripts.render import TEMPLATES, LiveRenderer

POLICY = "policy"  # beside the checkpoints: directory of the language model that training began with


class ValueModel(NamedTuple):
    """A language model that writes texts, and the values of these texts."""

    config: LanguageConfig
    graph: Any  # `nnx.merge(graph, parameters)` is a language model
    policy: Any  # parameters
    target: Any  # parameters of "trunk" and "q", if the recipe has them
    online: Any  # parameters of "trunk", "v" and "condition", if the recipe has them
    recipe: Recipe
    tokeniser: Tokeniser
    renderer: LiveRenderer
    allowed: np.ndarray  # tokens that may be generated. [V] bool
    reward_scale: float = 1.0  # rewards were divided by it
    bounds: tuple[float, float] = (-math.inf, math.inf)  # of the targets' Q, as in training

    def checksum(self) -> str:
        return sum_of_arrays({"policy": self.policy, "target": self.target, "online": self.online})


def list_values(path: Path) -> tuple[Path, list[int]]:
    """The directory of checkpoints of a workdir (or of its `values`), and their numbers, ascending."""
    directory = find_checkpoints(path, "values").resolve()
    with reading(directory) as checkpoints:
        return directory, checkpoints.steps()


def read_values(directory: Path, which: str = "last") -> tuple[ValueModel, dict[str, Any]]:
    """Reads a checkpoint of `--stage=train_values` and its metadata from a directory of `list_values`, alone.

    `which`: "last", the number of a checkpoint, or "best": by the return of the games during training, or by the
    validation loss if no games were played.
    """
    with reading(directory) as checkpoints:
        _, saved, metadata = checkpoints.readable(which)
    if "emitted" not in metadata:
        raise UserError(f"the checkpoints in {str(directory)!r} are not of train_values")
    config_of_run = metadata["config"]
    section, training = config_of_run["language"], config_of_run["train_values"]
    bounds = float(training["value_min"]), float(training["value_max"])  # infinite ones are texts
    learnt, target = saved["train"]["learnt"], saved["train"].get("target") or {}
    folder = directory.parent / POLICY
    compute, rank = jnp.dtype(section["dtype"]), section.get("lora_rank", 0)
    types = Types(compute, compute if rank else jnp.dtype(jnp.float32))
    graph, params, config = read_language_model(folder, types)
    tokeniser = read_model_tokeniser(folder, config)
    check_parameters(saved["train"], directory)

    def values_from(parts: dict[str, Any]) -> dict[str, Any]:
        arrays = jax.tree.map(np.asarray, parts)
        models = arrays.keys() & {"policy", "trunk"}
        if rank:
            factor = section["lora_alpha"] / rank
            return arrays | {name: with_additions(params, arrays[name], factor) for name in models}
        return arrays | {name: rebuild(params, leaves_by_path(parts[name]), directory) for name in models}

    online = values_from({name: part for name, part in learnt.items() if name != "q"})
    policy = online.pop("policy", params)
    renderer = LiveRenderer(tokeniser, TEMPLATES[config_of_run["transcripts"]["template"]])
    allowed = allowed_tokens(config.vocabulary, np.array(metadata["emitted"], np.int64), renderer)
    model = ValueModel(
        config, graph, policy, values_from(target), online, recipe_of(metadata["recipe"]), tokeniser, renderer,
        allowed, training["reward_scale"], bounds,
    )  # fmt: skip
    return model, metadata


def allowed_tokens(vocabulary: int, emitted: np.ndarray, renderer: LiveRenderer) -> np.ndarray:
    """Tokens that may be generated: the agent's tokens in the transcripts and its end mark, no other mark. [V] bool"""
    allowed = np.zeros(vocabulary, bool)
    allowed[emitted] = True
    allowed[list(renderer.marks())] = False
    allowed[renderer.stop] = True
    return allowed

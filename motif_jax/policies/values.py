"""Reads policies that write texts, with their values, from the directory of `--stage=train_values`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from motif_jax.devices.checkpoints import find_checkpoints, reading
from motif_jax.devices.parameters import check_parameters, leaves_by_path, rebuild, sum_of_arrays
from motif_jax.language.config import LanguageConfig
from motif_jax.language.hub import read_language_model, read_model_tokeniser
from motif_jax.language.layers import Types
from motif_jax.offline.recipes import Recipe, recipe_of
from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser, digest
from motif_jax.transcripts.live import LiveRenderer
from motif_jax.transcripts.render import TEMPLATES

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
        """Checksum of all parameters."""
        return sum_of_arrays({"policy": self.policy, "target": self.target, "online": self.online})


def list_values(path: Path) -> tuple[Path, list[int]]:
    """The directory of checkpoints of a workdir (or of its `values`), and their numbers, ascending."""
    directory = find_checkpoints(path, "values").resolve()
    with reading(directory) as checkpoints:
        return directory, checkpoints.steps()


def read_values(directory: Path, which: str = "last") -> tuple[ValueModel, dict[str, Any]]:
    """Reads a checkpoint of `--stage=train_values` and its facts; it needs only the `values` directory.

    Args:
      directory: a directory of checkpoints, from `list_values`.
      which: "last", the number of a checkpoint, or "best": by the return of the games during training, or by the
        validation loss if no games were played.
    """
    with reading(directory) as checkpoints:
        _, whole, facts = checkpoints.readable(which)
    try:
        section, training = facts["config"]["language"], facts["config"]["train_values"]
        recipe, template = recipe_of(facts["recipe"]), TEMPLATES[facts["config"]["transcripts"]["template"]]
        emitted, scale = np.array(facts["emitted"], np.int64), float(training["reward_scale"])
        bounds = float(training["value_min"]), float(training["value_max"])
        assert scale > 0
        assert isinstance(facts["config"]["env"], dict)
        assert isinstance(facts["model"], dict)
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise UserError(f"the checkpoints in {str(directory)!r} are not of train_values: {error!r}") from error
    folder = directory.parent / POLICY
    graph, params, config = read_language_model(folder, Types(jnp.dtype(section["dtype"]), jnp.dtype(jnp.float32)))
    tokeniser = read_model_tokeniser(folder, config)
    if digest(tokeniser) != facts["tokeniser"]:
        raise UserError(f"{str(folder)!r} has another tokeniser than the values beside it were trained with")
    check_parameters(whole["train"], directory)
    state = by_first_names(leaves_by_path(whole["train"]))
    learnt, target = state.get("learnt", {}), state.get("target", {})

    def model_from(found: dict[tuple[str, ...], Any]) -> Any:
        return rebuild(params, found, directory)

    policy = model_from(learnt["policy"]) if "policy" in learnt else params
    renderer = LiveRenderer(tokeniser, template)
    model = ValueModel(
        config, graph, policy,
        {name: model_from(found) if name == "trunk" else heads_from(found) for name, found in target.items()},
        {name: model_from(found) if name == "trunk" else heads_from(found) for name, found in learnt.items()
         if name not in ("policy", "q")},
        recipe, tokeniser, renderer, allowed_tokens(config.vocabulary, emitted, renderer), scale,
        bounds,
    )  # fmt: skip
    return model, facts


def allowed_tokens(vocabulary: int, emitted: np.ndarray, renderer: LiveRenderer) -> np.ndarray:
    """Tokens that may be generated: the agent's tokens in the transcripts and its end mark, no other mark. [V] bool"""
    allowed = np.zeros(vocabulary, bool)
    allowed[emitted] = True
    allowed[list(renderer.marks())] = False
    allowed[renderer.stop] = True
    return allowed


def by_first_names(leaves: dict[tuple[str, ...], Any]) -> dict[str, dict[str, dict[tuple[str, ...], Any]]]:
    """Groups the leaves of a tree by the first two names of their paths."""
    found: dict[str, dict[str, dict[tuple[str, ...], Any]]] = {}
    for (part, *names), leaf in leaves.items():
        if names:
            found.setdefault(part, {}).setdefault(names[0], {})[tuple(names[1:])] = leaf
    return found


def heads_from(leaves: dict[tuple[str, ...], Any]) -> Any:
    """Parameters of a head {name: array}, or of a list of heads if names are numbered."""
    if all(len(names) == 1 for names in leaves):
        return {names[0]: np.asarray(leaf) for names, leaf in leaves.items()}
    heads: dict[str, dict[str, Any]] = {}
    for (number, name), leaf in leaves.items():
        heads.setdefault(number, {})[name] = np.asarray(leaf)
    return [heads[number] for number in sorted(heads, key=int)]

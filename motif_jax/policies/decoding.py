"""How texts are decoded: the section `decoding` of the config. Nothing here loads JAX."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from motif_jax.config.table import LARGEST, Flag, Number, Table, Text, Value, Whole, describe_changed, shown
from motif_jax.offline.recipes import Recipe
from motif_jax.structs import UserError

FLAG = "--config.decoding"
KINDS = ("sample", "greedy", "beam", "rerank")
MOST = 100  # betas of a sweep
TABLE: Table = {
    "kinds": Value(Text(), older="sample"),
    "betas": Value(Text(longest=2000), older="0"),
    "clip": Value(Number(-LARGEST, infinite=True), older=math.inf),
    "include_logits": Value(Flag(), older=True),
    "temperature": Value(Number(0), older=1.0),
    "top_k": Value(Whole(), older=0),
    "top_p": Value(Number(0, 1), older=1.0),
    "beams": Value(Whole(1, 1000), older=4),
    "candidates": Value(Whole(1, 10_000), older=8),
    "rerank_values": Value(Number(), older=1.0),
    "rerank_log_prob": Value(Number(), older=0.0),
    "wanted_return": Value(Number(), older=0.0),
    "max_tokens": Value(Whole(1, 2**20), older=64),
    "batch_size": Value(Whole(1, 2**20), older=64),
}


class Decoding(NamedTuple):
    """One way to decode; but for the first two, the values of the table."""

    kind: str = "sample"  # of KINDS
    beta: float = 0.0  # factor of Q - V; 0: the policy as it is
    clip: float = math.inf
    include_logits: bool = True  # False: beta (Q - V) alone decides, and not the policy
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    beams: int = 4
    candidates: int = 8
    rerank_values: float = 1.0
    rerank_log_prob: float = 0.0
    wanted_return: float = 0.0
    max_tokens: int = 64
    batch_size: int = 64

    @property
    def name(self) -> str:
        """What tells the decodings of an evaluation apart."""
        kind = f"-{self.kind}" if self.kind != "sample" else ""
        return f"beta{self.beta:g}{kind}{'' if self.include_logits else '-without-logits'}"


Used = Callable[[Decoding, Recipe], bool]
_drawn: Used = lambda one, _: one.kind in ("sample", "rerank")  # noqa: E731
_beams: Used = lambda one, _: one.kind == "beam"  # noqa: E731
_reranked: Used = lambda one, _: one.kind == "rerank"  # noqa: E731
OF_ONE_KIND = (_beams, _reranked)
USED_BY: dict[str, Used] = {  # when each value has an effect
    "clip": lambda one, recipe: recipe.values == "token" and one.beta > 0,
    "temperature": _drawn,
    "top_k": lambda one, recipe: _drawn(one, recipe) and one.temperature > 0,
    "top_p": lambda one, recipe: _drawn(one, recipe) and one.temperature > 0,
    "beams": _beams,
    "candidates": _reranked,
    "rerank_values": _reranked,
    "rerank_log_prob": _reranked,
    "wanted_return": lambda _, recipe: recipe.conditioned,
}


def describe_unused(recipe: Recipe, name: str, decodings: Sequence[Decoding]) -> list[str]:
    """Lines about values of the config that no decoding of a kind uses, with a recipe of this name.

    A value that belongs to one kind (such as `beams`) is reported only if no decoding is of that kind.
    """
    values, lines = decodings[0]._asdict(), []
    for kind in dict.fromkeys(one.kind for one in decodings):
        unused = []
        for key, used in USED_BY.items():
            others = decodings if used in OF_ONE_KIND else [one for one in decodings if one.kind == kind]
            if not any(used(one, recipe) for one in others):
                unused.append(key)
        if said := describe_changed("decoding", TABLE, values, unused):
            lines.append(f"decoding of the kind {kind!r} with the recipe {name!r} makes no use of {said}")
    return lines


def decodings_of(section: Mapping[str, Any]) -> list[Decoding]:
    """All that the section of the config asks for: each kind with each beta; raises UserError for what cannot be."""
    kinds = [kind.strip() for kind in section["kinds"].split(",")]
    for kind in kinds:
        Text(KINDS).check("kind", f"{FLAG}.kinds", kind)
    betas = [_beta(text) for text in section["betas"].split(",")]
    if len(betas) > MOST:
        raise UserError(f"there are {len(betas):,} betas, where at most {MOST} are taken ({FLAG}.betas)")
    rest = {name: section[name] for name in Decoding._fields[2:]}
    return list(dict.fromkeys(Decoding(kind, beta, **rest) for kind in kinds for beta in betas))


def decoding_in_training(recipe: Recipe, section: Mapping[str, Any], beta: float) -> Decoding:
    """How games are decoded while a recipe is learnt: by its values if it has them, with this beta."""
    kind = "rerank" if recipe.decoding == "rerank" else "sample"
    rest = {name: section[name] for name in Decoding._fields[2:]}
    return Decoding(kind, beta if recipe.decoding == "shift" else 0.0, **rest)


def _beta(text: str) -> float:
    try:
        beta = float(text)
    except ValueError:
        beta = math.nan
    if beta < 0:
        raise UserError(f"beta must not be negative, not {shown(text)}: the worse would be preferred ({FLAG}.betas)")
    if not beta < 1e6:
        raise UserError(f"each beta must be a number such as 4, not {shown(text)} ({FLAG}.betas)")
    return beta


def check_decoding(recipe: Recipe, name: str, decodings: list[Decoding]) -> None:
    """Raises UserError if a recipe, of this name, has not learnt what a decoding needs."""
    for one in decodings:
        if one.beta and recipe.values != "token":
            has = "values of whole texts" if recipe.values else "no values"
            raise UserError(
                f"the recipe {name!r} has {has}, so that only beta 0 can be decoded, not {one.beta:g} ({FLAG}.betas)"
            )
        if one.kind == "rerank" and not recipe.values:
            raise UserError(f"the recipe {name!r} has no values by which candidates could be ranked ({FLAG}.kinds)")
        if not one.include_logits and not one.beta:
            raise UserError(
                f"without the policy's logits, beta 0 leaves nothing to decode by ({FLAG}.include_logits, {FLAG}.betas)"
            )

"""The sections `decoding` (how texts are decoded) and `policy.language` of the config. Loads no JAX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from motif_jax.config import table
from motif_jax.config.table import LARGEST, PATH, Flag, Number, Text, Use, Whole, deciding, value
from motif_jax.offline.recipes import Recipe
from motif_jax.rewards.registry import to_number
from motif_jax.structs import UserError

FLAG = "--config.decoding"
KINDS = ("sample", "greedy", "beam", "rerank")
# The predicates take a decoding and a recipe.
SHIFTED = Use("a positive beta", lambda decoding, recipe: recipe.per_token and decoding.beta > 0)
DRAWN = Use("sample and rerank", lambda decoding, _: decoding.kind in ("sample", "rerank"))
WARM = Use("a positive temperature", lambda decoding, recipe: DRAWN.when(decoding, recipe) and decoding.temperature > 0)
BEAMS = Use("beam", lambda decoding, _: decoding.kind == "beam")
RERANKED = Use("rerank", lambda decoding, _: decoding.kind == "rerank")
CONDITIONED = Use("decision_transformer", lambda _, recipe: recipe.conditioned)
OF_ONE_KIND = (BEAMS, RERANKED)


@dataclass(frozen=True)
class Sweep:
    """Decoding in evaluation: the kinds and betas to compare."""

    kinds: str = value("sample", Text(), "sample, greedy, beam, rerank, comma-separated; each is evaluated")
    betas: str = value("0,1,2,4,8,16", Text(longest=2000), "factors of Q - V, added to logits; 0: the policy as it is")


@dataclass(frozen=True)
class Decoding:
    """How a text is decoded."""

    kind: str = "sample"  # one of KINDS
    beta: float = 0.0  # factor of Q - V; 0: the policy as it is
    clip: float = value(
        math.inf, Number(-LARGEST, infinite=True), "largest addition; ILQL's code has 0 for Wordle", only_for=SHIFTED
    )
    include_logits: bool = value(True, Flag(), "False: beta (Q - V) alone decides, for which beta must be above 0")
    temperature: float = value(1.0, Number(0), "temperature", only_for=DRAWN)
    top_k: int = value(0, Whole(), "top-k sampling; 0: off", only_for=WARM)
    top_p: float = value(1.0, Number(0, 1), "top-p sampling; 1: off", only_for=WARM)
    beams: int = value(4, Whole(1, 1000), "beams", only_for=BEAMS)
    candidates: int = value(8, Whole(1, 10_000), "candidates, the best of which is written", only_for=RERANKED)
    rerank_values: float = value(1.0, Number(), "factor of a candidate's value, or sum of Q - V", only_for=RERANKED)
    rerank_log_prob: float = value(0.0, Number(), "factor of a candidate's log-probability", only_for=RERANKED)
    wanted_return: float = value(0.0, Number(), "return that the policy is conditioned on", only_for=CONDITIONED)
    max_tokens: int = value(64, Whole(1, 2**20), "maximum tokens of a text, also of a reply that chai learns from")
    batch_size: int = value(64, Whole(1, 2**20), "conversations per batch")

    @property
    def name(self) -> str:
        """A name that is unique among the decodings of an evaluation."""
        kind = f"-{self.kind}" if self.kind != "sample" else ""
        return f"beta{self.beta:g}{kind}{'' if self.include_logits else '-without-logits'}"


@dataclass(frozen=True)
class DecodingSection(Decoding, Sweep):
    """The section `decoding`."""


SHARED = table.table_of(Decoding)  # values that all decodings of an evaluation share
TABLE = table.table_of(DecodingSection)


def describe_unused(recipe: Recipe, decodings: Sequence[Decoding]) -> list[str]:
    """Lines about changed values of the config that no decoding of a kind uses, with a recipe.

    A value of one kind (such as `beams`) is reported only if no decoding has that kind.
    """
    values, lines = asdict(decodings[0]), []
    uses = {key: declared.only_for for key, declared in SHARED.items() if declared.only_for}
    for kind in dict.fromkeys(decoding.kind for decoding in decodings):
        own, unused = [decoding for decoding in decodings if decoding.kind == kind], []
        for key, use in uses.items():
            if not any(use.when(decoding, recipe) for decoding in (decodings if use in OF_ONE_KIND else own)):
                unused.append(key)
        if changed := table.describe_changed("decoding", TABLE, values, unused):
            lines.append(f"decoding of the kind {kind!r} with the recipe {recipe.name!r} makes no use of {changed}")
    return lines


def decodings_of(section: Mapping[str, Any]) -> list[Decoding]:
    """The decodings of the section of the config: each kind with each beta; raises UserError for invalid values."""
    kinds = [kind.strip() for kind in section["kinds"].split(",")]
    for kind in kinds:
        Text(KINDS).check("kind", f"{FLAG}.kinds", kind)
    betas = [to_number(text) for text in section["betas"].split(",")]
    if not all(0 <= beta <= 1e6 for beta in betas):  # a negative one would prefer worse texts
        raise UserError(f"each beta must be a number such as 4, not {table.shown(section['betas'])} ({FLAG}.betas)")
    shared = {name: section[name] for name in SHARED}
    return list(dict.fromkeys(Decoding(kind, beta, **shared) for kind in kinds for beta in betas))


def decoding_in_training(recipe: Recipe, section: DecodingSection, beta: float) -> Decoding:
    """The decoding of games during training: by the recipe's values if it has any, with this beta."""
    shared = {name: getattr(section, name) for name in SHARED}
    return Decoding("rerank" if recipe.reranks else "sample", beta if recipe.shifts else 0.0, **shared)


def check_decoding(recipe: Recipe, decodings: list[Decoding]) -> None:
    """Raises UserError if a decoding needs values that the recipe does not learn, or if nothing decides its tokens."""
    for decoding in decodings:
        if decoding.beta and not recipe.per_token:
            has = "values of whole texts" if recipe.has_values else "no values"
            problem = f"has {has}, so only beta 0 can be decoded, not {decoding.beta:g}"
            raise UserError(f"the recipe {recipe.name!r} {problem} ({FLAG}.betas)")
        if decoding.kind == "rerank" and not recipe.has_values:
            raise UserError(f"the recipe {recipe.name!r} has no values to rank candidates ({FLAG}.kinds)")
        if not (decoding.include_logits or decoding.beta):
            equal = "beta 0 without the policy's logits makes all tokens equally probable"
            raise UserError(f"{equal}: choose include_logits, or only betas above 0 ({FLAG}.include_logits, .betas)")


# The section `policy.language` of the config. Does not load JAX.

LANGUAGE_FLAG = "--config.policy.language"
TRAINED = "trained"  # value of `model`: the model of train_language in this workdir
PRETRAINED, EMBEDDINGS, RANDOM = WEIGHTS = ("pretrained", "embeddings", "random")
SCORE, ACTION = HEADS = ("score", "action")
FORMULAS = ("sum", "mean", "raw_logits", "product")


@dataclass(frozen=True)
class LanguageSection:
    """The network language: a language model is the policy (docs/glam.md)."""

    model: str = deciding(
        "", PATH, "Hugging Face directory, GGUF file, or smollm2; trained: train_language's; empty: a new model"
    )
    weights: str = deciding(PRETRAINED, Text(WEIGHTS), "initial weights: pretrained, only the embeddings, or random")
    family: str = deciding("llama", Text(("gpt2", "llama", "t5")), "architecture of a new model")
    width: int = deciding(64, Whole(2, 2**14), "size of hidden states of a new model")
    layers: int = deciding(2, Whole(1, 200), "layers of a new model")
    heads: int = deciding(4, Whole(1, 256), "attention heads of a new model")
    head: str = deciding(SCORE, Text(HEADS), "score: log-probabilities of actions' names; action: an output per action")
    formula: str = deciding("sum", Text(FORMULAS), "how the log-probabilities of a name's tokens are combined")
    hidden: int = deciding(64, Whole(1, 2**14), "units of the two hidden layers of the value and of the head action")
    reference_heads: bool = deciding(False, Flag(), "heads have sigmoids and nonzero initial outputs, as published")
    lora_rank: int = deciding(0, Whole(0, 2**12), "rank of LoRA; 0: train all parameters")
    lora_alpha: float = deciding(16.0, Number(0, 1e6, above=True), "scale of LoRA: the factor is alpha / rank")
    lora_names: str = deciding("q,v", Text(longest=1000), "matrices with LoRA: q, k, v, o, up, down, gate; cross.q")
    max_tokens: int = deciding(512, Whole(1, 2**20), "maximum tokens of a prompt; a longer one is an error")
    chunk: int = value(0, Whole(0), "prompts per pass of the learner, to save memory; 0: all")
    remat: bool = value(False, Flag(), "recompute hidden states for gradients: less memory, more time")

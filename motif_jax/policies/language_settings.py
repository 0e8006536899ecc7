"""The values of the config of a policy whose network is a language model, `config.policy.language`. Without JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motif_jax.config.table import PATH, Flag, Number, Text, Whole, value
from motif_jax.language.settings import check_model
from motif_jax.structs import UserError

SECTION = "language"
FLAG = f"--config.policy.{SECTION}"
TRAINED = "trained"  # as `model`: what train_language made in this workdir
PRETRAINED, EMBEDDINGS, RANDOM = WEIGHTS = ("pretrained", "embeddings", "random")
SCORE, ACTION = HEADS = ("score", "action")
FORMULAS = ("sum", "mean", "raw_logits", "product")


@dataclass(frozen=True)
class LanguagePolicy:
    """The network language: a language model is the policy (docs/glam.md)."""

    model: str = value(
        "", PATH, "directory as of the Hugging Face Hub; trained: train_language's; empty: a new model", decides=True
    )
    weights: str = value(
        PRETRAINED,
        Text(WEIGHTS),
        "begin with the model's weights, its embeddings alone, or random weights",
        decides=True,
    )
    family: str = value("llama", Text(("gpt2", "llama", "t5")), "of a new model", decides=True)
    width: int = value(64, Whole(2, 2**14), "size of hidden states, of a new model", decides=True)
    layers: int = value(2, Whole(1, 200), "layers of a new model", decides=True)
    heads: int = value(4, Whole(1, 256), "attention heads of a new model", decides=True)
    head: str = value(
        SCORE, Text(HEADS), "score: log-probabilities of actions' names; action: an output per action", decides=True
    )
    formula: str = value(
        "sum", Text(FORMULAS), "how the log-probabilities of a name's tokens are combined", decides=True
    )
    hidden: int = value(
        64, Whole(1, 2**14), "units of the two hidden layers of the value, and of the head action", decides=True
    )
    reference_heads: bool = value(
        False, Flag(), "heads have sigmoids and do not begin at zero, as published", decides=True
    )
    lora_rank: int = value(
        0, Whole(0, 2**12), "train additions of this rank instead of all parameters; 0: all", decides=True
    )
    lora_alpha: float = value(
        16.0, Number(0, 1e6, above=True), "additions are multiplied by alpha / rank", decides=True
    )
    lora_names: str = value(
        "q,v", Text(longest=1000), "matrices with additions: q, k, v, o, up, down, gate; cross.q", decides=True
    )
    max_tokens: int = value(512, Whole(1, 2**20), "most tokens of a prompt; a longer one is an error", decides=True)
    chunk: int = value(0, Whole(0), "prompts that the learner reads at a time, to save memory; 0: all")
    remat: bool = value(False, Flag(), "compute hidden states again for gradients: less memory, more time")


def check_language(section: Mapping[str, Any]) -> None:
    """Raises UserError for values of `config.policy.language` that cannot work; files are only looked for."""
    if section["model"] != TRAINED:
        check_model(section["model"], section["width"], section["heads"], FLAG)
    if section["lora_rank"] and not (section["model"] and section["weights"] == PRETRAINED):
        raise UserError(
            f"additions of low rank to a model that was never trained learn little: choose pretrained weights of a "
            f"model, or lora_rank 0 ({FLAG}.lora_rank, .model, .weights)"
        )

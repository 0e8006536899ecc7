"""The section `policy.language` of the config. Does not load JAX."""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import PATH, Flag, Number, Text, Whole, value
from motif_jax.language.config import check_model
from motif_jax.structs import UserError

FLAG = "--config.policy.language"
TRAINED = "trained"  # value of `model`: the model of train_language in this workdir
PRETRAINED, EMBEDDINGS, RANDOM = WEIGHTS = ("pretrained", "embeddings", "random")
SCORE, ACTION = HEADS = ("score", "action")
FORMULAS = ("sum", "mean", "raw_logits", "product")


@dataclass(frozen=True)
class LanguageSection:
    """The network language: a language model is the policy (docs/glam.md)."""

    model: str = value(
        "",
        PATH,
        "directory in Hugging Face layout, GGUF file, or smollm2; trained: train_language's; empty: a new model",
        decides=True,
    )
    weights: str = value(
        PRETRAINED, Text(WEIGHTS), "initial weights: pretrained, only the embeddings, or random", decides=True
    )
    family: str = value("llama", Text(("gpt2", "llama", "t5")), "architecture of a new model", decides=True)
    width: int = value(64, Whole(2, 2**14), "size of hidden states of a new model", decides=True)
    layers: int = value(2, Whole(1, 200), "layers of a new model", decides=True)
    heads: int = value(4, Whole(1, 256), "attention heads of a new model", decides=True)
    head: str = value(
        SCORE, Text(HEADS), "score: log-probabilities of actions' names; action: an output per action", decides=True
    )
    formula: str = value(
        "sum", Text(FORMULAS), "how the log-probabilities of a name's tokens are combined", decides=True
    )
    hidden: int = value(
        64, Whole(1, 2**14), "units of the two hidden layers of the value and of the head action", decides=True
    )
    reference_heads: bool = value(
        False, Flag(), "heads have sigmoids and nonzero initial outputs, as published", decides=True
    )
    lora_rank: int = value(0, Whole(0, 2**12), "rank of LoRA; 0: train all parameters", decides=True)
    lora_alpha: float = value(
        16.0, Number(0, 1e6, above=True), "scale of LoRA: additions are multiplied by alpha / rank", decides=True
    )
    lora_names: str = value(
        "q,v", Text(longest=1000), "matrices with LoRA: q, k, v, o, up, down, gate; cross.q", decides=True
    )
    max_tokens: int = value(512, Whole(1, 2**20), "maximum tokens of a prompt; a longer one is an error", decides=True)
    chunk: int = value(0, Whole(0), "prompts per pass of the learner, to save memory; 0: all")
    remat: bool = value(False, Flag(), "recompute hidden states for gradients: less memory, more time")


def check_language(section: LanguageSection) -> None:
    """Raises UserError for invalid values of `config.policy.language`; of files it only checks the existence."""
    if section.model != TRAINED:
        check_model(section.model, section.width, section.heads, FLAG)
    if section.lora_rank and not (section.model and section.weights == PRETRAINED):
        raise UserError(
            f"low-rank additions to an untrained model learn little: choose pretrained weights of a model, or "
            f"lora_rank 0 ({FLAG}.lora_rank, .model, .weights)"
        )

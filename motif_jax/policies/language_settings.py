"""The values of the config of a policy whose network is a language model, `config.policy.language`. Without JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motif_jax.config.table import PATH, Flag, Number, Table, Text, Value, Whole
from motif_jax.language.settings import check_model
from motif_jax.structs import UserError

SECTION = "language"
FLAG = f"--config.policy.{SECTION}"
TRAINED = "trained"  # as `model`: what train_language made in this workdir
PRETRAINED, EMBEDDINGS, RANDOM = WEIGHTS = ("pretrained", "embeddings", "random")
SCORE, ACTION = HEADS = ("score", "action")
FORMULAS = ("sum", "mean", "raw_logits", "product")
TABLE: Table = {  # values of the config's section `policy`
    f"{SECTION}.{name}": value
    for name, value in {
        "model": Value(PATH, decides=True, older=""),
        "weights": Value(Text(WEIGHTS), decides=True, older=PRETRAINED),
        "family": Value(Text(("gpt2", "llama", "t5")), decides=True, older="llama"),
        "width": Value(Whole(2, 2**14), decides=True, older=64),
        "layers": Value(Whole(1, 200), decides=True, older=2),
        "heads": Value(Whole(1, 256), decides=True, older=4),
        "head": Value(Text(HEADS), decides=True, older=SCORE),
        "formula": Value(Text(FORMULAS), decides=True, older="sum"),
        "hidden": Value(Whole(1, 2**14), decides=True, older=64),
        "reference_heads": Value(Flag(), decides=True, older=False),
        "lora_rank": Value(Whole(0, 2**12), decides=True, older=0),
        "lora_alpha": Value(Number(0, 1e6, above=True), decides=True, older=16.0),
        "lora_names": Value(Text(longest=1000), decides=True, older="q,v"),
        "max_tokens": Value(Whole(1, 2**20), decides=True, older=512),
        "chunk": Value(Whole(0), older=0),
        "remat": Value(Flag(), older=False),
    }.items()
}


def check_language(section: Mapping[str, Any]) -> None:
    """Raises UserError for values of `config.policy.language` that cannot work; files are only looked for."""
    if section["model"] != TRAINED:
        check_model(section["model"], section["width"], section["heads"], FLAG)
    if section["lora_rank"] and not (section["model"] and section["weights"] == PRETRAINED):
        raise UserError(
            f"additions of low rank to a model that was never trained learn little: choose pretrained weights of a "
            f"model, or lora_rank 0 ({FLAG}.lora_rank, .model, .weights)"
        )

"""Tokenisers of bytes (BPE), such as GPT-2 has: what a directory of the Hugging Face Hub brings along."""

from pathlib import Path

import pytest


def write_byte_tokeniser(directory: Path, texts: list[str], size: int = 300) -> int:
    """Writes tokenizer.json, made for these texts; returns how many tokens there are. Skips without the library."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install motif_jax[language]")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator(texts, trainer)
    made.save(str(directory / "tokenizer.json"))
    return made.get_vocab_size()

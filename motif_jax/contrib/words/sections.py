"""The values of the reward by closeness of words: the section `words`."""

from __future__ import annotations

from dataclasses import dataclass

from motif_jax.config.table import PATH, Number, deciding


@dataclass(frozen=True)
class WordsSection:
    """The kind words of online rewards: closeness to the goal."""

    vectors: str = deciding("", PATH, "file of word vectors in the text format (.vec)")
    floor: float = deciding(-0.5, Number(-1e6, 1e6), "cosines up to this are worth 0")

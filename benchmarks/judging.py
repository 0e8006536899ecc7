"""Ratings of messages by a language model in this process: next tokens after texts that begin alike and share words.

Beside it each text whole, and transformers, whose cache keeps the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from motif_jax.language.hub import write_language_model
from motif_jax.language.hub_config import make_config
from motif_jax.language.loaded import Language
from motif_jax.language.model import make_language_model
from motif_jax.language.next_tokens import NextTokens
from motif_jax.language.texts import pad_rows
from motif_jax.tokens import WordTokeniser

BEGIN, TEXTS, VERDICTS = 150, 128, (1, 2)
VOCABULARY, WIDTH, LAYERS, HEADS = 512, 256, 4, 8


class Judging:
    """One model that is asked about the same texts in several ways. [texts, verdicts] log-probabilities"""

    def __init__(self, folder: Path):
        """`folder`: for the files of the model, which transformers reads."""
        self._folder = folder
        config = make_config("llama", VOCABULARY, WIDTH, LAYERS, HEADS, max_position_embeddings=512)
        self._model = make_language_model(config)
        tokeniser = WordTokeniser.from_texts([" ".join(map(str, range(VOCABULARY - 8)))])
        self._language = Language(self._model, tokeniser)
        rng = np.random.default_rng(0)
        begin = rng.integers(8, VOCABULARY, BEGIN).tolist()
        # As messages do: half of a text is one of a few beginnings.
        starts = [rng.integers(8, VOCABULARY, size).tolist() for size in rng.integers(2, 9, 12)]
        ends = [
            [*starts[rng.integers(12)], *rng.integers(8, VOCABULARY, rng.integers(2, 9)).tolist()] for _ in range(TEXTS)
        ]
        self._begin, self._ends = begin, ends
        self.tokens = sum(map(len, ends))
        self._shared = NextTokens(self._language, VERDICTS)

        @jax.jit
        def whole(params: Any, tokens: jax.Array, segments: jax.Array) -> jax.Array:
            model = nnx.merge(self._language.graph, params)
            last = model(tokens, segments)[np.arange(TEXTS), segments.sum(1) - 1]
            return jax.nn.log_softmax(model.logits(last))[:, np.array(VERDICTS)]

        self._whole = whole

    def shared(self) -> np.ndarray:
        """The verdicts as the backend computes them: the common beginning is read once."""
        return self._shared([[*self._begin, *end] for end in self._ends])

    def whole(self) -> np.ndarray:
        """Each text whole, padded to the longest."""
        tokens, segments = pad_rows([[*self._begin, *end] for end in self._ends], 1)
        return np.asarray(self._whole(self._language.params, tokens, segments))

    def in_torch(self) -> Callable[[], np.ndarray]:
        """In transformers, whose cache of the beginning is repeated for all texts."""
        import torch
        import transformers

        write_language_model(self._folder, self._model)
        transformers.utils.logging.disable_progress_bar()
        model = transformers.AutoModelForCausalLM.from_pretrained(self._folder, dtype=torch.float32).eval()
        tokens, segments = (torch.from_numpy(np.asarray(array)).long() for array in pad_rows(self._ends, 1))
        mask = torch.cat([torch.ones(TEXTS, BEGIN, dtype=torch.long), segments], 1)

        def run() -> np.ndarray:
            with torch.no_grad():
                cache = model(torch.tensor([self._begin]), use_cache=True).past_key_values
                cache.batch_repeat_interleave(TEXTS)
                hidden = model.model(tokens, attention_mask=mask, past_key_values=cache).last_hidden_state
                last = hidden[torch.arange(TEXTS), segments.sum(1) - 1]
                return torch.log_softmax(model.lm_head(last), -1)[:, list(VERDICTS)].numpy()

        return run

"""Turns prompts into tokens on the host, for policies that read text."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from motif_jax.language.texts import pad_rows
from motif_jax.networks.kinds import PROMPT
from motif_jax.policies.text_sections import FLAG
from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser

PADDING = -1  # in arrays of tokens
BUCKET = 32  # rows of tokens are padded to a multiple of this, so that few programs are compiled
REMEMBERED = 2**14  # cached prompts: the learner's batches repeat the prompts of the actors


class Prompts:
    """Turns arrays of prompts into arrays of tokens; any thread may call it."""

    def __init__(self, tokeniser: Tokeniser, max_tokens: int, flag: str = f"{FLAG}.max_tokens", full: bool = False):
        """Prompts longer than `max_tokens` are refused. `full`: pad batches for the learner to this length."""
        self._encode = tokeniser.encode
        self._most, self._flag, self._full = max_tokens, flag, full
        self._tokens = functools.lru_cache(REMEMBERED)(self._read)

    def __call__(self, observations: Mapping[str, Any]) -> np.ndarray:
        """{"prompt": [..., bytes] uint8} -> tokens [..., L] int32, with room for the longest prompt."""
        prompts = np.asarray(observations[PROMPT])
        rows = [self._tokens(row.tobytes().rstrip(b"\0")) for row in prompts.reshape(-1, prompts.shape[-1])]
        # For the learner, batches have more axes, and all hosts need the same width.
        is_full = prompts.ndim > 2 and (self._full or jax.process_count() > 1)
        tokens, segments = pad_rows(rows, BUCKET, self._most if is_full else 1)
        tokens[segments == 0] = PADDING
        return tokens.reshape(*prompts.shape[:-1], -1)

    def _read(self, prompt: bytes) -> np.ndarray:
        text = prompt.decode("utf-8", "replace")
        tokens = self._encode(text)
        if len(tokens) > self._most:
            raise UserError(
                f"a prompt has {len(tokens):,} tokens, but at most {self._most:,} are possible ({self._flag}, or fewer "
                f"observations: --config.env.babyai.window): {text[:100]!r}..."
            )
        return np.asarray(tokens or [0], np.int32)  # a model reads at least one token


def encode_names(
    tokeniser: Tokeniser, names: Sequence[str], flags: str = f"--config.env, {FLAG}.model"
) -> list[list[int]]:
    """The tokens of the names of actions; raises UserError, with these flags, if two names have the same tokens."""
    names_by_tokens: dict[tuple[int, ...], str] = {}
    for name in names:
        tokens = tuple(tokeniser.encode(name))
        if not tokens:
            raise UserError(f"the action {name!r} has no tokens for this network ({flags})")
        if tokens in names_by_tokens:
            raise UserError(
                f"the actions {names_by_tokens[tokens]!r} and {name!r} have the same tokens for this network ({flags})"
            )
        names_by_tokens[tokens] = name
    return [list(tokens) for tokens in names_by_tokens]

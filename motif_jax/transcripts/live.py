"""Tokenises a conversation turn by turn, with the same result as `Renderer` gives for the recorded conversation."""

from __future__ import annotations

import sys

from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser
from motif_jax.transcripts.render import FLAG, Template


class LiveRenderer:
    """Tokenises the turns of a conversation."""

    def __init__(self, tokeniser: Tokeniser, template: Template):
        """Raises UserError unless the agent's texts end with a single token, which stops generation."""
        self._encode = tokeniser.encode
        marks = [[mark] if isinstance(mark, int) else list(tokeniser.encode(mark, marks=True)) for mark in template]
        self._action_start, self._text_start, self._action_end, self._text_end, self._episode_end = marks
        if len(self._action_end) != 1:
            raise UserError(
                f"the agent's text must end with one token, and with this template and tokeniser it ends with "
                f"{len(self._action_end)}: choose another template: words where tokens are words, marks where "
                f"they are letters, else lines ({FLAG})"
            )
        (self.stop,) = self._action_end

    def begin(self, heard: str) -> list[int]:
        """The tokens before the agent's first text; `heard` is the world's opening, or ""."""
        if not heard:
            return list(self._action_start)
        return [*self._text_start, *self._encode(heard), *self._text_end]

    def said(self, text: str) -> list[int]:
        return [*self._encode(text), *self._action_end]

    def heard(self, text: str) -> list[int]:
        """The tokens of the world's answer; empty for an empty answer."""
        return [*self._encode(text), *self._text_end] if text else []

    def marks(self) -> set[int]:
        """The tokens of all marks except the end of the agent's texts, which the agent writes."""
        others = (self._action_start, self._text_start, self._text_end, self._episode_end)
        return {token for mark in others for token in mark} - {self.stop}


class ConversationTokens:
    """The tokens of a conversation that a model reads.

    When little of the model's context is left, the conversation begins anew from the world's last text.
    """

    def __init__(self, renderer: LiveRenderer, heard: str, longest: int, max_tokens: int):
        """`longest`: tokens that the model reads; 0: any number. `max_tokens`: of a text of the agent.

        Little is less than `max_tokens`, and less than an eighth of the context.
        """
        self.tokens, self._renderer, self._heard = renderer.begin(heard), renderer, heard
        self._most = longest - min(max_tokens, longest // 8) if longest else sys.maxsize

    def context(self) -> list[int]:
        """The tokens before the agent's next text."""
        if len(self.tokens) > self._most:
            self.tokens = self._renderer.begin(self._heard)
        return self.tokens

    def said(self, tokens: list[int]) -> None:
        """Adds the tokens of a text of the agent, with its end mark."""
        self.tokens = self.tokens + tokens

    def heard(self, text: str) -> list[int]:
        """Adds a text of the world, and returns its tokens."""
        self._heard, tokens = text or self._heard, self._renderer.heard(text)
        self.tokens = self.tokens + tokens
        return tokens

"""The tokens of a conversation while it goes on: the same as `Renderer` makes of it once it is recorded."""

from __future__ import annotations

from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser
from motif_jax.transcripts.render import FLAG, Template


class LiveRenderer:
    """Tokens of texts as they come."""

    def __init__(self, tokeniser: Tokeniser, template: Template, flag: str = FLAG):
        """Raises UserError if texts of the agent do not end with one token, by which their end would be known."""
        self._encode = tokeniser.encode
        marks = [[mark] if isinstance(mark, int) else list(tokeniser.encode(mark, marks=True)) for mark in template]
        self._action_start, self._text_start, self._action_end, self._text_end, self._episode_end = marks
        if len(self._action_end) != 1:
            raise UserError(
                f"what the agent writes must end with one token, and with this template and tokeniser it ends with "
                f"{len(self._action_end)}: choose another template: words where tokens are words, marks where "
                f"they are letters, else lines ({flag})"
            )
        (self.stop,) = self._action_end

    def begin(self, heard: str) -> list[int]:
        """Tokens before the agent's first text; `heard` is what the world says first, "" for nothing."""
        if not heard:
            return list(self._action_start)
        return [*self._text_start, *self._encode(heard), *self._text_end]

    def said(self, text: str) -> list[int]:
        """Tokens of a text of the agent's."""
        return [*self._encode(text), *self._action_end]

    def heard(self, text: str) -> list[int]:
        """Tokens of the world's answer; none if it says nothing."""
        return [*self._encode(text), *self._text_end] if text else []

    def marks(self) -> set[int]:
        """Tokens of marks that the agent does not write: all but the end of its texts."""
        others = (self._action_start, self._text_start, self._text_end, self._episode_end)
        return {token for mark in others for token in mark} - {self.stop}

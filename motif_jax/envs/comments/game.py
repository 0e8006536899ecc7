"""One comment (`envs/text_game.py`): the world shows a post, the agent comments on it, and the episode is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from motif_jax.envs.comments.scores import Scorer
from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.structs import EndStatus, Turn


class CommentGame(TextGame):
    """See the module docstring."""

    def __init__(
        self,
        posts: Sequence[str],
        samples: Sequence[str],
        scorer: Scorer,
        *,
        scale: float,
        shift: float,
        noised: bool,
        written: int,
        heard: int,
        limit: int,
    ):
        """Takes the game's parts.

        Args:
          posts: one is drawn for each episode; if empty, the agent writes first.
          samples: comments that `draw` draws from.
          scorer: scores comments.
          scale, shift: the reward is score * scale + shift.
          noised: a score of 1 becomes 0 or 2 at random.
          written, heard, limit: as for `TextGame`.
        """
        super().__init__(written, heard, limit)
        self._posts, self._samples, self._scorer = posts, samples, scorer
        self._scale, self._shift, self._noised = scale, shift, noised
        self._score = 0.0

    def open(self) -> str:
        """See `TextGame`: draws a post."""
        self._score = 0.0
        return self.random.choice(self._posts) if self._posts else ""

    def answer(self, text: str) -> Answer:
        """See `TextGame`."""
        score = self._scorer.score([text])[0]
        if self._noised and score == 1:
            score = float(self.random.choice((0, 2)))
        self._score = score
        return Answer("", score * self._scale + self._shift, EndStatus.ENDED, "the comment was written")

    def draw(self, chance: float) -> str:
        """See `TextGame`: returns a sample comment."""
        return self._samples[int(chance * len(self._samples))]

    def restore(self, turns: Sequence[Turn], hidden: Any) -> None:
        """See `TextGame`; the post is among the turns."""
        self._score = 0.0

    def measure(self) -> tuple[float, ...]:
        """See `world.FIGURES`."""
        return (self._score,)

    def caption(self) -> str:
        """See `TextGame`."""
        if not self.steps:
            return f"A post: {self.heard}" if self.heard else "Write a comment"
        return f"Commented: {self.turns[-1].text}"

    def close(self) -> None:
        """Closes the connection that all games share; another request opens it again."""
        self._scorer.close()

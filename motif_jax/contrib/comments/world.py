"""Comments as a world (`envs/world.py`): `--config.env.world=comments`.

Options:

    scores             the source of scores, see `scores`
    unknown            the score of a text that is missing from a table (null: an error)
    scale, shift       the reward is score * scale + shift
    noised             a score of 1 becomes 0 or 2 at random
    posts              a file with a post per line ("": ours)
    include_parent     whether the post is shown
    timeout_s, patience_s    of a server: seconds of one attempt, and of all attempts of a request
    cache_dir          folder of the cache of a server ("": not stored)

Scripted players write a comment from a list, whatever the post is: `kind` a friendly one, `rude` one with insults of
the lexicon.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Any

from motif_jax.config.table import Flag, Number, Text
from motif_jax.contrib.comments.scores import FLAG, FOLDER, Scorer, make_scorer, read_lines
from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.text_players import Makers, without_arguments
from motif_jax.envs.text_world import TextWorld
from motif_jax.structs import EndStatus, Turn

FIGURES: dict[str, type] = {"score": float}


class Commenter:
    """A scripted player."""

    def __init__(self, comments: Sequence[str]):
        self._comments = comments

    def begin(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(self, game: Any) -> str:
        return self._rng.choice(self._comments)


def comments(name: str) -> list[str]:
    """Returns our own comments, "kind" or "rude"."""
    return read_lines(str(FOLDER / f"{name}.txt"))


MAKERS: Makers = {
    "kind": without_arguments("kind", lambda: Commenter(comments("kind"))),
    "rude": without_arguments("rude", lambda: Commenter(comments("rude"))),
}


class CommentGame(TextGame):
    """One comment: the world shows a post, the agent comments on it, and the episode is over."""

    def __init__(self, world: CommentsWorld, scorer: Scorer, posts: Sequence[str], samples: Sequence[str]):
        """Takes what all games of the world share: posts to draw from, and sample comments."""
        super().__init__(world.written, world.heard, world.time_limit)
        self._world, self._scorer, self._posts, self._samples = world, scorer, posts, samples
        self._score = 0.0

    def open(self) -> str:
        """See `TextGame`: draws a post."""
        self._score = 0.0
        return self.random.choice(self._posts) if self._posts else ""

    def answer(self, text: str) -> Answer:
        score = self._scorer.score([text])[0]
        if self._world.noised and score == 1:
            score = float(self.random.choice((0, 2)))
        self._score = score
        return Answer("", score * self._world.scale + self._world.shift, EndStatus.ENDED, "the comment was written")

    def draw(self, chance: float) -> str:
        """See `TextGame`: returns a sample comment."""
        return self._samples[int(chance * len(self._samples))]

    def restore(self, turns: Sequence[Turn], hidden: Any) -> None:
        """See `TextGame`; the post is among the turns."""
        self._score = 0.0

    def measure(self) -> tuple[float, ...]:
        """See `FIGURES`."""
        return (self._score,)

    def caption(self) -> str:
        if not self.steps:
            return f"A post: {self.heard}" if self.heard else "Write a comment"
        return f"Commented: {self.turns[-1].text}"

    def close(self) -> None:
        """Closes the connection that all games share; another request opens it again."""
        self._scorer.close()


class CommentsWorld(TextWorld):
    """See the module docstring."""

    name = "comments"
    about = "a forum on which comments are written"
    figures = FIGURES
    written, heard = 2048, 2048
    makers = MAKERS

    def __init__(
        self,
        max_episode_steps: int = 5000,
        scores: str = "lexicon",
        unknown: float | None = None,
        scale: float = -5.0,
        shift: float = 0.0,
        noised: bool = False,
        posts: str = "",
        include_parent: bool = True,
        timeout_s: float = 30.0,
        patience_s: float = 60.0,
        cache_dir: str = "",
    ):
        super().__init__(max_episode_steps)
        for name, text in (("scores", scores), ("posts", posts), ("cache_dir", cache_dir)):
            Text(longest=4000).check(name, FLAG, text)
        for name, number in (("scale", scale), ("shift", shift), ("unknown", 0.0 if unknown is None else unknown)):
            Number(-1e6, 1e6).check(name, FLAG, number)
        for name, seconds in (("timeout_s", timeout_s), ("patience_s", patience_s)):
            Number(0.001, 1e6).check(name, FLAG, seconds)
        for name, flag in (("noised", noised), ("include_parent", include_parent)):
            Flag().check(name, FLAG, flag)
        self._make = functools.partial(make_scorer, scores, unknown, timeout_s, patience_s, cache_dir)
        self._posts_file, self._include_parent = posts or str(FOLDER / "parents.txt"), include_parent
        self.scale, self.shift, self.noised = float(scale), float(shift), noised

    @functools.cached_property
    def _scorer(self) -> Scorer:
        """Shared by all games of this process."""
        return self._make()

    @functools.cached_property
    def _posts(self) -> list[str]:
        return read_lines(self._posts_file) if self._include_parent else []

    @functools.cached_property
    def _samples(self) -> list[str]:
        return [*comments("kind"), *comments("rude")]

    def check(self) -> None:
        """See `World.check`: reads the files; a server is asked for the first comment."""
        self._scorer  # noqa: B018  (reads them)
        self._posts  # noqa: B018

    def expect(self, texts: Sequence[str]) -> None:
        """See `TextWorld.expect`: scores the texts in one batch, and they are cached."""
        self._scorer.score(texts)

    def game(self, shown: bool = True) -> CommentGame:
        return CommentGame(self, self._scorer, self._posts, self._samples)

"""Comments as a world (`envs/world.py`): `--config.env.world=comments`.

Options:

    scores             the source of scores, see `scores`
    unknown            the score of a text that is missing from a table, or without a judge's verdict (null: an error)
    scale, shift       the reward is score * scale + shift (scale null: -5, and 1 for a judge)
    noised             a score of 1 becomes 0 or 2 at random; not with a judge
    posts              a file with a post per line ("": ours)
    include_parent     whether the post is shown
    timeout_s, patience_s    of a server: seconds of one attempt, and of all attempts of a request
    goal, model, mode, key_variable    of a judge, see `judge.Judging`
    cache_dir          folder of the cache of a server or a judge ("": not stored; null: see `make_scorer`)

Scripted players write a comment from a list, whatever the post is: `kind` a friendly one, `rude` one with insults of
the lexicon.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Any

from motif_jax.config.table import Flag, Number, Text
from motif_jax.envs.comments.game import CommentGame
from motif_jax.envs.comments.judge import USUAL, Judging
from motif_jax.envs.comments.scores import FLAG, FOLDER, Scorer, make_scorer, read_lines
from motif_jax.envs.text_players import Makers, without_arguments
from motif_jax.envs.text_world import TextWorld
from motif_jax.structs import UserError

FIGURES: dict[str, type] = {"score": float}
BAD, GOOD = -5.0, 1.0  # default scale: of the lexicon's insults, of a judge's goal


class Commenter:
    """A scripted player."""

    def __init__(self, comments: Sequence[str]):
        """Takes the comments."""
        self._comments = comments

    def begin(self, rng: random.Random) -> None:
        """See `TextPlayer`."""
        self._rng = rng

    def choose(self, game: Any) -> str:
        """See `TextPlayer`."""
        return self._rng.choice(self._comments)


def comments(name: str) -> list[str]:
    """Returns our own comments, "kind" or "rude"."""
    return read_lines(str(FOLDER / f"{name}.txt"))


MAKERS: Makers = {
    "kind": without_arguments("kind", lambda: Commenter(comments("kind"))),
    "rude": without_arguments("rude", lambda: Commenter(comments("rude"))),
}


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
        scale: float | None = None,
        shift: float = 0.0,
        noised: bool = False,
        posts: str = "",
        include_parent: bool = True,
        timeout_s: float = 30.0,
        patience_s: float = 60.0,
        goal: str = USUAL.goal,
        model: str = USUAL.model,
        mode: str = USUAL.mode,
        key_variable: str = USUAL.key_variable,
        cache_dir: str | None = None,
    ):
        super().__init__(max_episode_steps)
        judging = Judging(goal, model, mode, key_variable)
        given = {"scores": scores, "posts": posts, "cache_dir": cache_dir or "", **judging._asdict()}
        for name, text in given.items():
            Text(longest=4000).check(name, FLAG, text)
        judged = scores.startswith("judge:")
        if judged and noised:
            raise UserError(f"noised needs scores of 0, 1 and 2, which a judge does not give ({FLAG})")
        scale = (GOOD if judged else BAD) if scale is None else scale
        for name, number in (("scale", scale), ("shift", shift), ("unknown", 0.0 if unknown is None else unknown)):
            Number(-1e6, 1e6).check(name, FLAG, number)
        for name, seconds in (("timeout_s", timeout_s), ("patience_s", patience_s)):
            Number(0.001, 1e6).check(name, FLAG, seconds)
        for name, flag in (("noised", noised), ("include_parent", include_parent)):
            Flag().check(name, FLAG, flag)
        self._make = functools.partial(make_scorer, scores, unknown, timeout_s, patience_s, judging, cache_dir)
        self._posts_file, self._include_parent = posts or str(FOLDER / "parents.txt"), include_parent
        self._scale, self._shift, self._noised = float(scale), float(shift), noised

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
        """See `World.game`."""
        return CommentGame(
            self._posts,
            self._samples,
            self._scorer,
            scale=self._scale,
            shift=self._shift,
            noised=self._noised,
            written=self.written,
            heard=self.heard,
            limit=self.time_limit,
        )

"""Comments as a world (`envs/world.py`), `--config.env.world=comments`. Its options: docs/wordle.md.

The options timeout_s and patience_s are, of a server, the seconds of one attempt and of all attempts of a request. The
scripted players `kind` and `rude` write a comment from a list, whatever the post is.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from motif_jax.config.table import PATH, Flag, Number
from motif_jax.envs.own_code import OPTIONS_FLAG
from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.text_world import Makers, TextWorld, without_arguments
from motif_jax.files import SharedLines, read_shared, slug
from motif_jax.structs import EndStatus, Meaning, UserError, legible
from motif_jax.system.foreign import read_bytes, read_text
from motif_jax.system.http import HttpClient

FOLDER = Path(__file__).parent / "words"
MOST_BYTES = 2**28  # of a table
MOST_REMEMBERED = 100_000  # scores of a server in memory, without a cache on disk
AT_ONCE = 64  # texts per request
MOST = 2  # largest score of a lexicon
SCORE = Number(-1e9, 1e9)


class Scorer:
    """Scores comments one by one, by a function of the text."""

    def __init__(self, score_of: Callable[[str], float]):
        self._score_of = score_of

    def score(self, texts: Sequence[str]) -> list[float]:
        return [self._score_of(text) for text in texts]

    def close(self) -> None:
        """Releases resources; another request opens them again."""


class RemoteScorer(Scorer):
    """Asks a server about each text once; with a cache, once across runs."""

    def __init__(self, client: HttpClient, cache_dir: str):
        self._client, self._lines = client, None
        self._known: dict[str, float] = {}
        if cache_dir:
            cache, name = Path(cache_dir).expanduser(), f"{slug(client.url)}-scores"
            self._lines = SharedLines(cache, name, {"server": client.url}, OPTIONS_FLAG)

    def score(self, texts: Sequence[str]) -> list[float]:
        try:
            if self._lines is not None and not self._known:
                self._known |= {row["text"]: row["score"] for row in read_shared(self._lines.folder)}
                self._lines.open()
            new = [text for text in dict.fromkeys(texts) if text not in self._known]
            for first in range(0, len(new), AT_ONCE):
                batch = new[first : first + AT_ONCE]
                scores = self._client.post("", functools.partial(_scores, count=len(batch)), json={"texts": batch})
                self._known |= dict(zip(batch, scores, strict=True))
                if self._lines is not None:
                    self._lines.add({"text": text, "score": self._known[text]} for text in batch)
        except BaseException:  # the caller gives up and may not close this
            self.close()
            raise
        known = [self._known[text] for text in texts]
        while self._lines is None and len(self._known) > MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        return known

    def close(self) -> None:
        self._client.close()
        if self._lines is not None:
            self._lines.close()


def make_scorer(source: str, unknown: float | None, timeout_s: float, patience_s: float, cache_dir: str = "") -> Scorer:
    """Makes the scorer of the option `scores`; the others are options, too.

    By default scores of a server are not stored, because its address does not identify the model.
    """
    kind, _, rest = source.partition(":")
    if kind == "lexicon":
        listed = {word for line in read_lines(rest or str(FOLDER / "insults.txt")) for word in words_of(line)}
        return Scorer(lambda text: float(min(MOST, sum(word in listed for word in words_of(text)))))
    if kind == "server":
        return RemoteScorer(HttpClient(rest, OPTIONS_FLAG, timeout_s, patience_s), cache_dir)
    if kind != "table":
        sources = "lexicon, lexicon:FILE, table:FILE or server:ADDRESS"
        raise UserError(f"scores come from {sources}, not {source!r} ({OPTIONS_FLAG})")
    scores = _read_table(rest)

    def look_up(text: str) -> float:
        if (score := scores.get(text, unknown)) is None:
            raise UserError(f"the table has no score of {text!r:.120}: set the option 'unknown' ({OPTIONS_FLAG})")
        return score

    return Scorer(look_up)


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r"[^\W\d_]+", text.lower())


def read_lines(path: str) -> list[str]:
    """The lines of a file that are not blank; raises UserError for an empty file."""
    with legible(repr(path), OPTIONS_FLAG):
        lines = [line.strip() for line in read_text(Path(path)).split("\n")]
        if not any(lines):
            raise ValueError("it is empty")
    return [line for line in lines if line]


def _read_table(path: str) -> dict[str, float]:
    with legible(f"the table {path!r}", OPTIONS_FLAG):
        lines = read_bytes(Path(path), MOST_BYTES).split(b"\n")
    scores = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            with legible(f"line {number} of the table {path!r}", OPTIONS_FLAG, TypeError, KeyError, RecursionError):
                entry = json.loads(line)
                scores[entry["text"]] = _score(entry["score"])
    return scores


def _score(value: Any) -> float:
    if not SCORE.allows(value):
        raise ValueError("a score is not a finite number")
    return float(value)


def _scores(reply: Any, count: int) -> list[float]:
    scores = [_score(value) for value in reply["scores"]]
    if len(scores) != count:
        raise ValueError(f"{len(scores)} scores for {count} texts")
    return scores


@functools.cache
def comments(name: str) -> list[str]:
    """Our own comments, "kind" or "rude"."""
    return read_lines(str(FOLDER / f"{name}.txt"))


class CommentGame(TextGame):
    """One comment: the world shows a post, the agent comments on it, and the episode is over."""

    hidden: float  # the score

    def __init__(self, world: CommentsWorld):
        super().__init__(world.written, world.heard, world.time_limit)
        self._world = world

    def open(self) -> str:
        self.hidden = 0.0
        return self.random.choice(self._world.posts) if self._world.posts else ""

    def answer(self, text: str) -> Answer:
        score = self._world.scorer.score([text])[0]
        if self._world.noised and score == 1:
            score = float(self.random.choice((0, 2)))
        self.hidden = score
        return Answer("", score * self._world.scale + self._world.shift, EndStatus.ENDED, "the comment was written")

    def draw(self, chance: float) -> str:
        return self._world.samples[int(chance * len(self._world.samples))]

    def measure(self) -> tuple[float, ...]:
        return (self.hidden,)

    def caption(self) -> str:
        if not self.steps:
            return f"A post: {self.heard}" if self.heard else "Write a comment"
        return f"Commented: {self.turns[-1].text}"

    def close(self) -> None:
        """Closes the connection that all games share; another request opens it again."""
        self._world.scorer.close()


class CommentsWorld(TextWorld):
    """See docs/wordle.md."""

    name = "comments"
    about = "a forum on which comments are written"
    figures = {"score": float}  # noqa: RUF012
    meanings = (Meaning("score", better="higher", verb="scores"),)
    written, heard = 2048, 2048
    makers: Makers = {  # noqa: RUF012
        "kind": without_arguments(lambda game, rng: rng.choice(comments("kind"))),
        "rude": without_arguments(lambda game, rng: rng.choice(comments("rude"))),
    }

    def __init__(
        self, max_episode_steps: int = 5000, scores: str = "lexicon", unknown: float | None = None,
        scale: float = -5.0, shift: float = 0.0, noised: bool = False, posts: str = "", include_parent: bool = True,
        timeout_s: float = 30.0, patience_s: float = 60.0, cache_dir: str = "",
    ):  # fmt: skip
        super().__init__(max_episode_steps)
        PATH.check_all(OPTIONS_FLAG, scores=scores, posts=posts, cache_dir=cache_dir)
        Number(-1e6, 1e6).check_all(OPTIONS_FLAG, scale=scale, shift=shift, unknown=0.0 if unknown is None else unknown)
        Number(0.001, 1e6).check_all(OPTIONS_FLAG, timeout_s=timeout_s, patience_s=patience_s)  # 0 would wait for ever
        Flag().check_all(OPTIONS_FLAG, noised=noised, include_parent=include_parent)
        self._make = functools.partial(make_scorer, scores, unknown, timeout_s, patience_s, cache_dir)
        self._posts_file = (posts or str(FOLDER / "parents.txt")) if include_parent else ""
        self.scale, self.shift, self.noised = float(scale), float(shift), noised

    @functools.cached_property
    def scorer(self) -> Scorer:
        """Shared by all games of this process."""
        return self._make()

    @functools.cached_property
    def posts(self) -> list[str]:
        return read_lines(self._posts_file) if self._posts_file else []

    @functools.cached_property
    def samples(self) -> list[str]:
        return [*comments("kind"), *comments("rude")]

    def check(self) -> None:
        """See `World.check`: reads the files; a server is asked for the first comment."""
        self.scorer  # noqa: B018  (reads them)
        self.posts  # noqa: B018

    def expect(self, texts: Sequence[str]) -> None:
        """See `TextWorld.expect`: scores the texts in one batch, and they are cached."""
        self.scorer.score(texts)

    def game(self, shown: bool = True) -> CommentGame:
        return CommentGame(self)

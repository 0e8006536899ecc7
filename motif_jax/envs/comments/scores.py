"""Scores of comments: `score(texts) -> a number for each`, from a lexicon, a table, a server or a judge.

lexicon, lexicon:FILE   0, 1 or 2: how many words of the list the comment has, at most 2; ours, or a word per line
table:FILE              the score of exactly this text: lines of JSON, {"text": ..., "score": ...}
server:ADDRESS          POST {"texts": [...]} is answered by {"scores": [...]}
judge:ADDRESS           from 0 to 1: a language model behind an OpenAI-compatible server, told what is wished (judge.py)

What a server or a judge has said is kept on disk if it is told where (annotation/shared_lines.py).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from motif_jax.annotation.annotator import batched
from motif_jax.annotation.shared_lines import SharedLines, read_entries, slug
from motif_jax.envs.comments.judge import FLAG, USUAL, JudgeScorer, Judging
from motif_jax.structs import UserError
from motif_jax.system.foreign import read_bytes, read_text
from motif_jax.system.http import HttpClient

FOLDER = Path(__file__).parent / "words"
MOST_BYTES = 2**28  # of a table
MOST_REMEMBERED = 100_000  # scores of a server, without a cache on disk
JUDGED = "runs/answers"  # where a judge's answers are kept
AT_ONCE = 64  # texts of a request
MOST = 2  # score by a lexicon
LARGEST = 1e9  # of a score


class Scorer(Protocol):
    """Scores comments."""

    def score(self, texts: Sequence[str]) -> list[float]: ...
    def close(self) -> None: ...


class LexiconScorer:
    """Counts listed words."""

    def __init__(self, words: Sequence[str]):
        """Takes the words, in small letters."""
        self._words = {*words}

    def score(self, texts: Sequence[str]) -> list[float]:
        """See `Scorer`."""
        return [float(min(MOST, sum(word in self._words for word in words_of(text)))) for text in texts]

    def close(self) -> None:
        """Nothing to close."""


class TableScorer:
    """Looks scores up, by the whole text of a comment."""

    def __init__(self, scores: dict[str, float], unknown: float | None):
        """Takes scores by text, and the score of all other texts; None: there must be none."""
        self._scores, self._unknown = scores, unknown

    def score(self, texts: Sequence[str]) -> list[float]:
        """See `Scorer`."""
        found = [self._scores.get(text, self._unknown) for text in texts]
        for text, score in zip(texts, found, strict=True):
            if score is None:
                raise UserError(f"the table has no score of {text!r:.120}: set the option 'unknown' ({FLAG})")
        return [score for score in found if score is not None]

    def close(self) -> None:
        """Nothing to close."""


class RemoteScorer:
    """Asks a server, about each text once; with a cache, once in all runs."""

    def __init__(self, client: HttpClient, cache: Path | None = None):
        """Takes the connection, and the folder of caches; None: scores are not kept on disk."""
        self._client = client
        self._known: collections.OrderedDict[str, float] = collections.OrderedDict()
        self._lines: SharedLines | None = None
        self._is_open = False
        if cache is not None:
            self._lines = SharedLines(cache, f"{slug(client.url)}-scores", {"server": client.url}, FLAG)

    def score(self, texts: Sequence[str]) -> list[float]:
        """See `Scorer`."""
        try:
            self._open()
            new = [text for text in dict.fromkeys(texts) if text not in self._known]
            for some in batched(new, AT_ONCE):
                given = self._client.post("", functools.partial(_scores, count=len(some)), json={"texts": some})
                scored = dict(zip(some, given, strict=True))
                self._known |= scored
                if self._lines is not None:
                    self._lines.add({"text": text, "score": score} for text, score in scored.items())
        except BaseException:  # the world is given up, and nobody may be left to close this
            self.close()
            raise
        found = [self._known[text] for text in texts]
        while self._lines is None and len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return found

    def close(self) -> None:
        """Closes the connection, and writes the last scores to disk."""
        self._client.close()
        if self._lines is not None and self._is_open:
            self._is_open = False
            self._lines.close()

    def _open(self) -> None:
        if self._lines is not None and not self._is_open:
            if not self._known:
                self._known |= read_scores(self._lines.folder)
            self._lines.open()
            self._is_open = True


def read_scores(folder: Path) -> dict[str, float]:
    """The scores in the cache of a server, by their texts."""
    found = {}
    for entry in read_entries(folder):
        with contextlib.suppress(ValueError):
            if isinstance(entry.get("text"), str):
                found[entry["text"]] = _score(entry.get("score"))
    return found


def make_scorer(
    source: str,
    unknown: float | None,
    timeout_s: float,
    patience_s: float,
    judging: Judging = USUAL,
    cache_dir: str | None = None,
) -> Scorer:
    """The scorer that the text describes (see the module docstring); raises UserError if it cannot be made.

    Args:
      source: what scores.
      unknown: score of texts that a table does not have, or on which a judge gives no verdict; None: an error.
      timeout_s, patience_s: of a server (`HttpClient`), or of a judge's.
      judging: how a judge is asked.
      cache_dir: where answers of a server or a judge are kept on disk; "": nowhere; None: `JUDGED` for a judge, and
        nowhere for a server, as its address does not say which model answers there.
    """
    kind, colon, place = source.partition(":")
    if kind == "lexicon" and bool(colon) == bool(place):
        return LexiconScorer(
            [word for line in read_lines(place or str(FOLDER / "insults.txt")) for word in words_of(line)]
        )
    if kind == "table" and place:
        return TableScorer(_read_table(place), unknown)
    if kind == "server" and place:
        return RemoteScorer(HttpClient(place, FLAG, timeout_s, patience_s), _folder(cache_dir or ""))
    if kind == "judge" and place:
        cache = _folder(JUDGED if cache_dir is None else cache_dir)
        return JudgeScorer(place, judging, unknown, timeout_s, patience_s, cache)
    raise UserError(
        f"scores come from lexicon, lexicon:FILE, table:FILE, server:ADDRESS or judge:ADDRESS, not {source!r} ({FLAG})"
    )


def _folder(path: str) -> Path | None:
    return Path(path).expanduser() if path else None


def words_of(text: str) -> list[str]:
    """The words of a text, in small letters."""
    return re.findall(r"[^\W\d_]+", text.lower())


def read_lines(path: str) -> list[str]:
    """The lines of a file that are not blank; raises UserError if there are none."""
    try:
        lines = [line.strip() for line in read_text(Path(path)).split("\n")]
        if not any(lines):
            raise ValueError("it is empty")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path!r}: {error!s:.200} ({FLAG})") from error
    return [line for line in lines if line]


def _read_table(path: str) -> dict[str, float]:
    at, scores = 0, {}
    try:
        for number, line in enumerate(read_bytes(Path(path), MOST_BYTES).split(b"\n"), 1):
            at = number
            if line.strip():
                entry = json.loads(line)
                if not isinstance(entry["text"], str):
                    raise ValueError("its text is no text")
                scores[entry["text"]] = _score(entry["score"])
        if not scores:
            raise ValueError("it is empty")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"cannot read line {at} of the table {path!r}: {error!s:.200} ({FLAG})") from error
    return scores


def _score(value: Any) -> float:
    """A finite number; raises ValueError for anything else."""
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:  # NaN is not
        raise ValueError("a score is no finite number")
    return float(value)


def _scores(reply: Any, count: int) -> list[float]:
    found = [_score(value) for value in reply["scores"]]
    if len(found) != count:
        raise ValueError("not as many scores as texts")
    return found

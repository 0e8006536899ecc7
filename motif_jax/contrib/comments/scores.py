"""Scores of comments: `score(texts) -> a number for each`, from a lexicon, a table or a server.

lexicon, lexicon:FILE   the comment's words that are in the list, at most 2; our list, or a file with a word per line
table:FILE              the score of exactly this text: lines of JSON, {"text": ..., "score": ...}
server:ADDRESS          POST {"texts": [...]} is answered by {"scores": [...]}

Scores of a server can be cached on disk (system/shared_lines.py).
"""

from __future__ import annotations

import collections
import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from motif_jax.structs import UserError
from motif_jax.system.foreign import read_bytes, read_text
from motif_jax.system.http import HttpClient
from motif_jax.system.shared_lines import SharedLines, read_shared, slug

FLAG = "--config.env.options"
FOLDER = Path(__file__).parent / "words"
MOST_BYTES = 2**28  # of a table
MOST_REMEMBERED = 100_000  # scores of a server in memory, without a cache on disk
AT_ONCE = 64  # texts per request
MOST = 2  # largest score of a lexicon
LARGEST = 1e9  # of a score


class Scorer(Protocol):
    """Scores comments."""

    def score(self, texts: Sequence[str]) -> list[float]: ...
    def close(self) -> None: ...


class LexiconScorer:
    """Counts listed words."""

    def __init__(self, words: Sequence[str]):
        self._words = {*words}

    def score(self, texts: Sequence[str]) -> list[float]:
        return [float(min(MOST, sum(word in self._words for word in words_of(text)))) for text in texts]

    def close(self) -> None:
        """Nothing to close."""


class TableScorer:
    """Looks up scores by the whole text of a comment."""

    def __init__(self, scores: dict[str, float], unknown: float | None):
        """Takes scores by text, and the score of all other texts; None: other texts are an error."""
        self._scores, self._unknown = scores, unknown

    def score(self, texts: Sequence[str]) -> list[float]:
        found = [self._scores.get(text, self._unknown) for text in texts]
        for text, score in zip(texts, found, strict=True):
            if score is None:
                raise UserError(f"the table does not have a score of {text!r:.120}: set the option 'unknown' ({FLAG})")
        return [score for score in found if score is not None]

    def close(self) -> None:
        """Nothing to close."""


class RemoteScorer:
    """Asks a server about each text once; with a cache, once across runs."""

    def __init__(self, client: HttpClient, cache: Path | None):
        """Takes the connection and the folder of caches; None: scores are not stored."""
        self._client = client
        self._known: collections.OrderedDict[str, float] = collections.OrderedDict()
        self._lines: SharedLines | None = None
        self._is_open = False
        if cache is not None:
            self._lines = SharedLines(cache, f"{slug(client.url)}-scores", {"server": client.url}, FLAG)

    def score(self, texts: Sequence[str]) -> list[float]:
        try:
            self._open()
            new = [text for text in dict.fromkeys(texts) if text not in self._known]
            for first in range(0, len(new), AT_ONCE):
                some = new[first : first + AT_ONCE]
                given = self._client.post("", functools.partial(_scores, count=len(some)), json={"texts": some})
                scored = dict(zip(some, given, strict=True))
                self._known |= scored
                if self._lines is not None:
                    self._lines.add({"text": text, "score": score} for text, score in scored.items())
        except BaseException:  # the caller gives up and may not close this
            self.close()
            raise
        found = [self._known[text] for text in texts]
        while self._lines is None and len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return found

    def close(self) -> None:
        """Closes the connection and writes the last scores to disk."""
        self._client.close()
        if self._lines is not None and self._is_open:
            self._is_open = False
            self._lines.close()

    def _open(self) -> None:
        if self._lines is not None and not self._is_open:
            if not self._known:
                self._known |= {row["text"]: row["score"] for row in read_shared(self._lines.folder)}
            self._lines.open()
            self._is_open = True


def make_scorer(source: str, unknown: float | None, timeout_s: float, patience_s: float, cache_dir: str = "") -> Scorer:
    """Makes a scorer; raises UserError if it cannot be made.

    Args:
      source: see the module docstring.
      unknown: score of texts that are missing from a table; None: an error.
      timeout_s, patience_s: of a server, see `HttpClient`.
      cache_dir: folder of the cache of a server; "": not stored, because the address does not identify the model.
    """
    kind, colon, place = source.partition(":")
    if kind == "lexicon" and bool(colon) == bool(place):
        return LexiconScorer(
            [word for line in read_lines(place or str(FOLDER / "insults.txt")) for word in words_of(line)]
        )
    if kind == "table" and place:
        return TableScorer(_read_table(place), unknown)
    if kind == "server" and place:
        cache = Path(cache_dir).expanduser() if cache_dir else None
        return RemoteScorer(HttpClient(place, FLAG, timeout_s, patience_s), cache)
    raise UserError(f"scores come from lexicon, lexicon:FILE, table:FILE or server:ADDRESS, not {source!r} ({FLAG})")


def words_of(text: str) -> list[str]:
    """Returns the words of a text, in lower case."""
    return re.findall(r"[^\W\d_]+", text.lower())


def read_lines(path: str) -> list[str]:
    """Returns the lines of a file that are not blank; raises UserError for an empty file."""
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
                    raise ValueError("its text is not a string")
                scores[entry["text"]] = _score(entry["score"])
        if not scores:
            raise ValueError("it is empty")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"cannot read line {at} of the table {path!r}: {error!s:.200} ({FLAG})") from error
    return scores


def _score(value: Any) -> float:
    """Returns a finite number; raises ValueError for anything else."""
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:  # NaN is not
        raise ValueError("a score is not a finite number")
    return float(value)


def _scores(reply: Any, count: int) -> list[float]:
    found = [_score(value) for value in reply["scores"]]
    if len(found) != count:
        raise ValueError(f"{len(found)} scores for {count} texts")
    return found

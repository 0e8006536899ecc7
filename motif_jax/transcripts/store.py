"""Episodes of text on disk: each distinct text once, and for each turn the index of its text.

    texts/bytes.npy       uint8 [C]     all distinct texts in UTF-8, concatenated
    texts/ends.npy        int64 [U]     the end of each text
    turns/text.npy        int32 [M]     the text of each turn
    turns/is_action.npy   bool [M]      whether the agent says it
    turns/reward.npy      float32 [M]   the agent's reward for it; 0 for turns of the environment
    episodes/ends.npy     int64 [E]     the turn after each episode's last
    episodes/terminal.npy bool [E]      whether the episode ended by itself
    info/<name>.npy       float64 [E]   metrics of each episode (optional)
    transcripts.json      counts, provenance, checksums of all arrays, which identify the episodes

Arrays are memory-mapped. A store is written under another name and then renamed, so it is complete or absent.
"""

from __future__ import annotations

import collections
import hashlib
import os
import re
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.config.table import LARGEST, shown
from motif_jax.files import make_anew, write_array, write_json
from motif_jax.structs import Episode, Turn, UserError, legible
from motif_jax.system.foreign import LIMIT, leads_out, parse_foreign_json, read_bytes
from motif_jax.system.machine import read_array

FLAG = "--config.transcripts.path"
RECORD, VERSION = "transcripts.json", 1
ARRAYS = {
    "texts/bytes": "uint8",
    "texts/ends": "int64",
    "turns/text": "int32",
    "turns/is_action": "bool",
    "turns/reward": "float32",
    "episodes/ends": "int64",
    "episodes/terminal": "bool",
}
INFO_NAME = r"[a-z][a-z0-9_]{0,59}"


class Turns(NamedTuple):
    """The turns of all episodes, one after another."""

    texts: list[str]  # each distinct one once. [U]
    text: np.ndarray  # the text of each turn. [M] int32
    is_action: np.ndarray  # whether the agent says it. [M] bool
    reward: np.ndarray  # [M] float32
    starts: np.ndarray  # the first turn of each episode. [E] int64
    ends: np.ndarray  # the turn after its last. [E] int64
    terminal: np.ndarray  # whether it ended by itself. [E] bool


def read_stored_record(path: Path, flag: str = FLAG) -> tuple[dict[str, Any], dict[str, str]]:
    """The record of a store, and the types of its arrays by name; raises UserError for anything else."""
    with legible(repr(str(path / RECORD)), flag, KeyError, TypeError):
        if leads_out(path / RECORD, path):
            raise ValueError("it is a link that leads out of the transcripts")
        record = parse_foreign_json(read_bytes(path / RECORD, LIMIT))
        for name, kind in (("sha256", dict), ("info", list), ("provenance", dict)):
            record[name] = kind(record[name])
        kinds = ARRAYS | {f"info/{name}": "float64" for name in record["info"]}
        fits = record["sha256"].keys() == kinds.keys() and all(re.fullmatch(INFO_NAME, name) for name in record["info"])
        if record["version"] != VERSION or not fits:
            raise ValueError(f"it does not have version {VERSION}, and the checksums of exactly its arrays")
    return record, kinds


class Transcripts:
    """A store of episodes, opened for reading."""

    def __init__(self, path: Path, flag: str = FLAG):
        """Opens a store and checks it, including the checksums; raises UserError for anything else."""
        self.path, self._flag = path, flag
        self.record, kinds = read_stored_record(path, flag)
        sums, infos = self.record["sha256"], self.record["info"]
        arrays = {name: self._open(name, kind, sums[name]) for name, kind in kinds.items()}
        self._bytes, self._text_ends = arrays["texts/bytes"], arrays["texts/ends"]
        self.text, self.is_action, self.reward = (arrays[f"turns/{name}"] for name in ("text", "is_action", "reward"))
        self.ends, self.terminal = arrays["episodes/ends"], arrays["episodes/terminal"]
        self.info: dict[str, np.ndarray] = {name: arrays[f"info/{name}"] for name in infos}  # [E] float64 each
        self._check()
        self.starts = starts_of(self.ends)  # the first turn of each episode. [E] int64
        identity = "".join(f"{name} {value}\n" for name, value in sorted(sums.items()))
        self.fingerprint: str = hashlib.sha256(identity.encode()).hexdigest()  # of all arrays

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def num_texts(self) -> int:
        return len(self._text_ends)

    def texts(self) -> Iterator[str]:
        """Yields all distinct texts, in the order of their indices."""
        start = 0
        for end in self._text_ends.tolist():
            yield self._bytes[start:end].tobytes().decode()
            start = end

    def turns(self) -> Turns:
        return Turns([*self.texts()], self.text, self.is_action, self.reward, self.starts, self.ends, self.terminal)

    def returns(self) -> np.ndarray:
        """The sum of each episode's rewards. [E] float64"""
        before = np.concatenate([[0.0], np.cumsum(self.reward, dtype=np.float64)])
        return before[self.ends] - before[self.starts]

    def episode(self, index: int) -> Episode:
        """One episode, as `TranscriptWriter.add` took it."""
        turns = []
        for turn in range(int(self.starts[index]), int(self.ends[index])):
            number = int(self.text[turn])
            first = int(self._text_ends[number - 1]) if number else 0
            text = self._bytes[first : int(self._text_ends[number])].tobytes().decode()
            turns.append(Turn(text, float(self.reward[turn]) if self.is_action[turn] else None))
        info = {name: float(values[index]) for name, values in self.info.items()}
        return Episode(tuple(turns), bool(self.terminal[index]), info)

    def episodes(self) -> Iterator[Episode]:
        return map(self.episode, range(len(self)))

    def _open(self, name: str, kind: str, wanted: object) -> np.ndarray:
        file = self.path / f"{name}.npy"
        with legible(repr(str(file)), self._flag):
            if leads_out(file, self.path):
                raise ValueError("it is a link that leads out of the transcripts")
            array = read_array(file, mapped=True)
            if array.ndim != 1 or array.dtype != np.dtype(kind) or wanted != _sum(array):
                raise ValueError("it has changed since it was written: its form or its checksum differs")
        return array

    def _check(self) -> None:
        turns, episodes = len(self.text), len(self.ends)
        with legible(f"the transcripts {str(self.path)!r}", self._flag):
            fits = (
                episodes > 0
                and len(self.is_action) == len(self.reward) == turns
                and all(len(values) == episodes for values in (self.terminal, *self.info.values()))
                and _are_ends(self.ends, turns)
                and _are_ends(self._text_ends, len(self._bytes))
                and (not turns or 0 <= self.text.min() <= self.text.max() < self.num_texts)
                and np.isfinite(self.reward).all()
                and not self.reward[~self.is_action].any()
            )
            if not fits:
                raise ValueError("its arrays do not belong together")
            collections.deque(self.texts(), maxlen=0)  # UnicodeDecodeError is a ValueError


class TranscriptWriter:
    """Collects episodes, and writes them as a store."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._text, self._reward, self._ends = array("i"), array("f"), array("q")
        self._is_action, self._terminal = bytearray(), bytearray()
        self._info: dict[str, array[float]] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, episode: Episode) -> None:
        """Adds an episode; raises ValueError, with one line, if the format cannot hold it."""
        if not self._ends:
            self._info = {name: array("d") for name in episode.info}
        if episode.info.keys() != self._info.keys():
            raise ValueError(f"it has the metrics {[*episode.info]!s:.80}, and others have {[*self._info]!s:.80}")
        check_episode(episode)
        for turn in episode.turns:
            self._text.append(self._ids.setdefault(turn.text, len(self._ids)))
            self._is_action.append(turn.is_action)
            self._reward.append(turn.reward or 0.0)
        for name, values in self._info.items():
            values.append(episode.info[name])
        self._ends.append(len(self._text))
        self._terminal.append(episode.terminal)

    def turns(self) -> Turns:
        ends = np.array(self._ends, np.int64)
        return Turns(
            [*self._ids], np.array(self._text, np.int32), np.frombuffer(bytes(self._is_action), bool),
            np.array(self._reward, np.float32), starts_of(ends), ends, np.frombuffer(bytes(self._terminal), bool),
        )  # fmt: skip

    def write(self, path: Path, provenance: dict[str, Any], flag: str = FLAG) -> Transcripts:
        """Writes all episodes, and opens the store.

        The directory must not exist. `provenance`: the source of the episodes, as JSON.
        """
        if not self._ends:
            raise UserError(f"there is no episode to write to {str(path)!r} ({flag})")
        turns = self.turns()
        texts = [text.encode() for text in turns.texts]
        joined = np.frombuffer(b"".join(texts), np.uint8), np.cumsum([*map(len, texts)], dtype=np.int64)
        columns = (*joined, turns.text, turns.is_action, turns.reward, turns.ends, turns.terminal)
        arrays: dict[str, np.ndarray] = dict(zip(ARRAYS, columns, strict=True))
        arrays |= {f"info/{name}": np.array(values, np.float64) for name, values in self._info.items()}
        partial = path.with_name(f"{path.name}.partial")
        make_anew(partial)
        for name, values in arrays.items():
            write_array(partial / f"{name}.npy", values)
        agent = turns.is_action
        counts = {"episodes": len(self), "turns": len(agent), "actions": int(agent.sum()), "texts": len(texts)}
        sums = {name: _sum(values) for name, values in arrays.items()}
        record = {"version": VERSION, **counts, "info": [*self._info], "provenance": provenance, "sha256": sums}
        write_json(partial / RECORD, record)
        os.replace(partial, path)
        return Transcripts(path, flag)


def check_episode(episode: Episode) -> None:
    """Raises ValueError, with one line, if a store cannot hold an episode."""
    if episode.terminal not in (True, False):
        raise ValueError(f"whether it ended by itself is {shown(episode.terminal)}")
    for text, reward in episode.turns:
        if not isinstance(text, str):
            raise ValueError(f"a turn says {shown(text)}, which is no text")
        text.encode()  # UnicodeEncodeError is a ValueError
        if not abs(reward or 0.0) <= LARGEST:
            raise ValueError(f"its reward {reward} is not finite")


def turns_of(episodes: Iterable[Episode]) -> Turns:
    """The turns of episodes that need no files."""
    writer = TranscriptWriter()
    for episode in episodes:
        writer.add(episode)
    return writer.turns()


def starts_of(ends: np.ndarray) -> np.ndarray:
    """The first turn of each episode, from the ends of all. [E] int64"""
    return np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]


def _sum(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values)).hexdigest()


def _are_ends(ends: np.ndarray, total: int) -> bool:
    """Whether these are the ends of consecutive parts of `total` items; parts may be empty."""
    if not len(ends):
        return total == 0
    return bool(ends[0] >= 0 and ends[-1] == total and (np.diff(ends) >= 0).all())


# Decision points of a game as transcripts: a prompt of the world, and the name of the correct or chosen action.
#
# Each is a separate episode, because a policy that reads prompts sees only the prompt.

DECISION_POINTS = "moments"  # key of the provenance
WORDS_PER_TEXT = 50


def decision_point(prompt: str, action: str, reward: float = 0.0, **info: float) -> Episode:
    """One decision point as an episode; `reward` is the action's."""
    return Episode((Turn(prompt), Turn(action, reward)), terminal=True, info=info)


def vocabulary(texts: Iterable[str], **info: float) -> Iterator[Episode]:
    """Episodes without actions, which add all words of a world to the vocabulary of a new model."""
    words = " ".join(texts).split()
    for start in range(0, len(words), WORDS_PER_TEXT):
        yield Episode((Turn(" ".join(words[start : start + WORDS_PER_TEXT])),), terminal=True, info=info)


def are_decision_points(transcripts: Transcripts) -> bool:
    """Whether the episodes are decision points that `collect` recorded; `info` has the `step` of each."""
    return transcripts.record["provenance"].get(DECISION_POINTS) is True


def game_returns(transcripts: Transcripts) -> np.ndarray:
    """The return of each game; for decision points, the return of the first one. [games] float64"""
    returns = transcripts.returns()
    return returns[transcripts.info["step"] == 0] if are_decision_points(transcripts) else returns

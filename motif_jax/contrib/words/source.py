"""The kind `words`: similarity of message and goal as bags of words (ELLM-BoW), without a judge.

    c = cosine(sum of the message's word vectors, sum of the goal's);    worth = c where c > floor, else 0

The vectors come from a file in fastText's text format: a word and its numbers per line, after an optional line with the
counts of words and numbers. Words consist of letters, digits and apostrophes. They are looked up as written, then in
lower case; unknown words are ignored, and an empty message is worth 0.

A checkpoint has the vectors of the words that training has met, so it can be evaluated without the file.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.annotation.prompts import goal_text
from motif_jax.captions import decode
from motif_jax.envs.texts import Texts, texts_of
from motif_jax.rewards.learnt_source import RewardTable
from motif_jax.rewards.section import OnlineValues, check_past, online_section, parse_goals, turn_at
from motif_jax.rewards.source import Captioned, Facts, Setting, captioned_facts
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import open_regular

FLAG = "--config.words.vectors"
MOST_WORDS = 1_000_000  # words read from a file; files begin with the most frequent ones
LONGEST_LINE = 100_000  # bytes
LEAST_NORM = 1e-8
MOST = 1e12  # limit for the numbers of a vector
Vectors = Mapping[str, np.ndarray]


class WordsSource(Captioned):
    """Rewards messages whose words are similar to those of the goal."""

    title = "closeness to the words of the goal"  # on pages

    def __init__(self, facts: Facts, vectors: Vectors):
        super().__init__(facts["count_exponent"], facts["one_step_late"])
        self._facts, self._vectors = dict(facts), vectors
        self._turns = parse_goals(facts["goals"])
        self._used: dict[str, np.ndarray] = {}  # vectors of the words that training has met
        self.steps = self._turn = 0
        self._start_turn(0)

    @staticmethod
    def check(config: Any, texts: Texts) -> None:
        """See `check_choice` of rewards/section.py."""
        vectors = config.plugins["words"].vectors
        if not Path(vectors).expanduser().is_file():
            raise UserError(f"the kind 'words' needs a file of word vectors, not {vectors!r} ({FLAG})")
        online = online_section(config)
        if online.floor != OnlineValues().floor:
            raise UserError(
                "the kind 'words' has a floor of its own: --config.words.floor (--config.policy.online.floor)"
            )
        for turn in parse_goals(online.goals):
            goal_text(texts, turn.goal)

    @classmethod
    def make(cls, setting: Setting) -> WordsSource:
        section, own = online_section(setting.config), setting.config.plugins["words"]
        vectors = read_vectors(Path(own.vectors).expanduser())
        texts = texts_of(setting.config.env, setting.config.annotate.lexicon)
        sentences = [goal_text(texts, turn.goal) for turn in parse_goals(section.goals)]
        facts = captioned_facts(setting.config.policy) | {"kind": "words", "goals": section.goals}
        facts |= {"floor": own.floor, "sentences": sentences, "size": len(next(iter(vectors.values())))}
        source = cls(facts, vectors)
        for text in sentences:
            if not np.any(source.embed(text)):
                raise UserError(f"no word of the goal {text!r} has a vector in {own.vectors!r} ({FLAG})")
        return source

    @classmethod
    def rebuild(cls, arrays: Any, facts: Facts) -> WordsSource:
        source = cls(facts, _unpack(arrays))
        source.steps, turn = np.asarray(arrays["counters"]).tolist()
        source._start_turn(turn)
        return source

    def _start_turn(self, turn: int) -> None:
        self._turn, sentence = turn, self._facts["sentences"][turn]
        self._goal = self.embed(sentence)
        self._table = RewardTable(self.values, np.zeros((0, 256), np.uint8))

    def embed(self, text: str) -> np.ndarray:
        """The sum of the vectors of a text's words. [D] float32"""
        total = np.zeros(self._facts["size"], np.float32)
        for word in re.findall(r"[^\W_]+(?:'[^\W_]+)*", text):
            for written in (word, word.lower()):
                if (vector := self._vectors.get(written)) is not None:
                    self._used[written] = vector
                    total = total + vector
                    break
        return total

    def values(self, messages: np.ndarray) -> np.ndarray:
        """The worth of distinct messages. [K, 256] -> [K] float32"""
        closeness = np.array([cosine(self.embed(decode(message)), self._goal) for message in messages], np.float32)
        return np.where(closeness > self._facts["floor"], closeness, np.float32(0))

    def worth(self, messages: np.ndarray) -> np.ndarray:
        return self._table(messages)

    def advance(self, batch: Any, hosts: Any) -> None:
        """See `RewardSource`: only the goal may change."""
        self.steps += batch.steps
        if (turn := turn_at(self._turns, self.steps)) != self._turn:
            self._start_turn(turn)

    def arrays(self) -> Any:
        used = dict(self._used)  # a copy, as the hand-off thread may meet more
        vectors = np.stack([*used.values()]) if used else np.zeros((0, self._facts["size"]), np.float32)
        words = np.frombuffer("\n".join(used).encode(), np.uint8)
        return {"counters": np.array([self.steps, self._turn], np.int64), "words": words, "vectors": vectors}

    def facts(self) -> Facts:
        return self._facts

    def restore(self, arrays: Any, facts: Facts) -> None:
        """See `RewardSource`; raises UserError if the vectors have changed since training began."""
        self._used = _unpack(arrays)
        for word, vector in self._used.items():
            if not np.array_equal(self._vectors.get(word, ()), vector):
                raise UserError(f"word vectors, such as that of {word!r}, have changed since training began ({FLAG})")
        self.steps, turn = np.asarray(arrays["counters"]).tolist()
        check_past(facts["goals"], self._facts["goals"], self.steps)
        self._start_turn(turn)

    def about(self) -> Facts:
        return {**self._facts, "goal": self._turns[self._turn].goal}

    def figures(self) -> dict[str, float]:
        return {"online_captions": float(len(self._table)), "online_words": float(len(self._used))}


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """The cosine of an angle; as in the release, norms below LEAST_NORM count as LEAST_NORM."""
    norms = (max(float(np.linalg.norm(vector)), LEAST_NORM) for vector in (one, other))
    return float(one @ other) / math.prod(norms)


def read_vectors(path: Path) -> dict[str, np.ndarray]:
    """Reads word vectors, all of the same size. [D] float32 each"""
    vectors: dict[str, np.ndarray] = {}
    size = 0
    with legible(repr(str(path)), FLAG), open_regular(path) as file:
        lines = io.TextIOWrapper(file, encoding="utf-8", errors="replace")
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE), ""), 1):
            word, *numbers = line.rstrip("\n").rstrip(" ").split(" ")
            if number == 1 and len(numbers) == 1 and word.isdecimal():
                continue  # the counts of words and numbers
            size, vector = size or len(numbers), np.zeros(0, np.float32)
            with contextlib.suppress(ValueError):
                vector = np.array(numbers, np.float32)
            if not len(vector) == size > 0 or not (np.abs(vector) < MOST).all():  # sums of squares must be finite, too
                raise ValueError(f"line {number:,} is not a word with its numbers, or one is not finite")
            vectors.setdefault(word, vector)
            if len(vectors) >= MOST_WORDS:
                break
        if not vectors:
            raise ValueError("it is empty")
    return vectors


def _unpack(arrays: Any) -> dict[str, np.ndarray]:
    words = np.asarray(arrays["words"]).tobytes().decode()
    return dict(zip(words.split("\n"), np.asarray(arrays["vectors"]), strict=True)) if words else {}

"""Small transcripts, and tokenisers that are simple enough to check by eye."""

import re

import numpy as np

from motif_jax.structs import Episode, Turn
from motif_jax.transcripts.store import TranscriptWriter

MARKS = ("<a>", "<s>", "</a>", "</s>", "</eod>", "<g>", "<y>", "<b>")


class Letters:
    """A token per letter, and per mark."""

    def __init__(self, marks=MARKS):
        self.words = [*"abcdefghijklmnopqrstuvwxyz \n?!", *marks]
        self.size = len(self.words)
        self._split = re.compile("|".join(map(re.escape, sorted(self.words, key=len, reverse=True))))
        self._ids = {word: index for index, word in enumerate(self.words)}

    def encode(self, text, marks=True):
        return [self._ids[word] for word in self._split.findall(text)]

    def decode(self, tokens):
        return "".join(self.words[token] for token in tokens)


class Greedy(Letters):
    """Some pairs of letters are one token, across everything that is not a mark."""

    def __init__(self):
        super().__init__((*MARKS, "ab", "\na"))


def wordle_game():
    """The worked example of ILQL: two guesses, won at the second."""
    turns = (Turn("crane", -1.0), Turn("<b><b><y><b><g>"), Turn("abide", 0.0), Turn("<g><g><g><g><g>"))
    return Episode(turns, terminal=True)


def random_episode(rng, info=False):
    letters = list("abcde")
    turns = []
    for _ in range(rng.integers(0, 6)):
        text = "".join(rng.choice(letters, rng.integers(0, 5)))
        turns.append(Turn(text, float(np.float32(rng.normal())) if rng.random() < 0.5 else None))
    return Episode(tuple(turns), bool(rng.random() < 0.5), {"steps": float(len(turns))} if info else {})


def write(path, episodes, **provenance):
    writer = TranscriptWriter()
    for episode in episodes:
        writer.add(episode)
    return writer.write(path, provenance)


def random_store(path, count=40, info=False):
    rng = np.random.default_rng(0)
    return write(path, [random_episode(rng, info) for _ in range(count)])

"""Which questions the judge is asked next: in which order, how many at a time, and how many in all."""

from __future__ import annotations

import numpy as np

from motif_jax.annotation.annotator import Question
from motif_jax.annotation.stream import Item
from motif_jax.rewards.online.kinds import Kind
from motif_jax.rewards.online.store import Store

AHEAD = 256  # questions planned at least; more where so many are answered between two plans
NO_LIMIT = 2**62


def in_order(store: Store, kind: Kind, order: str) -> np.ndarray:
    """The questions that wait for an answer, the most urgent first.

    Args:
      store: questions and captions.
      kind: knows how certain it is of an answer.
      order: "recency": those last seen first, and of pairs the last made; "count": those seen most often, and of pairs
        the rarer of both counts; "uncertain": those whose answer is the least certain.
    """
    waiting = store.waiting
    first, second = store.questions["first"][waiting], store.questions["second"][waiting]
    if order == "uncertain":
        urgency = kind.doubt(store, waiting)
    elif order == "count":
        counts = store.of_captions["count"]
        urgency = np.minimum(counts[first], counts[second]) if store.pairs else counts[first]
    else:
        urgency = store.questions["step"][waiting] if store.pairs else store.of_captions["last_step"][first]
    return waiting[np.lexsort((waiting, urgency))[::-1]]


def bound_queue(store: Store, ordered: np.ndarray, most: int) -> np.ndarray:
    """The first questions; the others no longer wait, and captions wait again when they are next seen."""
    store.drop(ordered[most:])
    return ordered[:most]


def items(store: Store, ordered: np.ndarray) -> list[Item]:
    """Questions in words."""
    columns = (store.questions[name][ordered].tolist() for name in ("first", "second", "attempts"))
    return [
        Item(number, attempt, Question(store.text(first), store.text(second) if second >= 0 else None))
        for number, first, second, attempt in zip(ordered.tolist(), *columns, strict=True)
    ]


def limit(labels_per_1000_steps: float, steps: int) -> int:
    """How many questions the judge may have been asked after so many steps; a budget of 0 is none."""
    return int(labels_per_1000_steps * steps / 1000) if labels_per_1000_steps else NO_LIMIT


def sample_pairs(store: Store, number: int, sample: str, seed: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Captions to compare. [number] rows, twice

    Args:
      store: captions.
      number: of pairs.
      sample: "count": each caption as often as it was seen; "distinct": each as often as any other.
      seed: what the choice depends on.
    """
    rng = np.random.default_rng(seed)
    if not len(store.captions):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if sample == "distinct":
        found = rng.integers(len(store.captions), size=2 * number)
    else:
        sums = np.cumsum(store.of_captions["count"])
        found = np.searchsorted(sums, rng.integers(sums[-1], size=2 * number), side="right")
    return found[:number], found[number:]

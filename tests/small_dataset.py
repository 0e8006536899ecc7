"""Datasets of a few pairs, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from motif_jax.captions import encode

Moment = str | Sequence[str]  # a message, or one per step

EVENTS = (
    "You kill the newt!", "You see here a dagger.", "It's a wall.", "You descend the stairs.", "$ - 12 gold pieces.",
    "You die...", "The jackal bites!", "", "You find a hidden door.", "You hear a door open.",
)  # fmt: skip


def write_dataset(path: Path, pairs: Sequence[tuple[Moment, Moment]]) -> Path:
    """A dataset in the published layout. Scores count up, so that the second of a pair is the better; rewards down."""
    steps = [[[moment] if isinstance(moment, str) else list(moment) for moment in pair] for pair in pairs]
    messages = np.array([[[encode(text) for text in moment] for moment in pair] for pair in steps], np.uint8)
    count, _, length = messages.shape[:3]
    (path / "data").mkdir(parents=True)
    (path / "info").mkdir()
    np.save(path / "data/message.npy", messages)
    blstats = np.arange(count * 2 * length * 27).reshape(count, 2, length, 27) % 50
    blstats[..., 21] %= 3  # hunger
    np.save(path / "data/blstats.npy", blstats.astype(np.int64))
    np.save(path / "data/rewards.npy", -np.arange(count * 2 * length, dtype=np.float32).reshape(count, 2, length))
    np.save(path / "info/score.npy", np.arange(count * 2).reshape(count, 2))
    return path


def random_pairs(count: int, seed: int = 0, events: Sequence[str] = EVENTS) -> list[tuple[str, str]]:
    """Pairs drawn from a few events, so that most questions occur often."""
    drawn = np.random.default_rng(seed).integers(len(events), size=(count, 2))
    return [(events[first], events[second]) for first, second in drawn]

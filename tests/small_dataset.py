"""Datasets of a few pairs, written by hand."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from motif_jax.captions import encode

Moment = str | Sequence[str]  # a message, or one per step

EVENTS = (
    "You kill the newt!", "You see here a dagger.", "It's a wall.", "You descend the stairs.", "$ - 12 gold pieces.",
    "You die...", "The jackal bites!", "", "You find a hidden door.", "You hear a door open.",
)  # fmt: skip
MANY = tuple(f"{event} #{number}" for number in range(4) for event in EVENTS)


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
    drawn = np.random.default_rng(seed).integers(len(events), size=(count, 2))
    return [(events[first], events[second]) for first, second in drawn]


PUBLISHED_PAIRS, LLAMA = 12, "llama70b_msg_defaultgoal_default"


def write_published(path: Path, length: int = 1) -> tuple[Path, np.ndarray]:
    """A dataset with all files of the published one, and its codes of LLAMA. [N] int8"""
    rng, count = np.random.default_rng(length), PUBLISHED_PAIRS
    for folder in ("data", "info", "preference", "train_split_info"):
        (path / folder).mkdir(parents=True)
    texts = ["", "You kill the newt!", "You see here a dart.", "It's a wall."]
    messages = np.stack([encode(texts[i]) for i in rng.integers(4, size=count * 2 * length)])
    np.save(path / "data/message.npy", messages.reshape(count, 2, length, 256))
    np.save(path / "data/blstats.npy", rng.integers(0, 50, (count, 2, length, 27)))
    np.save(path / "data/tty_chars.npy", rng.integers(32, 127, (count, 2, length, 24, 80)).astype(np.uint8))
    np.save(path / "data/tty_colors.npy", rng.integers(0, 16, (count, 2, length, 24, 80)).astype(np.int8))
    np.save(path / "data/rewards.npy", rng.normal(size=(count, 2, length)))
    for name in ("score", "turns", "experience_level"):
        np.save(path / f"info/{name}.npy", rng.integers(0, 900, (count, 2)))
    np.save(path / "info/character.npy", np.full((count, 2), "mon-hum-neu-mal"))
    codes = rng.integers(0, 4, count).astype(np.int8)
    np.save(path / f"preference/{LLAMA}.npy", codes)
    np.save(path / "preference/llama7b_msg_defaultgoal_default.npy", np.roll(codes, 1))
    (path / "train_split_info/sorted_messages.pkl").write_bytes(pickle.dumps([1]))
    return path, codes

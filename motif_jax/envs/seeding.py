"""Which game is played: (run seed, stream, episode) -> the seeds of NetHack's generators and of a scripted player.

Streams never collide: the lowest bit of the core seed says whether the game belongs to evaluation, so a game that an
agent was trained on cannot be one that it is tested on, whatever the run seeds are.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np


class SeedStream(enum.IntEnum):
    """What a game is played for."""

    COLLECT = 0
    TRAIN = 1
    EVALUATE = 2


class GameSeed(NamedTuple):
    """Everything random about one episode."""

    core: int  # dungeon, monsters, dice
    disp: int  # what the display generator draws (hallucination, ...)
    player: int  # for a scripted player


def game_seed(run_seed: int, stream: int, episode: int) -> GameSeed:
    """The seeds of one episode; the same on every machine, in every process."""
    words = np.random.SeedSequence((run_seed, stream, episode)).generate_state(3, np.uint64)
    core, disp, player = (int(word) >> 1 for word in words)  # NetHack takes signed 64-bit seeds
    return GameSeed(core & ~1 | (stream == SeedStream.EVALUATE), disp, player)

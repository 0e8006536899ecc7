"""Seeds of games: (run seed, stream, episode) -> the seeds of NetHack's generators and of a scripted player.

The lowest bit of the core seed marks evaluation, so training and evaluation games are disjoint for all run seeds.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np


class SeedStream(enum.IntEnum):
    """The purpose of a game."""

    COLLECT = 0
    TRAIN = 1
    EVALUATE = 2


class GameSeed(NamedTuple):
    """All seeds of one episode."""

    core: int  # dungeon, monsters, dice
    disp: int  # the display's generator (hallucination, ...)
    player: int  # for a scripted player


def game_seed(run_seed: int, stream: int, episode: int) -> GameSeed:
    """Returns the seeds of one episode; the same on every machine."""
    words = np.random.SeedSequence((run_seed, stream, episode)).generate_state(3, np.uint64)
    core, disp, player = (int(word) >> 1 for word in words)  # NetHack takes signed 64-bit seeds
    return GameSeed(core & ~1 | (stream == SeedStream.EVALUATE), disp, player)

"""Converts LMRL-Gym's games of Wordle to our world's format.

    LMRL-Gym   Wordle:\\n       c r a n e\\n   b b y b g\\n        ...
    ours                      crane        <b><b><y><b><g>    ...

The spaces make a byte pair tokeniser see single letters. LMRL-Gym answers an invalid guess with an empty line; our
world does not answer it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from motif_jax.config.table import shown
from motif_jax.structs import Episode, Turn, UserError
from motif_jax.transcripts.imports import FLAG, read_lmrl

HEADER = "Wordle:"


def read_lmrl_wordle(file: Path, flag: str = FLAG) -> Iterator[Episode]:
    """Yields the games of an LMRL-Gym file in our world's format, with the file's rewards."""
    for number, episode in enumerate(read_lmrl(file, flag)):
        try:
            yield episode._replace(turns=tuple(_respelt(episode.turns)))
        except ValueError as error:
            what = f"game {number:,} of {str(file)!r} is not written as LMRL-Gym writes Wordle"
            raise UserError(f"{what}: {error} ({flag})") from error


def _respelt(turns: Sequence[Turn]) -> Iterator[Turn]:
    """The turns in our world's format; raises ValueError for an unknown format."""
    if not turns or turns[0].is_action or turns[0].text.strip() != HEADER:
        raise ValueError(f"it does not begin with {HEADER!r}")
    for turn in turns[1:]:
        letters = "".join(turn.text.split())
        if turn.is_action:
            yield turn._replace(text=letters)
        elif re.fullmatch("[gyb]{5}", letters):
            yield Turn("".join(f"<{colour}>" for colour in letters))
        elif letters:
            raise ValueError(f"its answer {shown(turn.text)} is not five colours g, y or b")

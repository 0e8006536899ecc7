"""What was said in an episode: turns of text, by the agent or by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from motif_jax.structs import TextEpisode


class Turn(NamedTuple):
    """One text. The agent's have a reward, those of the environment have none."""

    text: str
    reward: float | None = None

    @property
    def is_action(self) -> bool:
        """Whether the agent says it."""
        return self.reward is not None


class Episode(NamedTuple):
    """Turns in their order."""

    turns: tuple[Turn, ...]
    terminal: bool  # it ended by itself; False: the record stops before its end
    info: Mapping[str, float] = {}  # numbers about it, by name; all episodes of a store have the same names

    @property
    def episode_return(self) -> float:
        """The sum of its rewards."""
        return sum(turn.reward for turn in self.turns if turn.reward is not None)


def of_game(episode: TextEpisode) -> Episode:
    """An episode as the worlds give it that are played by writing, as transcripts keep it."""
    turns = tuple(Turn(turn.text, turn.reward if turn.is_action else None) for turn in episode.turns)
    return Episode(turns, episode.terminal, episode.info)

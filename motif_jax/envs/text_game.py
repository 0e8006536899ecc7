"""A text game: the agent and the world write in turn until the episode ends.

Subclasses implement the world's answers. `turns` has the conversation so far; `state` and `set_state` branch it, to
play several continuations of one beginning.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from motif_jax.captions import WIDTH
from motif_jax.config.table import shown
from motif_jax.envs.gym_world import LARGEST
from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.envs.sequential import SequentialGame
from motif_jax.envs.world import GREY, SCREEN_SHAPE, WHITE, GameSeed, Pieces, Screen, draw_screen, to_row, to_text
from motif_jax.screens import printable
from motif_jax.structs import EndStatus, Episode, EpisodeInfo, Turn, UserError

ROOM = SCREEN_SHAPE[0] - 3, SCREEN_SHAPE[1] - 14  # rows and columns of a conversation on the screen


class Answer(NamedTuple):
    """The world's answer to a text of the agent."""

    text: str  # "": the world is silent, and the agent writes again
    reward: float  # of the agent's text
    end: EndStatus = EndStatus.RUNNING
    cause: str = ""  # of the end; "" if unknown


class TextState(NamedTuple):
    """A snapshot of a conversation, from which it can be continued."""

    turns: tuple[Turn, ...]
    end: EndStatus
    hidden: Any  # the world's hidden state, on which its answers depend; None without one


class TextGame(SequentialGame):
    """Implements `world.Game`; see the module docstring."""

    # State on which the answers depend, and which the turns do not tell. It is replaced, and not changed.
    hidden: Any = None

    def __init__(self, written: int, heard: int, time_limit: int):
        """Takes the maximum bytes of the agent's and the world's texts, and the time limit in steps."""
        self._written, self._heard, self._time_limit = written, heard, time_limit
        self.random = random.Random(0)
        self.turns: list[Turn] = []

    # ---- for subclasses

    def open(self) -> str:
        """Begins a conversation; returns the world's first text, or ""."""
        raise NotImplementedError

    def answer(self, text: str) -> Answer:
        """Returns the answer to the agent's text, which is not yet in `turns`."""
        raise NotImplementedError

    def draw(self, chance: float) -> str:
        """Returns a text for a number in [0, 1), all equally likely."""
        raise NotImplementedError

    def restore(self, turns: Sequence[Turn], hidden: Any) -> None:
        """Restores the world's state after these turns, from what `hidden` was then."""
        self.hidden = hidden

    def caption(self) -> str:
        """Describes what has just happened in one line."""
        written = next((turn.text for turn in reversed(self.turns) if turn.is_action), None)
        heard = f'you hear "{self.heard}"' if self.heard else "nobody answers"
        return heard[:1].upper() + heard[1:] if written is None else f'You write "{written[:100]}" and {heard}'

    def drawn(self) -> Sequence[Pieces]:
        """Returns the rows of the screen below the caption."""
        lines: list[Pieces] = []
        for turn in self.turns:
            who, color = ("you", 14) if turn.is_action else ("they", GREY)
            for number, line in enumerate(textwrap.wrap(printable(turn.text), ROOM[1]) or [""]):
                lines.append([(f"{who if not number else '':>6}  ", WHITE), (line.ljust(ROOM[1]), color)])
        return lines[-ROOM[0] :]

    # ---- the same in all worlds

    @property
    def heard(self) -> str:
        """The world's answer to the agent's last text; "" if it was silent."""
        return self.turns[-1].text if self.turns and not self.turns[-1].is_action else ""

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        self.begin(seed, episode)
        self._counts = {}
        self._look()

    def step(self, action: Any) -> float:
        """Plays one action, an array from `world.to_row` or a text; returns its reward."""
        reward = self.say(action if isinstance(action, str) else to_text(action))
        self._look()
        return reward

    def begin(self, seed: GameSeed, episode: int) -> None:
        """Begins an episode without observations; continue it with `say`, which is several times faster than `step`."""
        self.random.seed(seed.core)
        self.episode, self.end, self.cause = episode, EndStatus.RUNNING, ""
        opening = _fit(self.open(), self._heard)
        self.turns = [Turn(opening)] if opening else []

    def say(self, text: str) -> float:
        text = _fit(text, self._written)
        reply, reward, self.end, self.cause = self._check(self.answer(text))
        self.turns.append(Turn(text, reward))
        if reply := _fit(reply, self._heard):
            self.turns.append(Turn(reply))
        if not self.end and self.steps >= self._time_limit:
            self.end = EndStatus.ABORTED
        return reward

    @property
    def steps(self) -> int:
        return sum(turn.is_action for turn in self.turns)

    def state(self) -> TextState:
        return TextState(tuple(self.turns), self.end, self.hidden)

    def set_state(self, state: TextState) -> None:
        """Continues from a snapshot of this game or another; further random draws are this episode's own."""
        self.turns, self.end, self.cause = list(state.turns), state.end, ""
        self.restore(state.turns, state.hidden)
        self._counts = {}
        self._look()

    def record(self, **info: float) -> Episode:
        """Returns the episode so far; its `info` has its number as `episode`, and the given values."""
        return Episode(tuple(self.turns), self.end > EndStatus.RUNNING, {"episode": self.episode, **info})

    def info(self) -> EpisodeInfo:
        total = float(sum(turn.reward or 0.0 for turn in self.turns))
        success = self.end == EndStatus.TASK_SUCCESSFUL
        return EpisodeInfo(self.episode, self.steps, total, int(self.end), success, self.measure())

    def screen(self) -> Screen:
        return draw_screen(self.message.decode("latin-1"), self.drawn())

    def _check(self, answer: Any) -> Answer:
        """Validates an answer, which may come from a user's code."""
        try:
            text, reward, end, cause = answer
            texts = isinstance(text, str) and isinstance(cause, str) and not isinstance(reward, (str, bytes))
            if texts and isinstance(end, EndStatus) and abs(number := float(reward)) <= LARGEST:
                return Answer(text, number, end, cause)
        except (TypeError, ValueError, OverflowError):
            pass
        raise UserError(
            f"answer() of the game {type(self).__name__!r} must return (text, reward, end, cause) with a finite reward "
            f"and an EndStatus as the end, not {shown(answer)} ({WORLD_FLAG})"
        )

    def _look(self) -> None:
        message = printable(self.caption()).encode("latin-1", "replace")[:WIDTH]
        self.seen = {"heard": to_row(self.heard, self._heard)} | self.show_caption(message)


def _fit(text: str, width: int) -> str:
    """Returns the text as `to_row` and `to_text` would change it."""
    plain = len(text) <= width and text.isascii() and "\0" not in text
    return text if plain else to_text(to_row(text, width))

"""Any world as a conversation, for clients that read and write texts (integrations/).

    talk = Conversation({"world": "wordle"})    # values of the config section `env`
    talk.begin(seed=7)                          # the same seed begins the same episode
    talk.say("crane")                           # Heard(text="<b><y><b><b><g>", reward=-1.0, done=False)

Worlds that are played by writing hear every text. In other worlds, a text must be the name of an action: without regard
to blanks around it, and to case, unless several names differ by case alone. Otherwise the game stands still, and the
answer lists the names. MOST_UNKNOWN such texts in a row end the episode. Such worlds show their prompt, or else their
screen.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple

from motif_jax.config.table import shown
from motif_jax.envs.own_code import reported
from motif_jax.envs.text_game import TextGame
from motif_jax.envs.world import SeedStream, World, game_seed, is_text, to_text
from motif_jax.envs.worlds import check_section, check_world
from motif_jax.screens import screen_text
from motif_jax.structs import EndStatus, UserError

LONGEST = 100_000  # characters of a client's text
MOST_UNKNOWN = 20  # texts in a row that name no action; the last one ends the episode, as some clients never give up


class Heard(NamedTuple):
    """The world's reply."""

    text: str
    reward: float  # of the agent's last text
    done: bool  # whether the episode has ended


class Conversation:
    """One game; see the module docstring."""

    def __init__(self, env: Mapping[str, Any]):
        check_section(env)
        self._env, self._world = dict(env), check_world(env)
        self._actions, self._any_case = _numbers(self._world)
        if not self._actions and not is_text(self._world.action):
            problem = f"the actions of the world {self._world.name!r} are numbers, so they cannot be written"
            raise UserError(f"{problem}: choose a world whose actions have names, or are texts (--config.env.world)")
        with reported(self._env):
            self._game: Any = self._world.game()
        self._running, self._unknown = False, 0

    @property
    def about(self) -> str:
        """Describes the game and, if they are chosen from a list, its actions."""
        return f"You play {self._world.about}. {self._choice}".strip()

    def begin(self, seed: int, episode: int = 0) -> Heard:
        if not (isinstance(seed, int) and 0 <= seed < 2**31):
            raise UserError(f"a seed is a whole number from 0 to 2,147,483,647, not {shown(seed)}")
        with reported(self._env):
            self._game.reset(game_seed(seed, SeedStream.TRAIN, episode), episode)
        self._running, self._unknown = True, 0
        return Heard(self._text(), 0.0, False)

    def say(self, text: str) -> Heard:
        if not self._running:
            raise UserError("no episode is running: begin one")
        if not isinstance(text, str) or len(text) > LONGEST or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UserError(f"the agent writes a text of at most {LONGEST:,} Unicode characters, not {shown(text)}")
        name = text.strip()
        number = self._actions.get(name, self._any_case.get(name.lower()))
        action: Any = text if is_text(self._world.action) else number
        if action is None:
            self._unknown += 1
            self._running = self._unknown < MOST_UNKNOWN
            return Heard(f"{shown(text)} is not an action. {self._choice}", 0.0, not self._running)
        with reported(self._env):
            reward = float(self._game.step(action))
        self._running, self._unknown = self._game.end == EndStatus.RUNNING, 0
        return Heard(self._text(), reward, not self._running)

    def close(self) -> None:
        self._game.close()

    @property
    def _choice(self) -> str:
        names = ", ".join(self._world.action_names)
        return f"Answer with one of: {names}." if names else ""

    def _text(self) -> str:
        if isinstance(self._game, TextGame):
            return self._game.heard
        if "prompt" in self._world.specs:
            return to_text(self._game.seen["prompt"])
        return "\n".join(line.rstrip() for line in screen_text(self._game.screen().chars).split("\n")).strip("\n")


def _numbers(world: World) -> tuple[dict[str, int], dict[str, int]]:
    """The actions by their names, and by names in lower case that only one has; raises UserError for equal names."""
    names = [name.strip() for name in world.action_names]
    in_lower = collections.Counter(name.lower() for name in names)
    exact = {name: number for number, name in enumerate(names)}
    if len(exact) < len(names):
        (twice, _), *_ = collections.Counter(names).most_common(1)
        problem = f"two actions of the world {world.name!r} are called {shown(twice)}, blanks around it aside"
        raise UserError(f"{problem}: a text cannot choose between them (--config.env.world)")
    return exact, {name.lower(): number for name, number in exact.items() if in_lower[name.lower()] == 1}

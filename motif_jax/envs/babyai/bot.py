"""MiniGrid's planner, which solves nearly all levels, as a scripted player and as a measure of how long a mission is.

It sees what the player sees and remembers it. It is deterministic. There are levels that it cannot do (see
`world.NOT_FOR_THE_BOT`), and in rare situations of others it gives up: it raises one of ERRORS, or makes one plan after
another without end. The player then moves at random until the episode ends.
"""

from __future__ import annotations

import random
from typing import Any

from minigrid.core.actions import Actions
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

MOST_PLANS = 200  # for one action; a dozen are common


class EndlessPlansError(Exception):
    """The planner comes to no action."""


ERRORS = (AssertionError, DisappearedBoxError, EndlessPlansError, AttributeError, TypeError, IndexError)


class Plans(list[Any]):
    """The planner's stack of plans, which counts what is added to it."""

    added = 0

    def append(self, plan: Any) -> None:
        """Adds a plan; raises EndlessPlansError if there were too many since `added` was zero."""
        self.added += 1
        if self.added > MOST_PLANS:
            raise EndlessPlansError
        super().append(plan)


class Planner:
    """Plans the actions of one episode, all of which must be its own."""

    def __init__(self, env: RoomGridLevel):
        """Takes an environment that has just been reset."""
        self._bot: BabyAIBot | None = BabyAIBot(env)
        self._plans = self._bot.stack = Plans(self._bot.stack)

    def action(self) -> int | None:
        """MiniGrid's number of the next action; None if the planner has given up."""
        if self._bot is None:
            return None
        self._plans.added = 0
        try:
            action = int(self._bot.replan())
        except ERRORS:
            action = int(Actions.done)
        if action == Actions.done:  # it believes that it is through, and the episode goes on
            self._bot = None
            return None
        return action


def steps_of_bot(env: RoomGridLevel) -> int:
    """The steps in which the planner accomplishes the mission of an environment just reset; 0 if it does not."""
    planner = Planner(env)
    while (action := planner.action()) is not None:
        _, reward, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            return env.step_count if float(reward) > 0 else 0
    return 0


class BotPlayer:
    """The planner as a `ScriptedPlayer`."""

    def begin(self, rng: random.Random) -> None:
        """Starts a new episode, which is made after this call."""
        self._rng, self._planner = rng, None

    def choose(self, game: Any) -> int:
        """Returns the number of the next action."""
        if self._planner is None:
            self._planner = Planner(game.env)
        action = self._planner.action()
        return self._rng.randrange(game.num_actions) if action is None else action

    _planner: Planner | None

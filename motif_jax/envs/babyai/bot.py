"""MiniGrid's planner, which solves nearly all levels, as a scripted player and as a measure of a mission's length.

The planner has the player's view and remembers it. It is deterministic. It cannot solve the levels in
`world.NOT_FOR_THE_BOT`, and rarely gives up in others: it raises one of ERRORS, or adds plans without end. The player
then moves at random until the episode ends.
"""

from __future__ import annotations

import random
from typing import Any

from minigrid.core.actions import Actions
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

MOST_PLANS = 200  # for one action; a dozen is common


ERRORS = (AssertionError, DisappearedBoxError, AttributeError, TypeError, IndexError)


class Plans(list[Any]):
    """The planner's stack of plans, which counts additions."""

    added = 0

    def append(self, plan: Any) -> None:
        """Adds a plan; raises IndexError above MOST_PLANS additions since `added` was set to 0."""
        self.added += 1
        if self.added > MOST_PLANS:
            raise IndexError("the planner does not arrive at an action")
        super().append(plan)


class Planner:
    """Plans the actions of one episode; every step must follow its plan."""

    def __init__(self, env: RoomGridLevel):
        """Takes an environment that has just been reset."""
        self._bot: BabyAIBot | None = BabyAIBot(env)
        self._plans = self._bot.stack = Plans(self._bot.stack)

    def action(self) -> int | None:
        """Returns MiniGrid's number of the next action; None if the planner has given up."""
        self._plans.added = 0
        try:
            action = Actions.done if self._bot is None else self._bot.replan()
        except ERRORS:
            action = Actions.done
        if action == Actions.done:  # the planner thinks it is done, but the episode goes on
            self._bot = None
        return int(action) if self._bot else None


def steps_of_bot(env: RoomGridLevel) -> int:
    """Returns the steps that the planner needs in an environment just reset; 0 if it fails."""
    planner = Planner(env)
    while (action := planner.action()) is not None:
        _, reward, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            return env.step_count if float(reward) > 0 else 0
    return 0


class BotPlayer:
    """The planner as a `ScriptedPlayer`."""

    def begin(self, rng: random.Random) -> None:
        """Starts a new episode, before the game is reset."""
        self._rng, self._planner = rng, None

    def choose(self, game: Any) -> int:
        self._planner = self._planner or Planner(game.env)
        action = self._planner.action()
        return self._rng.randrange(game.num_actions) if action is None else action

    _planner: Planner | None

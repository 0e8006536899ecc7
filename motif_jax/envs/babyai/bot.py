"""MiniGrid's planner, which solves nearly all levels, as a scripted player and as a measure of a mission's length.

The planner has the player's view and remembers it. It is deterministic. It cannot solve the levels in
`world.NOT_FOR_THE_BOT`, and rarely gives up in others: it raises one of ERRORS, or adds plans without end. The player
then moves at random until the episode ends.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
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


def plan(env: RoomGridLevel) -> Iterator[int]:
    """Yields MiniGrid's numbers of actions, from an environment just reset until the planner gives up.

    Every step must follow the plan.
    """
    bot = BabyAIBot(env)
    plans = bot.stack = Plans(bot.stack)
    while True:
        plans.added = 0
        try:
            action = int(bot.replan())
        except ERRORS:
            return
        if action == Actions.done:  # the planner thinks it is done, but the episode goes on
            return
        yield action


def steps_of_bot(env: RoomGridLevel) -> int:
    """Returns the steps that the planner needs in an environment just reset; 0 if it fails."""
    for action in plan(env):
        _, reward, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            return env.step_count if float(reward) > 0 else 0
    return 0


class BotPlayer:
    """The planner as a `ScriptedPlayer`."""

    def begin(self, rng: random.Random) -> None:
        """Starts a new episode, before the game is reset."""
        self._rng = rng
        self._plan: Iterator[int] | None = None

    def choose(self, game: Any) -> int:
        self._plan = self._plan or plan(game.env)
        action = next(self._plan, None)
        return self._rng.randrange(game.num_actions) if action is None else action

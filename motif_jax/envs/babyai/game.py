"""One game: its seed determines an episode, and observations are computed on demand."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

from motif_jax.captions import encode
from motif_jax.envs.babyai import bot, screen
from motif_jax.envs.babyai.describe import COLUMN, ROW, VIEW, caption, describe
from motif_jax.envs.babyai.level_settings import MISSION_BYTES, BabyAISettings
from motif_jax.envs.babyai.levels import Maker, family_of, makers_of
from motif_jax.envs.babyai.prompt import Prompt, PromptBytes
from motif_jax.envs.babyai.words import shuffle_words
from motif_jax.envs.gym_world import SEEDS, quiet
from motif_jax.envs.seeding import GameSeed
from motif_jax.envs.world import Screen
from motif_jax.structs import EndStatus, EpisodeInfo

NOTHING = 6  # MiniGrid's action that does nothing: the effect of any action beyond the first six
AHEAD = ((1, 0), (0, 1), (-1, 0), (0, -1))  # (x, y) by MiniGrid's direction
OUTSIDE = bytes((OBJECT_TO_IDX["wall"], COLOR_TO_IDX["grey"], 0))  # cells beyond the grid
FREE = bytes((OBJECT_TO_IDX["empty"], 0, 0))
FAILED = "the mission has failed"  # in levels that allow no mistakes


class LazyObservations(dict[str, Any]):
    """The observations of a moment by name, each computed on first access."""

    def __init__(self, make: Callable[[str], Any]):
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Any:
        made = self[name] = self._make(name)
        return made


class BabyAIGame:
    """Implements `world.Game`; `SequentialVector` and the bot also use `seen`, `num_actions` and `env`."""

    def __init__(self, settings: BabyAISettings, prompts: PromptBytes):
        """Makes the environments of the level, one for each family of missions."""
        self._settings, self._language, self._prompts = settings, settings.words, prompts
        self._names = settings.action_names
        self.num_actions = len(self._names)
        self._envs = [_make(maker) for maker in makers_of(settings.level)]
        self.env: Any = self._envs[0]
        self._twins: dict[int, RoomGridLevel] = {}  # environments in which the bot plays the same episodes, by family
        self._family: int | None = None  # of all episodes; None: drawn for each episode
        self._prompt = Prompt(self._language, self._names, settings.window, settings.rewrite)

    def keep_family(self, seed: int) -> None:
        """Restricts further episodes to one family, drawn with this seed."""
        self._family = random.Random(seed).randrange(len(self._envs))

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        family = random.Random(seed.core).randrange(len(self._envs)) if self._family is None else self._family
        self.env, self._drawn, self._seed = self._envs[family], family, seed.core
        self._bot_steps: int | None = None
        with quiet():  # rejected rooms are printed
            observation, _ = self.env.reset(seed=seed.core % SEEDS)
        if self.env.carrying:  # some levels hand the player an object after the observation was made
            observation = self.env.gen_obs()
        self._episode, self._steps, self._return, self._success = episode, 0, 0.0, False
        self.end, self.cause = EndStatus.RUNNING, ""
        self._counts: dict[bytes, int] = {}
        self.mission = str(self.env.mission)
        if self._settings.mission == "shuffled":
            self.mission = shuffle_words(self.mission, random.Random(seed.core + 1))  # not as the family is drawn
        self._look(None, NOTHING, observation["image"])
        self._prompt.begin(self._settings.goal(self.mission), self._sentences)

    def step(self, action: int) -> float:
        observation, given, terminated, truncated, _ = self.env.step(min(int(action), NOTHING))
        reward = float(given)
        self._steps += 1
        self._return += reward
        if terminated:
            self._success = reward > 0
            self.end = EndStatus.TASK_SUCCESSFUL if self._success else EndStatus.ENDED
            self.cause = "" if self._success else FAILED
        elif truncated or self._steps >= self._settings.max_episode_steps:
            self.end = EndStatus.ABORTED
        self._look(self._image, min(int(action), NOTHING), observation["image"])
        self._prompt.go_on(self._names[int(action)], self._sentences)
        return reward

    def draw(self, chance: float) -> int:
        """Returns the action for a number in [0, 1), all equally likely."""
        return int(chance * self.num_actions)

    def info(self) -> EpisodeInfo:
        if self._bot_steps is None:
            self._bot_steps = self._ask_the_bot() if self._seed % 2 else 0
        figures = (family_of(self.env.instrs), self._bot_steps)
        return EpisodeInfo(self._episode, self._steps, self._return, int(self.end), self._success, figures)

    def screen(self) -> Screen:
        """The grid, the mission and the sentences."""
        rewrite = self._settings.rewrite
        said = [rewrite(sentence) for sentence in self._sentences()]
        return screen.draw(self.env, rewrite(self._prompt.goal), self.message.decode("latin-1"), said)

    def close(self) -> None:
        for env in (*self._envs, *self._twins.values()):
            env.close()

    def _look(self, before: np.ndarray | None, action: int, image: np.ndarray) -> None:
        """Stores the current view and its caption."""
        self._image = image
        self._caption = caption(before, action, image, self._success)
        self._sentences = functools.cache(lambda: describe(image, self._language, self._settings.faithful_walls))
        self.message = self._caption.encode("latin-1")
        self.message_count = self._counts[self.message] = self._counts.get(self.message, 0) + 1
        self.seen = LazyObservations(self._observe)

    def _observe(self, name: str) -> Any:
        if name == "image":
            return self._image
        if name == "mission":
            return np.frombuffer(self.mission.encode()[:MISSION_BYTES].ljust(MISSION_BYTES, b"\0"), np.uint8)
        if name == "prompt":
            return self._prompts.encode(self._prompt.text())
        return {"message": encode(self._caption), "message_count": np.int32(self.message_count)}[name]

    def _ask_the_bot(self) -> int:
        """Returns the steps that the bot needs in the same episode; 0 if it fails."""
        with quiet():
            if self._drawn not in self._twins:
                self._twins[self._drawn] = _make(makers_of(self._settings.level)[self._drawn])
            twin = self._twins[self._drawn]
            twin.reset(seed=self._seed % SEEDS)
        return bot.steps_of_bot(twin)


def _make(maker: Maker) -> RoomGridLevel:
    """Makes an environment that computes its observations with `_observe`."""
    with quiet():
        env: Any = maker()
    env.gen_obs = functools.partial(_observe, env)
    return env


def _observe(env: RoomGridLevel) -> dict[str, Any]:
    """Returns the same as MiniGrid's `gen_obs`, which takes most of a step's time.

    The view has 7 x 7 cells, where walls and closed doors hide cells behind them. MiniGrid cuts a grid of objects out
    of the room, rotates it up to four times, finds the visible cells, and encodes them. Here the visible cells are
    looked up in place, row by row from the player's row on.
    """
    (x, y), (ahead_x, ahead_y) = env.agent_pos, AHEAD[env.agent_dir]
    right_x, right_y = -ahead_y, ahead_x
    cells, width, height = env.grid.grid, env.grid.width, env.grid.height
    image = bytearray(VIEW * VIEW * 3)
    seen, above = [column == COLUMN for column in range(VIEW)], [False] * VIEW
    for row in range(ROW, -1, -1):
        left_x = int(x) + ahead_x * (ROW - row) - right_x * COLUMN
        left_y = int(y) + ahead_y * (ROW - row) - right_y * COLUMN
        codes, clear = [], []
        for column in range(VIEW):
            at_x, at_y = left_x + right_x * column, left_y + right_y * column
            if not (0 <= at_x < width and 0 <= at_y < height):
                codes.append(OUTSIDE)
                clear.append(False)
            elif (thing := cells[at_y * width + at_x]) is None:
                codes.append(FREE)
                clear.append(True)
            else:
                codes.append(bytes(thing.encode()))
                clear.append(thing.see_behind())
        for columns, step in ((range(VIEW - 1), 1), (range(VIEW - 1, 0, -1), -1)):  # to the right, then to the left
            for column in columns:
                if seen[column] and clear[column]:
                    seen[column + step] = above[column + step] = above[column] = True
        for column in range(VIEW):
            if seen[column]:
                place = 3 * (VIEW * column + row)
                image[place : place + 3] = codes[column]
        if True not in above:
            break
        seen, above = above, [False] * VIEW
    own = 3 * (VIEW * COLUMN + ROW)
    image[own : own + 3] = bytes(env.carrying.encode()) if env.carrying else FREE
    seen_now = np.frombuffer(bytes(image), np.uint8).reshape(VIEW, VIEW, 3)
    return {"image": seen_now, "direction": env.agent_dir, "mission": env.mission}

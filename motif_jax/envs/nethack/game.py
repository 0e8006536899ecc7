"""One game of NetHack on the raw engine: actions in, rewards of the task out.

The engine writes into the buffers it is given; a step reads a few numbers from them and copies `blstats` and
`glyphs`. Each action has Motif's key handling (arXiv 2310.00166, appendix; NLE's own, with two changes):

    1. "What do you want to eat? [fg or ?*]" is answered with its first letter by the action `y` and declined by others.
    2. After the action, pages are turned and questions declined (`keys.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from nle import nethack

from motif_jax.envs.nethack import engine
from motif_jax.envs.nethack.figures import make_info
from motif_jax.envs.nethack.keys import (
    DESCEND,
    ESCAPE,
    IN_LINE,
    IN_QUESTION,
    KEYS,
    NUL,
    ON_STAIRS_DOWN,
    SPACE,
    PromptedEngine,
    offered_key,
)
from motif_jax.envs.nethack.observations import MESSAGE_BYTES, count_drawn
from motif_jax.envs.nethack.tasks import SUCCESS_REWARD, get_task, step_penalty
from motif_jax.envs.seeding import GameSeed
from motif_jax.structs import EndStatus, EpisodeInfo

EAT_PROMPT = b"What do you want to eat"
STAIRS_HERE = b"There is a staircase down here."

# blstats
X, Y, SCORE, DEPTH, GOLD, LEVEL, TURNS, BRANCH, STAIRS_LEVEL, CONDITION = 0, 1, 9, 12, 13, 18, 20, 23, 24, 25
HALLUCINATING = 512
IN_MOVELOOP, WORTH_SAVING = 3, 5  # of program_state

ORACLE_GLYPH = next(
    glyph
    for glyph in range(nethack.GLYPH_MON_OFF, nethack.GLYPH_PET_OFF)
    if nethack.permonst(nethack.glyph_to_mon(glyph)).mname == "Oracle"
)


class NetHackGame(PromptedEngine):
    """A game that is reset with a seed and stepped with action numbers; see the module docstring."""

    keys = KEYS  # by action
    num_actions = len(KEYS)

    def __init__(self, settings: Any, buffers: dict[str, np.ndarray], library: str = engine.DLPATH):
        """Makes a game of `GameSettings` that writes its frames into `buffers` (see `observations.Frames.views`).

        `library`: the file of the engine (library.py).
        """
        super().__init__(buffers, settings.character, library)
        self.task = get_task(settings.task)
        self._max_steps = settings.max_episode_steps
        self._penalty_mode, self._penalty_step = settings.penalty_mode, settings.penalty_step
        self._patience = settings.no_progress_steps or 2**62
        self._constant_penalty = settings.penalty_mode == "constant"
        self._reference_sober = settings.reference_sober
        self._stairs_message = settings.stairs_message
        self._keys = self.keys
        self._is_score = self.task.is_score

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        """Starts the game of this seed; the buffers then have its first frame."""
        raw = self._raw
        self._send = raw.step
        raw.set_initial_seeds(seed.core, seed.disp, False, None)
        raw.reset()
        self.addresses = engine.patch(self._engine, seed.core, self.library)
        for _ in range(1000):  # messages about the moon, or a request to name an object on the first square
            if self._program_state[IN_MOVELOOP]:
                break
            raw.step(ESCAPE if self._internal[IN_LINE] else SPACE)
        else:
            raise RuntimeError(f"NetHack did not start a game within 1,000 keys (seed {seed})")
        self.episode = episode
        self.steps = 0
        self.episode_return = 0.0
        self.success = False
        self.end = EndStatus.RUNNING
        self._frozen = self._asked = 0
        self._score = self._blstats[SCORE]
        self._turns = self._blstats[TURNS]
        self._max_depth, self._max_level = self._blstats[DEPTH], self._blstats[LEVEL]
        self._explored: dict[tuple[int, int], int] = {}
        self._here = self._blstats[BRANCH], self._blstats[STAIRS_LEVEL]
        self.message = bytes(self._message).rstrip(NUL)
        self.message_counts = {self.message: 1}
        self.message_count = 1

    def step(self, action: int, pressed: bool = False) -> float:
        """Plays one action, updates `end`, `message` and `message_count`, and returns the reward.

        At the end of an episode, `message` is the last text that was shown and `last_frame` its frame. `pressed`: the
        key was pressed by `loop.Loop`.
        """
        blstats = self._blstats
        if not pressed:
            message = self.message
            key = self._keys[action]
            if EAT_PROMPT in message:
                key = offered_key(key, message)
            self._last_blstats[:] = blstats
            self._last_glyphs[:] = self._glyphs
            self._asked = self._internal[IN_QUESTION]
            self._send(key)
        if self._line_or_page[0] or self._internal[IN_QUESTION]:
            message = self._settle()
        else:
            message = bytes(self._message).rstrip(NUL)
        if self._stairs_message and not message and self._stepped_onto_stairs():
            message = self._show(STAIRS_HERE)
        self.message = message
        counts = self.message_counts
        self.message_count = counts[message] = counts.get(message, 0) + 1
        self.steps += 1

        if not self._program_state[WORTH_SAVING] and self._raw.done():  # asking the engine takes five times as long
            self.end = EndStatus.DEATH
            self.last_frame["message"][:] = np.frombuffer(message.ljust(MESSAGE_BYTES, NUL), np.uint8)
            reward = step_penalty(self._penalty_mode, 0, self._penalty_step) if self._is_score else 0.0
        else:
            here = blstats[BRANCH], blstats[STAIRS_LEVEL]
            if here != self._here:
                self._explored[self._here] = count_drawn(self.last_frame["glyphs"])
                self._here = here
                self._max_depth = max(self._max_depth, blstats[DEPTH])
            if blstats[LEVEL] > self._max_level:  # it can be lost again
                self._max_level = blstats[LEVEL]
            turns = blstats[TURNS]
            self._frozen = self._frozen + 1 if turns == self._turns else 0
            self._turns = turns
            if self._is_score:
                score = blstats[SCORE]
                reward = float(score - self._score)
                self._score = score
                if not self._constant_penalty:
                    reward += step_penalty(self._penalty_mode, self._frozen, self._penalty_step)
                elif self._frozen:
                    reward += self._penalty_step
            else:
                reward = self.goal_reward(message)
            if not self.end and (self.steps >= self._max_steps or self._frozen >= self._patience):
                self.end = EndStatus.ABORTED
            if self.end:
                for name, frame in self.last_frame.items():
                    frame[...] = self.buffers[name]
        self.episode_return += reward
        return reward

    def info(self) -> EpisodeInfo:
        blstats = self._last_blstats if self.end else self._blstats
        return make_info(
            episode=self.episode,
            steps=self.steps,
            episode_return=self.episode_return,
            end_status=int(self.end),
            success=self.success,
            ascended=self._engine.how_done() == nethack.ASCENDED and self.end == EndStatus.DEATH,
            score=blstats[SCORE],
            turns=blstats[TURNS],
            depth=blstats[DEPTH],
            max_depth=self._max_depth,
            gold=blstats[GOLD],
            experience_level=blstats[LEVEL],
            max_experience_level=self._max_level,
            scout=self._scout(),
            **self._own_figures(),
        )

    def _own_figures(self) -> dict[str, float]:
        """Returns further values of `figures.EXTENDED_FIGURES`."""
        return {}

    @property
    def cause(self) -> str:
        return engine.cause_of_death(self._engine) if self.end == EndStatus.DEATH else ""

    @property
    def on_stairs(self) -> bool:
        """Whether the hero stands on stairs down."""
        return bool(self._internal[ON_STAIRS_DOWN]) and not self.end

    @property
    def opened_question(self) -> bool:
        """Whether the last step made the game ask something, such as what to eat."""
        return bool(self._internal[IN_QUESTION]) and not self._asked and not self.end

    def _scout(self) -> int:
        """Returns the published scout score: drawn squares, summed over levels as the hero last saw them."""
        glyphs = self.last_frame["glyphs"] if self.end else self.buffers["glyphs"]
        return sum((self._explored | {self._here: count_drawn(glyphs)}).values())

    def _stepped_onto_stairs(self) -> bool:
        """Whether the last step led to stairs down on the same level; arriving by stairs does not count."""
        before, now = self._last_blstats, self._blstats
        moved = (before[X], before[Y]) != (now[X], now[Y])
        same_level = (before[BRANCH], before[STAIRS_LEVEL]) == (now[BRANCH], now[STAIRS_LEVEL])
        return bool(self._internal[ON_STAIRS_DOWN]) and moved and same_level

    def goal_reward(self, message: bytes) -> float:
        """Returns the reward of a task other than the score after this message; it may end the episode."""
        task = self.task
        if task.stairs_level:
            reached = DESCEND in message and self._blstats[STAIRS_LEVEL] == task.stairs_level
        else:
            x, y = self._blstats[X], self._blstats[Y]
            around = self.buffers["glyphs"][max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
            reached = bool((around == ORACLE_GLYPH).any()) and (not task.sober or self._is_sober())
        if not reached or (task.continual and self.success):
            return 0.0
        self.success = True
        if not task.continual:
            self.end = EndStatus.TASK_SUCCESSFUL
        return SUCCESS_REWARD

    def _is_sober(self) -> bool:
        condition = self._blstats[CONDITION]
        return condition != HALLUCINATING if self._reference_sober else not condition & HALLUCINATING

"""BabyAI-Text as a world (`envs/world.py`).

    prompt    the text that a language model continues with an action, as UTF-8.  [L] uint8
    image     kind, colour and state of the cells in view.  [7, 7, 3] uint8; see `describe`
    mission   MiniGrid's sentence, always in English.  [320] uint8

Figures of an episode: `family`, the index of its mission in `families`; `bot_steps`, the steps that the bot needs in
the same episode (0 if it fails, and in training, where it does not play).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.envs.babyai.level_settings import FAMILIES, MISSION_BYTES, BabyAISettings, short_name
from motif_jax.envs.babyai.words import COLUMN, ROW, SCENES, VIEW, all_words, describe, image_of, prompt_text
from motif_jax.envs.gym_world import quiet
from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.envs.sequential import SequentialVector, SequentialWorld
from motif_jax.envs.world import CAPTIONS, CHOICE, SeedStream, Viewpoint, World
from motif_jax.structs import ArraySpec, Meaning, UserError

CATEGORIES = 11  # MiniGrid's kinds of objects; there are fewer colours and states
NOT_FOR_THE_BOT = ("KeyInBox", "PutNextS5N2Carrying", "PutNextS6N3Carrying", "PutNextS7N4Carrying")
BOT_ACTIONS = 6  # the bot needs all of MiniGrid's first six


class BabyAIWorld(SequentialWorld, World):
    """See the module docstring."""

    name = "babyai"
    about = "a game in which a robot in a room of coloured keys, balls, boxes and doors does what a sentence asks for"
    action = CHOICE
    figures = {"family": int, "bot_steps": int}  # noqa: RUF012
    meanings = tuple(Meaning(name, curve=False, compared=False) for name in ("family", "bot_steps"))
    families = FAMILIES
    reads = ("image", "mission")
    viewpoints = {"image": Viewpoint(COLUMN, ROW, plane=0)}  # noqa: RUF012  kinds of objects
    pairs = ("message",)
    texts = None
    words = all_words()  # texts with all words of prompts, in any language and rewording: for tokens of a new model
    varies = True  # its values can vary in evaluation (protocols.py)

    @classmethod
    def of_section(cls, env: Mapping[str, Any]) -> BabyAIWorld:
        return cls(BabyAISettings.of(env))

    @staticmethod
    def title(env: Mapping[str, Any]) -> str:
        return BabyAISettings.of(env).level

    def scripted(self, name: str) -> Any:
        from motif_jax.envs.babyai.game import BotPlayer  # needs minigrid

        return BotPlayer()

    def __init__(self, settings: BabyAISettings):
        self.settings, self.action_names = settings, settings.action_names
        self.specs = {
            "prompt": ArraySpec((settings.prompt_length,), "uint8", "text"),
            "image": ArraySpec((VIEW, VIEW, 3), "uint8", "grid", CATEGORIES),
            "mission": ArraySpec((MISSION_BYTES,), "uint8", "text"),
        } | CAPTIONS
        able = len(self.action_names) >= BOT_ACTIONS and short_name(settings.level) not in NOT_FOR_THE_BOT
        self.players = ("random", "bot") if able else ("random",)

    @functools.cached_property
    def probes(self) -> dict[str, str]:
        """Fixed prompts by name; a policy's action probabilities in them show its progress during training."""
        settings, probes = self.settings, {}
        for name, (goal, things) in SCENES.items():
            sentences = describe(image_of(things), settings.words, settings.faithful_walls)
            text = prompt_text(settings.words, self.action_names, settings.goal(goal), [("", sentences)])
            probes[name] = settings.rewrite(text)
        return probes

    def check(self) -> None:
        self.settings.check()
        super().check()

    def prepare(self, vector: SequentialVector) -> None:
        """See `SequentialWorld`; each game keeps to one family of missions, if the config says so."""
        if self.settings.reference_families and vector.stream != SeedStream.EVALUATE:
            for index, game in enumerate(vector.games):
                game.keep_family(int(np.random.SeedSequence((vector.seed, vector.stream, index)).generate_state(1)[0]))

    def game(self, shown: bool = True) -> Any:
        if os.environ.get("BABYAI_DONE_ACTIONS"):  # minigrid would wait for an action that players do not have
            raise UserError(f"unset BABYAI_DONE_ACTIONS, with which no mission can succeed ({WORLD_FLAG})")
        try:
            with quiet():  # pygame, which minigrid imports, prints a greeting
                from motif_jax.envs.babyai.game import BabyAIGame  # takes a second
        except ImportError as error:
            how = "the world 'babyai' needs minigrid: pip install 'motif_jax[babyai]'"
            raise UserError(f"{how} ({error}; {WORLD_FLAG})") from error
        return BabyAIGame(self.settings)

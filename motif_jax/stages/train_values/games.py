"""Games that are played while values are learnt, so that checkpoints can be chosen by return.

Evaluation plays other games.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.envs.own_code import reported
from motif_jax.envs.seeding import SeedStream
from motif_jax.envs.settings import make_world
from motif_jax.envs.text_world import TextWorld
from motif_jax.offline.recipes import recipe_of
from motif_jax.offline.update import OfflineState
from motif_jax.policies.conversations import play_games
from motif_jax.policies.decoding import decoding_in_training
from motif_jax.policies.values import ValueModel, allowed_tokens
from motif_jax.policies.writing import ValueWriter
from motif_jax.stages.train_language.model import LanguageParts
from motif_jax.transcripts.live import LiveRenderer
from motif_jax.transcripts.render import TEMPLATES, Renderer


def make_play(
    config: ConfigDict, parts: LanguageParts, renderer: Renderer, facts: dict[str, Any]
) -> Callable[[OfflineState], float]:
    """The mean return of some games, decoded with what is learnt so far, as a function of the state."""
    section, world = config.train_values, make_world(config.env)
    assert isinstance(world, TextWorld)
    live, recipe = LiveRenderer(parts.tokeniser, TEMPLATES[config.transcripts.template]), recipe_of(section.recipe)
    allowed = allowed_tokens(parts.config.vocabulary, renderer.emitted(), live)
    model = ValueModel(
        parts.config, parts.graph, parts.params, {}, {}, recipe, parts.tokeniser, live, allowed, facts
    )  # fmt: skip
    writer = ValueWriter(model)
    decoding = decoding_in_training(recipe, config.decoding, section.games_beta)
    writer.check(decoding)

    def play(state: OfflineState) -> float:
        online = {name: found for name, found in state.learnt.items() if name not in ("policy", "q")}
        writer.swap(state.learnt.get("policy", parts.params), state.target, online)
        episodes = range(section.games)
        with reported(config.env):
            games = play_games(world, writer, decoding, episodes, seed=config.seed, stream=SeedStream.TRAIN)
        return float(np.mean([game.episode_return for game in games]))

    return play

"""Texts about the config's game, for `annotation/`."""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.annotation.texts import Texts, read_texts
from motif_jax.envs.worlds import make_world


def texts_of(config: ConfigDict) -> Texts:
    """Reads the texts about the config's game."""
    world = make_world(config.env.to_dict())
    return read_texts(world.about, world.texts, config.annotate.lexicon)

"""What `annotation/` needs to know of the game that a config names."""

from __future__ import annotations

from ml_collections import ConfigDict

from motif_jax.annotation.texts import Texts, read_texts
from motif_jax.envs.settings import make_world


def texts_of(config: ConfigDict) -> Texts:
    """What is said of the game that the config names."""
    world = make_world(config.env.to_dict())
    return read_texts(world.about, world.texts, config.annotate.lexicon)

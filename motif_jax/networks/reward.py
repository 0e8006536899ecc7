"""Networks of learnt rewards: Motif's reward model and ONI-Classification's classifier of messages."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.networks.encoders import BlstatsEncoder, CropEncoder, GlyphEncoder, MessageEncoder, SmallMessageEncoder
from motif_jax.networks.layers import Linear

MESSAGE_ENCODERS = {"lt_cnn": MessageEncoder, "lt_cnn_small": SmallMessageEncoder}
COLUMN, ROW = 0, 1  # places in blstats
DROPOUT = 0.1  # of the classifier's last hidden units


class RewardModel(nnx.Module):
    """The reward of a moment: concatenated encoders, two layers, one number.

    With the message alone it has 306,945 parameters.
    """

    def __init__(
        self,
        message: str = "lt_cnn",
        blstats: bool = False,
        crop: bool = False,
        glyphs: bool = False,
        *,
        rngs: nnx.Rngs,
    ):
        """Creates the encoders.

        Args:
          message: one of MESSAGE_ENCODERS, or "none".
          blstats, crop, glyphs: also the bottom line; the map around the hero; the whole map.
          rngs: of the initialisation.
        """
        self.message = MESSAGE_ENCODERS[message](rngs=rngs) if message != "none" else None
        self.blstats = BlstatsEncoder(rngs=rngs) if blstats else None
        self.crop = CropEncoder(rngs=rngs) if crop else None
        self.glyphs = GlyphEncoder(rngs=rngs) if glyphs else None
        encoders = [encoder for encoder in (self.blstats, self.crop, self.glyphs, self.message) if encoder is not None]
        features = sum(encoder.FEATURES for encoder in encoders)
        self.first, self.second = Linear(features, 256, rngs=rngs), Linear(256, 512, rngs=rngs)
        self.head = Linear(512, 1, rngs=rngs)

    def __call__(self, moment: Mapping[str, jax.Array]) -> jax.Array:
        """Computes the rewards of moments.

        Args:
          moment: the encoded ones of `message` [B, W], `vector` [B, 27], `blstats` [B, 27], `glyphs` [B, 21, 79].

        Returns:
          [B] float32
        """
        features = []
        if self.blstats is not None:
            features.append(self.blstats(moment["vector"]))
        if self.crop is not None:
            place = moment["blstats"].astype(jnp.int32)
            features.append(self.crop(moment["glyphs"], place[:, COLUMN], place[:, ROW]))
        if self.glyphs is not None:
            features.append(self.glyphs(moment["glyphs"]))
        if self.message is not None:
            features.append(self.message(moment["message"]))
        hidden = self.second(jax.nn.relu(self.first(jnp.concatenate(features, -1))))
        return self.head(jax.nn.relu(hidden))[:, 0]


class MessageClassifier(nnx.Module):
    """Classifies messages as helpful or not: the reward model's encoder, two layers of 512, two logits.

    With `lt_cnn` it has 471,554 parameters.
    """

    def __init__(self, message: str = "lt_cnn", *, rngs: nnx.Rngs):
        """`message`: one of MESSAGE_ENCODERS."""
        self.message = MESSAGE_ENCODERS[message](rngs=rngs)
        self.first, self.second = Linear(self.message.FEATURES, 512, rngs=rngs), Linear(512, 512, rngs=rngs)
        self.head = Linear(512, 2, rngs=rngs)

    def __call__(self, message: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Computes logits of "not helpful" and "helpful"; a key enables dropout. [B, W] -> [B, 2]"""
        hidden = jax.nn.relu(self.first(self.message(message)))
        hidden = jax.nn.relu(self.second(hidden))
        if key is not None:
            kept = jax.random.bernoulli(key, 1 - DROPOUT, hidden.shape)
            hidden = jnp.where(kept, hidden / (1 - DROPOUT), 0.0)
        return self.head(hidden)

"""Networks of learnt rewards: Motif's reward model and ONI-Classification's classifier of messages.

Encoders map one kind of observation to one feature vector. The message encoders are those of the published system,
layer by layer. The other encoders are its options, with the corrections that each docstring names.

A message is padded with zeros to 256 bytes. In the padding, a layer computes the same vector at every place; a `Line`
holds this vector once, so that the work depends on the length of the text. The result is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from motif_jax.envs.nethack.observations import OBSERVATIONS, scale_blstats
from motif_jax.networks.images import fan_in_uniform

CHARACTERS = 256
GLYPHS = 5976
MAP = OBSERVATIONS["glyphs"].shape
COLUMN, ROW = 0, 1  # places in blstats
DROPOUT = 0.1  # of the classifier's last hidden units


class OrthogonalLinear(nnx.Linear):
    """A linear layer with orthogonal weights of gain 1 and zero biases at the start."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        super().__init__(inputs, outputs, kernel_init=nnx.initializers.orthogonal(), rngs=rngs)


class Line(NamedTuple):
    """A batch of sequences of `length` vectors; from place W on, all vectors are equal."""

    x: jax.Array  # [B, W, C]: the beginning
    tail: jax.Array  # [C]: the vector at every place from W on
    length: int

    def reach(self, width: int) -> jax.Array:
        """Returns the first `width` places. [B, width, C]"""
        missing = width - self.x.shape[1]
        if missing <= 0:
            return self.x[:, :width]
        rest = jnp.broadcast_to(self.tail, (self.x.shape[0], missing, self.tail.shape[0]))
        return jnp.concatenate([self.x, rest], 1)


class Conv(nnx.Module):
    """A convolution along a line without padding, initialised as in PyTorch."""

    def __init__(self, inputs: int, outputs: int, width: int, *, rngs: nnx.Rngs):
        self.kernel = fan_in_uniform(rngs, (width, inputs, outputs), inputs * width)
        self.bias = fan_in_uniform(rngs, (outputs,), inputs * width)

    def __call__(self, line: Line) -> Line:
        """[B, W, inputs] -> [B, W', outputs], W' at most W."""
        kernel, bias = self.kernel[...], self.bias[...]
        width = kernel.shape[0]
        length = line.length - width + 1
        x = line.reach(min(line.x.shape[1], length) + width - 1)
        dimensions = ("NWC", "WIO", "NWC")
        y = jax.lax.conv_general_dilated(x, kernel, (1,), "VALID", dimension_numbers=dimensions)
        return Line(y + bias, line.tail @ kernel.sum(0) + bias, length)


def relu(line: Line) -> Line:
    """ReLU at every place."""
    return Line(jax.nn.relu(line.x), jax.nn.relu(line.tail), line.length)


def pool(line: Line) -> Line:
    """Takes the maximum of every three places; one or two remaining places are dropped."""
    length = line.length // 3
    width = min(-(-line.x.shape[1] // 3), length)
    x = line.reach(3 * width)
    return Line(x.reshape(x.shape[0], width, 3, -1).max(2), line.tail, length)


class MessageEncoder(nnx.Module):
    """Encodes the characters of a message by convolutions (the published `lt_cnn`)."""

    LENGTH = OBSERVATIONS["message"].shape[0]  # characters; the rest is ignored
    FEATURES = 128
    EMBEDDING = 32
    # Outputs, width, and whether the result is pooled.
    CONVOLUTIONS: Sequence[tuple[int, int, bool]] = (*[(64, 7, True)] * 2, *[(64, 3, False)] * 3, (64, 3, True))
    LINEARS: Sequence[int] = (128,)

    def __init__(self, *, rngs: nnx.Rngs):
        self.embedding = nnx.Param(jax.random.normal(rngs.params(), (CHARACTERS, self.EMBEDDING)).at[0].set(0))
        convolutions, inputs, length = [], self.EMBEDDING, self.LENGTH
        for outputs, width, pooled in self.CONVOLUTIONS:
            convolutions.append(Conv(inputs, outputs, width, rngs=rngs))
            inputs, length = outputs, (length - width + 1) // (3 if pooled else 1)
        self.convolutions = nnx.List(convolutions)
        sizes = (inputs * length, *self.LINEARS)
        self.linears = nnx.List([OrthogonalLinear(a, b, rngs=rngs) for a, b in itertools.pairwise(sizes)])

    def __call__(self, message: jax.Array) -> jax.Array:
        """Encodes messages. [B, FEATURES]

        `message`: character codes, padded with zeros. Trailing columns of zeros may be missing. [B, W] integers
        """
        message = message[:, : self.LENGTH].astype(jnp.int32)
        # Code 0 is padding: its vector is always zero.
        embedding = jnp.where(jnp.arange(CHARACTERS)[:, None] == 0, 0, self.embedding[...])
        line = Line(embedding[message], jnp.zeros(self.EMBEDDING), self.LENGTH)
        for convolution, (_, _, pooled) in zip(self.convolutions, self.CONVOLUTIONS, strict=True):
            line = relu(convolution(line))
            line = pool(line) if pooled else line
        features = line.reach(line.length).swapaxes(1, 2).reshape(len(message), -1)  # channel by channel
        for linear in self.linears:
            features = jax.nn.relu(linear(features))
        return features


class SmallMessageEncoder(MessageEncoder):
    """The published `lt_cnn_small`: the first 128 characters, fewer channels."""

    LENGTH = 128
    FEATURES = 32
    EMBEDDING = 16
    CONVOLUTIONS = ((32, 7, True), (32, 7, True), (32, 3, True))
    LINEARS = (32, 32)


class BlstatsEncoder(nnx.Module):
    """Encodes the scaled bottom line (blstats).

    The published encoder accepts only 26 numbers; current versions of NLE have 27.
    """

    FEATURES = 128

    def __init__(self, *, rngs: nnx.Rngs):
        numbers = OBSERVATIONS["vector"].shape[0]
        self.first, self.second = OrthogonalLinear(numbers, 128, rngs=rngs), OrthogonalLinear(128, 128, rngs=rngs)

    def __call__(self, vector: jax.Array) -> jax.Array:
        """[B, 27] scaled (envs/nethack/observations.py) -> [B, 128]"""
        return jax.nn.relu(self.second(jax.nn.relu(self.first(vector))))


class GlyphEncoder(nnx.Module):
    """Encodes the whole map of glyphs."""

    FEATURES = 960  # 6 x 20 x 8
    STRIDE = 2

    def __init__(self, *, rngs: nnx.Rngs):
        self.embedding = nnx.Param(jax.random.normal(rngs.params(), (GLYPHS, 128)))
        how: dict[str, Any] = {"strides": self.STRIDE, "padding": 1, "rngs": rngs}
        how["kernel_init"] = nnx.initializers.orthogonal()
        self.convolutions = nnx.List([nnx.Conv(a, b, (3, 3), **how) for a, b in ((128, 16), (16, 8))])

    def __call__(self, glyphs: jax.Array) -> jax.Array:
        """[B, 21, 79] integers -> [B, 960]"""
        return self._convolve(self.embedding[...][glyphs.astype(jnp.int32)])

    def _convolve(self, x: jax.Array) -> jax.Array:
        for convolution in self.convolutions:
            x = jax.nn.elu(convolution(x))
        return x.transpose(0, 3, 1, 2).reshape(len(x), -1)  # channel by channel


class CropEncoder(GlyphEncoder):
    """Encodes the glyphs around the hero.

    The published encoder takes the hero's place from the scaled bottom line, where it is below 1, and so always crops
    the same corner of the map; it also interpolates between glyph numbers. This encoder crops around the hero, without
    interpolation.
    """

    SIDE = 16
    FEATURES = 2048  # 16 x 16 x 8
    STRIDE = 1

    def __call__(self, glyphs: jax.Array, column: jax.Array, row: jax.Array) -> jax.Array:  # type: ignore[override]
        """The map [B, 21, 79] and the hero's place on it, [B] and [B] -> [B, 2048]"""
        side = self.SIDE
        rows = row[:, None] + jnp.arange(side) - side // 2  # [B, 16]
        columns = column[:, None] + jnp.arange(side) - side // 2
        inside = ((rows >= 0) & (rows < MAP[0]))[:, :, None] & ((columns >= 0) & (columns < MAP[1]))[:, None, :]
        at = jnp.clip(rows, 0, MAP[0] - 1)[:, :, None], jnp.clip(columns, 0, MAP[1] - 1)[:, None, :]
        crop = glyphs.astype(jnp.int32)[jnp.arange(len(glyphs))[:, None, None], *at]
        return self._convolve(jnp.where(inside[..., None], self.embedding[...][crop], 0))


MESSAGE_ENCODERS = {"lt_cnn": MessageEncoder, "lt_cnn_small": SmallMessageEncoder}


def observations_beside(options: Mapping[str, Any]) -> list[str]:
    """The observations that a `RewardModel` with these arguments reads beside the message."""
    needs = {"blstats": options["blstats"] or options["crop"], "glyphs": options["crop"] or options["glyphs"]}
    return [name for name, needed in needs.items() if needed]


def inputs_beside(options: Mapping[str, Any], observations: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs of a `RewardModel` with these arguments beside the message. [..., 27], [..., 27], [..., 21, 79]"""
    inputs = {"vector": scale_blstats(observations["blstats"])} if options["blstats"] else {}
    inputs |= {"blstats": observations["blstats"].astype(np.int32)} if options["crop"] else {}
    return inputs | ({"glyphs": observations["glyphs"]} if options["crop"] or options["glyphs"] else {})


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

        `message`: one of MESSAGE_ENCODERS, or "none". The others: also the bottom line; the map around the hero; the
        whole map.
        """
        self.message = MESSAGE_ENCODERS[message](rngs=rngs) if message != "none" else None
        self.blstats = BlstatsEncoder(rngs=rngs) if blstats else None
        self.crop = CropEncoder(rngs=rngs) if crop else None
        self.glyphs = GlyphEncoder(rngs=rngs) if glyphs else None
        encoders = [encoder for encoder in (self.blstats, self.crop, self.glyphs, self.message) if encoder is not None]
        features = sum(encoder.FEATURES for encoder in encoders)
        self.first, self.second = OrthogonalLinear(features, 256, rngs=rngs), OrthogonalLinear(256, 512, rngs=rngs)
        self.head = OrthogonalLinear(512, 1, rngs=rngs)

    def __call__(self, observations: Mapping[str, jax.Array]) -> jax.Array:
        """Computes the rewards of moments. [B] float32

        `observations`: the encoded ones of `message` [B, W], `vector` [B, 27], `blstats` [B, 27], `glyphs` [B, 21, 79].
        """
        features = []
        if self.blstats is not None:
            features.append(self.blstats(observations["vector"]))
        if self.crop is not None:
            blstats = observations["blstats"].astype(jnp.int32)
            features.append(self.crop(observations["glyphs"], blstats[:, COLUMN], blstats[:, ROW]))
        if self.glyphs is not None:
            features.append(self.glyphs(observations["glyphs"]))
        if self.message is not None:
            features.append(self.message(observations["message"]))
        hidden = self.second(jax.nn.relu(self.first(jnp.concatenate(features, -1))))
        return self.head(jax.nn.relu(hidden))[:, 0]


class MessageClassifier(nnx.Module):
    """Classifies messages as helpful or not: the reward model's encoder, two layers of 512, two logits.

    With `lt_cnn` it has 471,554 parameters.
    """

    def __init__(self, message: str = "lt_cnn", *, rngs: nnx.Rngs):
        """`message`: one of MESSAGE_ENCODERS."""
        self.message = MESSAGE_ENCODERS[message](rngs=rngs)
        self.first = OrthogonalLinear(self.message.FEATURES, 512, rngs=rngs)
        self.second = OrthogonalLinear(512, 512, rngs=rngs)
        self.head = OrthogonalLinear(512, 2, rngs=rngs)

    def __call__(self, message: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Computes logits of "not helpful" and "helpful"; a key enables dropout. [B, W] -> [B, 2]"""
        hidden = jax.nn.relu(self.first(self.message(message)))
        hidden = jax.nn.relu(self.second(hidden))
        if key is not None:
            kept = jax.random.bernoulli(key, 1 - DROPOUT, hidden.shape)
            hidden = jnp.where(kept, hidden / (1 - DROPOUT), 0.0)
        return self.head(hidden)

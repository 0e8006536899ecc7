"""The pictures: scenes with attributes, drawn here, and captions with features, from the user's files."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.envs.own_code import OPTIONS_FLAG
from motif_jax.structs import UserError, legible
from motif_jax.system.foreign import read_bytes
from motif_jax.system.machine import read_array

MOST_BYTES = 2**28  # of a file of dialogues
ATTRIBUTES = {
    "animal": ("dog", "cat", "horse", "bird", "sheep", "cow"),
    "place": ("beach", "street", "garden", "kitchen", "park"),
    "weather": ("sunny", "cloudy", "rainy", "windy"),
    "color": ("black", "white", "brown", "gray"),
    "people": ("nobody", "one", "two", "many"),
    "action": ("running", "sleeping", "eating", "standing"),
    "time": ("morning", "midday", "evening", "midnight"),
    "size": ("small", "large"),
}
CAPTIONED = ("animal", "place")  # attributes in the caption
ATTRIBUTE_OF = {value: name for name, values in ATTRIBUTES.items() for value in values}


class Scene(NamedTuple):
    """A picture."""

    caption: str
    features: np.ndarray | None  # [D] float32; None without a file of features
    attributes: dict[str, str]  # empty for a scene from files


def draw_scene(rng: random.Random) -> Scene:
    """Draws a scene with uniformly distributed attributes."""
    attributes = {name: rng.choice(values) for name, values in ATTRIBUTES.items()}
    return Scene(f"a {attributes['animal']} in a {attributes['place']}", one_hot(attributes), attributes)


def one_hot(attributes: dict[str, str]) -> np.ndarray:
    """The attributes as concatenated one-hot vectors. [29] float32"""
    return np.array([attributes[name] == value for value, name in ATTRIBUTE_OF.items()], np.float32)


def words_of(text: str) -> set[str]:
    """The words of a question, in lower case."""
    return set(re.findall("[a-z]+", text.lower()))


class SceneFiles:
    """Scenes from files: dialogues in the layout of VisDial 0.5, and a row of features for each."""

    def __init__(self, dialogues: str, features: str):
        """Reads the files; raises UserError for invalid ones.

        `dialogues`: a JSON list of objects with a `caption`. `features`: a NumPy file of floats, [N, D], whose rows are
        divided by their norm; "": none.
        """
        with legible(f"the scenes {dialogues!r}", OPTIONS_FLAG, TypeError, KeyError, RecursionError):
            self._captions = [entry["caption"] for entry in json.loads(read_bytes(Path(dialogues), MOST_BYTES))]
            if not self._captions or not all(isinstance(caption, str) for caption in self._captions):
                raise ValueError("it must be a list of objects with a caption, at least one")
            "".join(self._captions).encode()  # UnicodeEncodeError is a ValueError
        self._features: np.ndarray | None = None
        if features:
            with legible(f"the features {features!r}", OPTIONS_FLAG):
                self._features = read_array(Path(features), mapped=True)
                shape, kind = self._features.shape, self._features.dtype.kind
                if len(shape) != 2 or shape[0] != len(self._captions) or kind != "f":
                    raise ValueError(f"{kind}{shape} are not {len(self._captions):,} rows of floating-point numbers")

    def __len__(self) -> int:
        return len(self._captions)

    def scene(self, number: int) -> Scene:
        """A scene; raises UserError if its features are not finite."""
        caption = self._captions[number]
        if self._features is None:
            return Scene(caption, None, {})
        row = np.asarray(self._features[number], np.float32)
        length = float(np.linalg.norm(row))
        if not np.isfinite(length):
            raise UserError(f"row {number} of the features has numbers that are not finite ({OPTIONS_FLAG})")
        return Scene(caption, row / (length or 1.0), {})

"""The pictures: scenes with attributes, which are drawn here, and captions with features, from files of the user's."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.structs import UserError
from motif_jax.system.files import read_array
from motif_jax.system.foreign import read_bytes

FLAG = "--config.env.options"
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
SAID = ("animal", "place")  # attributes that the caption tells
ATTRIBUTE_OF = {value: name for name, values in ATTRIBUTES.items() for value in values}


class Scene(NamedTuple):
    """A picture."""

    caption: str
    features: np.ndarray | None  # [D] float32; None where a server knows none
    attributes: dict[str, str]  # of a scene that is drawn here


def draw_scene(rng: random.Random) -> Scene:
    """A scene whose attributes are all drawn alike."""
    attributes = {name: rng.choice(values) for name, values in ATTRIBUTES.items()}
    return Scene(f"a {attributes['animal']} in a {attributes['place']}", one_hot(attributes), attributes)


def one_hot(attributes: dict[str, str]) -> np.ndarray:
    """The features of a scene: 1 at each value that it has. [29] float32"""
    return np.array([attributes[name] == value for value, name in ATTRIBUTE_OF.items()], np.float32)


def words_of(text: str) -> set[str]:
    """The words of a question."""
    return set(re.findall("[a-z]+", text.lower()))


class SceneFiles:
    """Scenes from files: dialogues in the layout of VisDial 0.5, and features, a row for each."""

    def __init__(self, dialogues: str, features: str):
        """Reads them; raises UserError if it cannot.

        Args:
          dialogues: path of a JSON list of objects with a `caption`; what else they have is not read.
          features: path of an array of NumPy, [N, D] of numbers, whose rows are divided by their length; "": none.
        """
        try:
            found = json.loads(read_bytes(Path(dialogues), MOST_BYTES))
            self._captions = [entry["caption"] for entry in found]
            if not self._captions or not all(isinstance(caption, str) for caption in self._captions):
                raise ValueError("it must be a list of objects with a caption, at least one")
            "".join(self._captions).encode()  # UnicodeEncodeError is a ValueError
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise UserError(f"cannot read the scenes {dialogues!r}: {error!s:.200} ({FLAG})") from error
        self._features: np.ndarray | None = None
        if features:
            try:
                self._features = read_array(Path(features), mapped="r")
                shape, kind = self._features.shape, self._features.dtype.kind
                if len(shape) != 2 or shape[0] != len(self._captions) or kind != "f":
                    raise ValueError(f"{kind}{shape} are not {len(self._captions):,} rows of floating-point numbers")
            except (OSError, ValueError) as error:
                raise UserError(f"cannot read the features {features!r}: {error!s:.200} ({FLAG})") from error

    def __len__(self) -> int:
        return len(self._captions)

    def scene(self, number: int) -> Scene:
        """A scene; raises UserError if its features are not finite numbers."""
        caption = self._captions[number]
        if self._features is None:
            return Scene(caption, None, {})
        row = np.asarray(self._features[number], np.float32)
        length = float(np.linalg.norm(row))
        if not np.isfinite(length):
            raise UserError(f"row {number} of the features has numbers that are not finite ({FLAG})")
        return Scene(caption, row / (length or 1.0), {})

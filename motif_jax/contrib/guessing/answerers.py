"""Answerers: they answer questions about a picture, and measure how close the questioner came to it.

The closeness is a percentile: the share of other pictures that are further from the questioner's guess.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from motif_jax.contrib.guessing.scenes import ATTRIBUTE_OF, ATTRIBUTES, CAPTIONED, Scene, words_of
from motif_jax.screens import printable
from motif_jax.system.http import HttpClient

LONGEST = 1000  # characters; longer answers are cut
ROUNDING = 0.01  # tolerance by which the sum of a server's changes may leave [0, 1]
# Generation options sent to the original's server.
GENERATION = {"inference": "greedy", "beamSize": 1}


class Utterance(NamedTuple):
    """A question or an answer."""

    speaker: str  # "question" or "answer"
    text: str


class LocalAnswerer:
    """Answers from a scene's attributes; the closeness is the share of attributes that were revealed.

    A question that names an attribute is answered with its value. Any other question is answered `yes` if it names a
    value of the scene, which reveals the attribute as well, and `no` otherwise.
    """

    def begin(self, scene: Scene) -> float:
        """The closeness after the caption alone, from 0 to 1."""
        return len(CAPTIONED) / len(ATTRIBUTES)

    def answer(self, scene: Scene, history: Sequence[Utterance], closeness: float) -> tuple[str, float]:
        """The answer to the last question of the history, and the change of the closeness."""
        revealed = {*CAPTIONED}
        for utterance in history[:-1]:
            if utterance.speaker == "question":
                revealed |= self._reveal(scene, utterance.text)[1]
        text, new = self._reveal(scene, history[-1].text)
        return text, len(new - revealed) / len(ATTRIBUTES)

    def _reveal(self, scene: Scene, question: str) -> tuple[str, set[str]]:
        words = words_of(question)
        if named := [name for name in ATTRIBUTES if name in words]:
            return " ".join(scene.attributes[name] for name in named), {*named}
        right = {ATTRIBUTE_OF[word] for word in words & {*scene.attributes.values()}}
        return ("yes" if right else "no"), right

    def close(self) -> None:
        """Does nothing, as there is no connection."""


class RemoteAnswerer:
    """Asks a server in the wire format of the original: POSTs of form fields, all JSON except the caption.

    `/fetch_reward_rank` answers with a number, the percentile after the caption; `/step_rank` with `[answer, change of
    the percentile]`.
    """

    def __init__(self, client: HttpClient):
        self._client = client

    def begin(self, scene: Scene) -> float:
        return self._client.post("/fetch_reward_rank", _percentile, data=self._fields(scene, []))

    def answer(self, scene: Scene, history: Sequence[Utterance], closeness: float) -> tuple[str, float]:
        read = functools.partial(_answer, closeness=closeness)
        return self._client.post("/step_rank", read, data=self._fields(scene, history))

    def close(self) -> None:
        self._client.close()

    def _fields(self, scene: Scene, history: Sequence[Utterance]) -> dict[str, str]:
        features = [] if scene.features is None else scene.features.tolist()
        return {
            "history": json.dumps([utterance._asdict() for utterance in history]),
            "caption": scene.caption,
            "img_features": json.dumps(features),
            "generation_kwargs": json.dumps(GENERATION),
        }


Answerer = LocalAnswerer | RemoteAnswerer


def _percentile(value: Any) -> float:
    """A number from 0 to 1; raises ValueError for anything else."""
    if type(value) not in (int, float) or not 0 <= value <= 1:  # NaN is not
        raise ValueError("not a percentile")
    return float(value)


def _answer(reply: Any, closeness: float) -> tuple[str, float]:
    """The answer and a valid change of the closeness; raises ValueError or TypeError."""
    text, change = reply
    if not isinstance(text, str):
        raise TypeError("the answer is not a string")
    if type(change) not in (int, float) or not -1 <= change <= 1:  # NaN is not
        raise ValueError("not a change of a percentile")
    if not -ROUNDING <= closeness + change <= 1 + ROUNDING:
        raise ValueError("not a change of this percentile")
    return " ".join(printable(text[:LONGEST]).split()), float(change)

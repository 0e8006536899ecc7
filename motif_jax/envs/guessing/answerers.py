"""Who answers questions about a picture, and says how close the questioner came to it.

The closeness is a percentile: the share of other pictures that are further from what the questioner must believe.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from motif_jax.envs.guessing.scenes import ATTRIBUTE_OF, ATTRIBUTES, SAID, Scene, words_of
from motif_jax.envs.http_client import HttpClient
from motif_jax.screens import printable

LONGEST = 1000  # characters of an answer that are read
# What the original's server is asked to do with its model.
GENERATION = {"inference": "greedy", "beamSize": 1}


class Said(NamedTuple):
    """A question or an answer."""

    speaker: str  # "question" or "answer"
    text: str


class Answerer(Protocol):
    """Answers."""

    def begin(self, scene: Scene) -> float: ...  # closeness after the caption alone
    def answer(self, scene: Scene, history: Sequence[Said]) -> tuple[str, float]: ...  # and what closeness it adds
    def close(self) -> None: ...


class LocalAnswerer:
    """Answers from a scene's attributes; the closeness is the share of attributes that were told.

    A question that names an attribute gets its value. Every other gets `yes` if it names a value that the scene has,
    which tells the attribute as well, and else `no`.
    """

    def begin(self, scene: Scene) -> float:
        """See `Answerer`."""
        return len(SAID) / len(ATTRIBUTES)

    def answer(self, scene: Scene, history: Sequence[Said]) -> tuple[str, float]:
        """See `Answerer`."""
        told = {*SAID}
        for said in history[:-1]:
            if said.speaker == "question":
                told |= self._told(scene, said.text)[1]
        text, new = self._told(scene, history[-1].text)
        return text, len(new - told) / len(ATTRIBUTES)

    def close(self) -> None:
        """Nothing to close."""

    def _told(self, scene: Scene, question: str) -> tuple[str, set[str]]:
        """The answer, and the attributes that it tells."""
        words = words_of(question)
        if named := [name for name in ATTRIBUTES if name in words]:
            return " ".join(scene.attributes[name] for name in named), {*named}
        right = {ATTRIBUTE_OF[word] for word in words & {*scene.attributes.values()}}
        return ("yes" if right else "no"), right


class RemoteAnswerer:
    """Asks a server in the wire format of the original (docs/wordle.md): form fields, JSON but for the caption."""

    def __init__(self, client: HttpClient):
        """Takes the connection."""
        self._client = client

    def begin(self, scene: Scene) -> float:
        """See `Answerer`."""
        return self._client.post_form("/fetch_reward_rank", self._fields(scene, []), _finite)

    def answer(self, scene: Scene, history: Sequence[Said]) -> tuple[str, float]:
        """See `Answerer`."""
        return self._client.post_form("/step_rank", self._fields(scene, history), _answer)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _fields(self, scene: Scene, history: Sequence[Said]) -> dict[str, str]:
        features = [] if scene.features is None else scene.features.tolist()
        return {
            "history": json.dumps([said._asdict() for said in history]),
            "caption": scene.caption,
            "img_features": json.dumps(features),
            "generation_kwargs": json.dumps(GENERATION),
        }


def _finite(value: Any) -> float:
    """A percentile, or a change of one; raises ValueError for anything else."""
    if type(value) not in (int, float) or not -1 <= value <= 1:  # NaN is not
        raise ValueError("not a percentile")
    return float(value)


def _answer(reply: Any) -> tuple[str, float]:
    text, change = reply
    if not isinstance(text, str):
        raise TypeError("the answer is no text")
    return " ".join(printable(text[:LONGEST]).split()), _finite(change)

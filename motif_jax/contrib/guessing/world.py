"""Visual dialogue as a world, `--config.env.world=guessing`. Its options and scripted players: docs/wordle.md.

The reward of a question is -1, of the last one 0. The dialogue ends when the closeness has covered a share `enough` of
its initial distance to 1, or after ten questions. If a rule classifies the answer as a mere yes or no, `yes_no_reward`
is added, so that the agent learns to ask open questions. `gain_scale` times the gain in closeness is added too.

By default, scenes are drawn and questions answered locally (`LocalAnswerer`), otherwise by a server, with `timeout_s`
seconds for an attempt of a request, and `patience_s` for all of them.
"""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.config.table import PATH, Number, Text
from motif_jax.envs.own_code import OPTIONS_FLAG
from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.text_world import Makers, TextWorld
from motif_jax.screens import printable
from motif_jax.structs import EndStatus, Meaning, Turn, UserError, legible
from motif_jax.system.foreign import read_bytes
from motif_jax.system.http import HttpClient, check_address
from motif_jax.system.machine import read_array

# ---- pictures: drawn here, or captions with features from the user's files

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


class SceneFiles:
    """Scenes from files: dialogues in the layout of VisDial 0.5, and a row of features for each."""

    def __init__(self, dialogues: str, features: str):
        """Reads a JSON list of objects with a `caption`, and a NumPy file of floats, [N, D], if it is not ""."""
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
        caption = self._captions[number]
        if self._features is None:
            return Scene(caption, None, {})
        row = np.asarray(self._features[number], np.float32)
        length = float(np.linalg.norm(row))
        if not np.isfinite(length):
            raise UserError(f"row {number:,} of the features is not finite ({OPTIONS_FLAG})")
        return Scene(caption, row / (length or 1.0), {})


# ---- answerers: the closeness of the questioner is the share of other pictures that are further from the guess

LONGEST = 1000  # characters; longer answers are cut
ROUNDING = 0.01  # tolerance by which the sum of a server's changes may leave [0, 1]


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
        words = {*re.findall("[a-z]+", question.lower())}
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
        return {
            "caption": scene.caption,
            "history": json.dumps([utterance._asdict() for utterance in history]),
            "img_features": json.dumps([] if scene.features is None else scene.features.tolist()),
            "generation_kwargs": json.dumps({"inference": "greedy", "beamSize": 1}),
        }


def _percentile(value: Any) -> float:
    """A number from 0 to 1; raises ValueError for anything else."""
    if not Number(0, 1).allows(value):
        raise ValueError("not a percentile")
    return float(value)


def _answer(reply: Any, closeness: float) -> tuple[str, float]:
    """The answer and a valid change of the closeness; raises ValueError or TypeError."""
    text, change = reply
    fits = Number(-1, 1).allows(change) and -ROUNDING <= closeness + change <= 1 + ROUNDING
    if not fits or not isinstance(text, str):
        raise ValueError("not an answer and a change of this percentile")
    return " ".join(printable(text[:LONGEST]).split()), float(change)


# ---- the world

ROUNDS = 10
GOAL = 1.0  # closeness of the right picture
# Our fragments of uninformative answers, for the rule "conservative".
HEDGES = (
    "yes", "no", "not", "yeah", "yep", "nope", "n't", "cannot", "never", "none", "maybe", "perhaps", "possibly",
    "unsure", "unclear", "don't know", "hard to tell",
)  # fmt: skip
RULES: dict[str, Callable[[str], bool]] = {  # whether a lower-case answer is a mere yes or no
    "standard": lambda answer: False,
    "soft": lambda answer: "yes" in answer or "no" in answer,
    "hard": lambda answer: answer in ("yes", "no"),
    "conservative": lambda answer: any(part in answer for part in HEDGES),
}
LOST = "ten questions were asked"
OPEN = tuple(f"what is the {name}?" for name in ATTRIBUTES if name not in CAPTIONED)
CLOSED = tuple(f"is it {value}?" for name, values in ATTRIBUTES.items() if name not in CAPTIONED for value in values)
QUESTIONS = OPEN + CLOSED


class Hidden(NamedTuple):
    """State that is hidden from the agent."""

    scene: Scene
    initial: float  # closeness after the caption
    gained: float = 0.0  # closeness gained since then
    yes_no: int = 0  # answers that the rule classified as a mere yes or no


class GuessingGame(TextGame):
    """See the module docstring."""

    hidden: Hidden

    def __init__(self, world: GuessingWorld):
        super().__init__(world.written, world.heard, world.time_limit)
        self._world, self._answerer = world, world.answerer

    def open(self) -> str:
        scene = self._world.draw(self.random)
        self.hidden = Hidden(scene, self._answerer.begin(scene))
        return scene.caption

    def answer(self, text: str) -> Answer:
        world, (scene, initial, gained, count) = self._world, self.hidden
        history = [*_history(self.turns), Utterance("question", text)]
        reply, change = self._answerer.answer(scene, history, initial + gained)
        yes_no = RULES[world.rule](reply.lower())
        self.hidden = Hidden(scene, initial, gained + change, count + yes_no)
        reward = world.yes_no_reward * yes_no + world.gain_scale * change
        if initial >= GOAL or (gained + change) / (GOAL - initial) >= world.enough:
            return Answer(reply, reward, EndStatus.TASK_SUCCESSFUL)
        if self.steps + 1 >= ROUNDS:
            return Answer(reply, reward, EndStatus.ENDED, LOST)
        return Answer(reply, reward - 1.0)

    def draw(self, chance: float) -> str:
        return QUESTIONS[int(chance * len(QUESTIONS))]

    def measure(self) -> tuple[float, ...]:
        return self.hidden.initial + self.hidden.gained, self.hidden.yes_no

    def close(self) -> None:
        """Closes the connection that all games share; another request opens it again."""
        self._answerer.close()

    def caption(self) -> str:
        asked = [turn.text for turn in self.turns if turn.is_action]
        if not asked:
            return f"A picture is described: {self.heard}"
        return f'You ask "{asked[-1][:120]}" and hear "{self.heard}"'


def _history(turns: Sequence[Turn]) -> list[Utterance]:
    """The questions and answers, without the caption (a turn unless it is empty)."""
    history: list[Utterance] = []
    for turn in turns:
        if turn.is_action:
            history += [Utterance("question", turn.text), Utterance("answer", "")]
        elif history and not history[-1].text:
            history[-1] = Utterance("answer", turn.text)
    return history


class Asker:
    """Asks all questions in random order, then all again in another order."""

    def __init__(self, questions: Sequence[str]):
        self._questions = list(questions)

    def begin(self, rng: random.Random) -> None:
        self._left: list[str] = []
        self._rng = rng

    def choose(self, game: Any) -> str:
        if not self._left:
            self._left = self._rng.sample(self._questions, len(self._questions))
        return self._left.pop()


class GuessingWorld(TextWorld):
    """See the module docstring."""

    name = "guessing"
    about = "a dialogue in which questions are asked about a picture that only its caption describes"
    figures = {"closeness": float, "yes_or_no": int}  # noqa: RUF012
    meanings = (
        Meaning("closeness", note="percentile of the picture at the end", better="higher"),
        Meaning("yes_or_no", note="answers that the rule counts"),
    )
    written, heard = 256, 1024
    makers: Makers = {  # noqa: RUF012
        "asker": lambda arguments: Asker(OPEN, *arguments), "checker": lambda arguments: Asker(CLOSED, *arguments),
    }  # fmt: skip

    def __init__(
        self, max_episode_steps: int = 5000, server: str = "", scenes: str = "", features: str = "",
        timeout_s: float = 30.0, patience_s: float = 60.0, rule: str = "standard", yes_no_reward: float = -2.0,
        enough: float = 0.5, gain_scale: float = 0.0,
    ):  # fmt: skip
        super().__init__(max_episode_steps)
        PATH.check_all(OPTIONS_FLAG, server=server, scenes=scenes, features=features)
        Number(0.001, 1e6).check_all(OPTIONS_FLAG, timeout_s=timeout_s, patience_s=patience_s)  # 0 would wait for ever
        Number(-1e6, 1e6).check_all(OPTIONS_FLAG, yes_no_reward=yes_no_reward, gain_scale=gain_scale)
        Number(0, 1).check("enough", OPTIONS_FLAG, enough)
        Text(tuple(RULES)).check("rule", OPTIONS_FLAG, rule)
        if bool(server) != bool(scenes) or (features and not server):
            raise UserError(f"the options 'server' and 'scenes' need each other, 'features' both ({OPTIONS_FLAG})")
        self._server, self._files, self._seconds = server, (scenes, features), (timeout_s, patience_s)
        self.rule, self.yes_no_reward = rule, float(yes_no_reward)
        self.enough, self.gain_scale = float(enough), float(gain_scale)

    @functools.cached_property
    def _scenes(self) -> SceneFiles:
        return SceneFiles(*self._files)

    @functools.cached_property
    def answerer(self) -> LocalAnswerer | RemoteAnswerer:
        """Shared by all games of this process."""
        if not self._server:
            return LocalAnswerer()
        return RemoteAnswerer(HttpClient(self._server, OPTIONS_FLAG, *self._seconds))

    def check(self) -> None:
        """See `World.check`: reads the files; the server is asked when the first game begins."""
        if self._server:
            check_address(self._server, OPTIONS_FLAG)
            self._scenes.scene(0)

    def game(self, shown: bool = True) -> GuessingGame:
        return GuessingGame(self)

    def draw(self, rng: random.Random) -> Scene:
        return self._scenes.scene(int(rng.random() * len(self._scenes))) if self._server else draw_scene(rng)

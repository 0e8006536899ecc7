"""Visual dialogue as a world, `--config.env.world=guessing`: the world gives a caption, and the agent asks questions.

The reward of a question is -1, of the last one 0. The dialogue ends when the closeness has covered a share `enough` of
its initial distance to 1, or after ten questions. If a rule classifies the answer as a mere yes or no, `yes_no_reward`
is added, so that the agent learns to ask open questions. `gain_scale` times the gain in closeness is added too.

Scripted players: `asker` asks for attributes in random order, each once; `checker` asks yes-or-no questions likewise.

By default, scenes are drawn and questions answered locally (`LocalAnswerer`). Options:

    server          address of a server in the original's wire format; it needs `scenes`
    scenes          a JSON file with the dialogues' captions, in the layout of VisDial 0.5
    features        a NumPy file with a row of picture features for each dialogue ("": they are not sent)
    timeout_s       seconds of one attempt of a request
    patience_s      seconds of all attempts of a request; hang_timeout_s must allow a worker this silence
    rule, yes_no_reward, enough, gain_scale    rewards of questions
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from motif_jax.config.table import Number, Text
from motif_jax.contrib.guessing.answerers import Answerer, LocalAnswerer, RemoteAnswerer, Utterance
from motif_jax.contrib.guessing.scenes import ATTRIBUTES, CAPTIONED, Scene, SceneFiles, draw_scene
from motif_jax.envs.own_code import OPTIONS_FLAG
from motif_jax.envs.text_game import Answer, TextGame
from motif_jax.envs.text_world import Makers, TextWorld, without_arguments
from motif_jax.structs import EndStatus, Turn, UserError
from motif_jax.system.http import HttpClient, check_address

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
FIGURES: dict[str, type] = {"closeness": float, "yes_or_no": int}  # final percentile; answers that the rule counts


class Hidden(NamedTuple):
    """State that is hidden from the agent."""

    scene: Scene
    initial: float  # closeness after the caption
    gained: float = 0.0  # closeness gained since then
    yes_no: int = 0  # answers that the rule classified as a mere yes or no


class GuessingGame(TextGame):
    """See the module docstring."""

    def __init__(self, world: GuessingWorld):
        super().__init__(world.written, world.heard, world.time_limit)
        self._world, self._answerer = world, world.answerer

    def open(self) -> str:
        scene = self._world.draw(self.random)
        self._now = Hidden(scene, self._answerer.begin(scene))
        return scene.caption

    def answer(self, text: str) -> Answer:
        world, (scene, initial, gained, count) = self._world, self._now
        history = [*_history(self.turns), Utterance("question", text)]
        reply, change = self._answerer.answer(scene, history, initial + gained)
        yes_no = RULES[world.rule](reply.lower())
        self._now = Hidden(scene, initial, gained + change, count + yes_no)
        reward = world.yes_no_reward * yes_no + world.gain_scale * change
        if initial >= GOAL or (gained + change) / (GOAL - initial) >= world.enough:
            return Answer(reply, reward, EndStatus.TASK_SUCCESSFUL)
        if self.steps + 1 >= ROUNDS:
            return Answer(reply, reward, EndStatus.ENDED, LOST)
        return Answer(reply, reward - 1.0)

    def draw(self, chance: float) -> str:
        return QUESTIONS[int(chance * len(QUESTIONS))]

    @property
    def hidden(self) -> Hidden:
        return self._now

    def restore(self, turns: Sequence[Turn], hidden: Any) -> None:
        self._now = hidden

    def measure(self) -> tuple[float, ...]:
        return self._now.initial + self._now.gained, self._now.yes_no

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
    history = []
    for number, turn in enumerate(turns):
        if turn.is_action:
            history.append(Utterance("question", turn.text))
            answered = number + 1 < len(turns) and not turns[number + 1].is_action
            history.append(Utterance("answer", turns[number + 1].text if answered else ""))
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


MAKERS: Makers = {
    "asker": without_arguments("asker", lambda: Asker(OPEN)),
    "checker": without_arguments("checker", lambda: Asker(CLOSED)),
}


class GuessingWorld(TextWorld):
    """See the module docstring."""

    name = "guessing"
    about = "a dialogue in which questions are asked about a picture that only its caption describes"
    figures = FIGURES
    written, heard = 256, 1024
    makers = MAKERS

    def __init__(
        self, max_episode_steps: int = 5000, server: str = "", scenes: str = "", features: str = "",
        timeout_s: float = 30.0, patience_s: float = 60.0, rule: str = "standard", yes_no_reward: float = -2.0,
        enough: float = 0.5, gain_scale: float = 0.0,
    ):  # fmt: skip
        super().__init__(max_episode_steps)
        Text(longest=4000).check_all(OPTIONS_FLAG, server=server, scenes=scenes, features=features)
        Number(0.001, 1e6).check_all(OPTIONS_FLAG, timeout_s=timeout_s, patience_s=patience_s)
        Number(-1e6, 1e6).check_all(OPTIONS_FLAG, yes_no_reward=yes_no_reward, gain_scale=gain_scale)
        Number(0, 1).check_all(OPTIONS_FLAG, enough=enough)
        Text(tuple(RULES)).check_all(OPTIONS_FLAG, rule=rule)
        if server and not scenes:
            raise UserError(f"a server needs scenes, as it only answers questions about them ({OPTIONS_FLAG})")
        if (scenes or features) and not server:
            raise UserError(f"scenes and features need a server: set the option 'server' ({OPTIONS_FLAG})")
        self._server, self._files = server, (scenes, features)
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self.rule, self.yes_no_reward = rule, float(yes_no_reward)
        self.enough, self.gain_scale = float(enough), float(gain_scale)

    @functools.cached_property
    def _scenes(self) -> SceneFiles:
        return SceneFiles(*self._files)

    @functools.cached_property
    def answerer(self) -> Answerer:
        """Shared by all games of this process."""
        if not self._server:
            return LocalAnswerer()
        return RemoteAnswerer(HttpClient(self._server, OPTIONS_FLAG, self._timeout_s, self._patience_s))

    def check(self) -> None:
        """See `World.check`: reads the files; the server is asked when the first game begins."""
        if self._server:
            check_address(self._server, OPTIONS_FLAG)
            self._scenes.scene(0)

    def game(self, shown: bool = True) -> GuessingGame:
        return GuessingGame(self)

    def draw(self, rng: random.Random) -> Scene:
        return self._scenes.scene(int(rng.random() * len(self._scenes))) if self._server else draw_scene(rng)

"""Visual dialogue as a world (`envs/world.py`): `--config.env.world=guessing`.

By default, scenes are drawn and questions answered locally (`LocalAnswerer`). Options:

    server          address of a server in the original's wire format; it needs `scenes`
    scenes          a JSON file with the dialogues' captions, in the layout of VisDial 0.5
    features        a NumPy file with a row of picture features for each dialogue ("": they are not sent)
    timeout_s       seconds of one attempt of a request
    patience_s      seconds of all attempts of a request; hang_timeout_s must allow a worker this silence
    rule, yes_no_reward, enough, gain_scale    rewards of questions, see `game.QuestionRewards`
"""

from __future__ import annotations

import functools
import random

from motif_jax.config.table import Number, Text
from motif_jax.contrib.guessing.answerers import Answerer, LocalAnswerer, RemoteAnswerer
from motif_jax.contrib.guessing.game import MAKERS, RULES, GuessingGame, QuestionRewards
from motif_jax.contrib.guessing.scenes import FLAG, Scene, SceneFiles, draw_scene
from motif_jax.envs.text_world import TextWorld
from motif_jax.structs import UserError
from motif_jax.system.http import HttpClient, check_address

FIGURES: dict[str, type] = {"closeness": float, "yes_or_no": int}  # final percentile; answers that the rule counts


class GuessingWorld(TextWorld):
    """See the module docstring."""

    name = "guessing"
    about = "a dialogue in which questions are asked about a picture that only its caption describes"
    figures = FIGURES
    written, heard = 256, 1024
    makers = MAKERS

    def __init__(
        self,
        max_episode_steps: int = 5000,
        server: str = "",
        scenes: str = "",
        features: str = "",
        timeout_s: float = 30.0,
        patience_s: float = 60.0,
        rule: str = "standard",
        yes_no_reward: float = -2.0,
        enough: float = 0.5,
        gain_scale: float = 0.0,
    ):
        super().__init__(max_episode_steps)
        for name, path in (("server", server), ("scenes", scenes), ("features", features)):
            Text(longest=4000).check(name, FLAG, path)
        for name, seconds in (("timeout_s", timeout_s), ("patience_s", patience_s)):
            Number(0.001, 1e6).check(name, FLAG, seconds)
        for name, reward in (("yes_no_reward", yes_no_reward), ("gain_scale", gain_scale)):
            Number(-1e6, 1e6).check(name, FLAG, reward)
        Number(0, 1).check("enough", FLAG, enough)
        Text(tuple(RULES)).check("rule", FLAG, rule)
        if server and not scenes:
            raise UserError(f"a server needs scenes, as it only answers questions about them ({FLAG})")
        if (scenes or features) and not server:
            raise UserError(f"scenes and features need a server: set the option 'server' ({FLAG})")
        self._server, self._files = server, (scenes, features)
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self._rewards = QuestionRewards(rule, float(yes_no_reward), float(enough), float(gain_scale))

    @functools.cached_property
    def _scenes(self) -> SceneFiles:
        return SceneFiles(*self._files)

    @functools.cached_property
    def _answerer(self) -> Answerer:
        """Shared by all games of this process."""
        if not self._server:
            return LocalAnswerer()
        return RemoteAnswerer(HttpClient(self._server, FLAG, self._timeout_s, self._patience_s))

    def check(self) -> None:
        """See `World.check`: reads the files; the server is asked when the first game begins."""
        if self._server:
            check_address(self._server, FLAG)
            self._scenes.scene(0)

    def game(self, shown: bool = True) -> GuessingGame:
        draw = self._draw if self._server else draw_scene
        return GuessingGame(
            draw, self._answerer, self._rewards, written=self.written, heard=self.heard, limit=self.time_limit
        )

    def _draw(self, rng: random.Random) -> Scene:
        return self._scenes.scene(int(rng.random() * len(self._scenes)))

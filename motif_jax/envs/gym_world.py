"""Any gymnasium environment as a world, given its id and a caption of what happens.

    class GoTo(GymWorld):
        id = "BabyAI-GoToLocal-v0"
        about = "a room in which a robot is sent to an object"
        kinds = {"image": "grid"}

        def caption(self, observation, env):
            return "You see a red ball."

`--config.env.world=module:GoTo` then plays it (docs/own-game.md).
"""

from __future__ import annotations

import difflib
import enum
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from motif_jax.config.table import Whole, shown
from motif_jax.envs.action_space import ActionSpace, space_from
from motif_jax.envs.drawing import ScreenRow
from motif_jax.envs.gym_answers import AnswerChecks
from motif_jax.envs.gym_games import GymWorldGame, quiet
from motif_jax.envs.gym_spaces import Field, Parts, fields_of, parts_of
from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.envs.seeding import SeedStream, game_seed
from motif_jax.envs.sequential import SequentialWorld
from motif_jax.envs.world import CAPTIONS, CHOICE, Viewpoint, trained_world, unreadable
from motif_jax.structs import ArraySpec, UserError

RENDER_MODES = ("rgb_array", "ansi")  # supported ones, the preferred one first
AUTO = "auto"  # the first of RENDER_MODES that the environment has, unless the world draws its own screen
SUCCESS = 0.0  # an episode that terminates with a reward above this has succeeded


class GymWorld(SequentialWorld):
    """A gymnasium environment with a caption for each moment; the attributes for subclasses are marked below."""

    # ---- set by a subclass
    id: str = ""  # of `gymnasium.make`
    about: str = ""  # description of the game for a language model; "": made from its id
    kinds: Mapping[str, str] = {}  # of observations whose kind cannot be inferred from their space: networks/kinds.py
    figures: Mapping[str, type] = {}  # numbers of an episode, returned by `measure`: name -> bool, int or float
    texts: Path | None = None  # directory with goals, prompts and rules about this game
    numbers: Mapping[str, tuple[str, int]] = {}  # names for reward programs; these three: `world.Viewpoint`
    viewpoints: Mapping[str, Viewpoint] = {}
    still: tuple[str, ...] = ()
    picture: str = AUTO  # "rgb_array" or "ansi": the environment's render mode; "": only `screen`
    # `reads` (the policy's observations) and `action_names` may be set too; see the properties below.

    # ---- the same for all subclasses
    pairs = ("message",)
    players = ("random",)

    def __init__(self, max_episode_steps: int = 5000, **options: Any):
        """Takes the time limit in steps, and options for the environment."""
        Whole(1).check("max_episode_steps", WORLD_FLAG, max_episode_steps)
        self.time_limit, self.options = max_episode_steps, options
        self.class_name = f"{type(self).__module__}:{type(self).__qualname__}"
        self.name = getattr(type(self), "name", self.id or self.class_name)
        self.about = self.about or f"the game {self.name}"
        self.render_mode: str | None = None  # read by `make`; set while a game is made that will be shown

    # ---- may be overridden (`caption` must be)

    def make(self) -> gymnasium.Env:
        """Makes the environment; override it to add wrappers."""
        mode = {} if self.render_mode is None else {"render_mode": self.render_mode}
        return gymnasium.make(self.id, disable_env_checker=True, **{**mode, **self.options})

    def caption(self, observation: Any, env: Any) -> str:
        """Describes what has just happened in one line of up to 256 characters; characters outside Latin-1 become "?".

        Args:
          observation: as the environment gives it.
          env: the environment without its wrappers.
        """
        raise NotImplementedError(f"{type(self).__name__} must say what has just happened: def caption(...)")

    def screen(self, env: Any) -> Sequence[ScreenRow]:
        """Draws up to 21 rows of 80 characters, each text or pieces of text with their colours."""
        return []

    def measure(self, env: Any) -> Sequence[float]:
        """Returns the values of `figures`, in their order."""
        return ()

    def succeeded(self, reward: float, env: Any) -> bool:
        """Whether an episode that terminated with this reward has succeeded."""
        return reward > SUCCESS

    # ---- the World interface

    @functools.cached_property
    def _spaces(self) -> tuple[dict[str, Field], tuple[str, ...], Parts | None]:
        """The fields of observations, and names or parts of actions, from a temporary environment."""
        if not self.id and type(self).make is GymWorld.make:
            raise UserError(f"the world {self.class_name!r} names no environment, as id = ... ({WORLD_FLAG})")
        answers = AnswerChecks(self.name)
        if not isinstance(self.kinds, Mapping):
            raise UserError(
                f"'kinds' of the world {self.name!r} must be a dictionary of observations, not {shown(self.kinds)} "
                f"({WORLD_FLAG})"
            )
        try:
            with quiet():
                env = answers.environment(self.make())
        except gymnasium.error.UnregisteredEnv as error:
            near = difflib.get_close_matches(self.id, list(gymnasium.registry), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "import what registers it in the module of the world"
            raise UserError(f"gymnasium knows no environment {self.id!r} ({WORLD_FLAG}): {hint}") from error
        try:
            self._render_mode = self._find_render_mode(env)
            fields = fields_of(env.observation_space, self.kinds, self.name)
            given: Any = type(self).action_names
            parts = parts_of(env.action_space, self.name)
            names = () if parts or isinstance(given, property) else given
            return fields, () if parts else _names_of(env, names, self.name, answers), parts
        finally:
            env.close()

    def _find_render_mode(self, env: Any) -> str | None:
        """Returns the render mode of shown games; None if they use only `screen`."""
        if self.picture not in (AUTO, "", *RENDER_MODES):
            raise UserError(
                f"'picture' of the world {self.name!r} must be one of {', '.join(map(repr, RENDER_MODES))} and '', not "
                f"{shown(self.picture)} ({WORLD_FLAG})"
            )
        if self.picture != AUTO:
            return self.picture or None
        if type(self).screen is not GymWorld.screen:
            return None
        modes = (getattr(env, "metadata", None) or {}).get("render_modes") or ()
        return next((mode for mode in RENDER_MODES if mode in modes), None)

    def make_shown(self) -> gymnasium.Env:
        """Makes an environment that can render itself."""
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # many machines do not have a sound device
        self.render_mode = self._render_mode
        try:
            return self.make()
        finally:
            self.render_mode = None

    @property
    def fields(self) -> dict[str, Field]:
        """The environment's observations by name."""
        return self._spaces[0]

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the actions, by default the environment's own; () if they are several choices or numbers."""
        return self._spaces[1]

    @property
    def action_parts(self) -> Parts | None:
        """The parts of an action of several choices or numbers; None for single choices."""
        return self._spaces[2]

    @property
    def action_space(self) -> ActionSpace | None:
        return self.action_parts.space if self.action_parts else None

    @property
    def action(self) -> ArraySpec:
        return self.action_parts.space.spec if self.action_parts else CHOICE

    @property
    def reads(self) -> tuple[str, ...]:
        """The observations that a policy reads; by default all of the environment's, and the caption."""
        return (*self.fields, "message")

    @functools.cached_property
    def specs(self) -> dict[str, ArraySpec]:
        """See `World.specs`: the environment's observations before and after each step, and the captions."""
        found = {name: field.spec for name, field in self.fields.items()}
        return found | {f"event_{name}": spec for name, spec in found.items()} | CAPTIONS

    def check(self) -> None:
        """Makes an environment, and plays a step in it."""
        game = self.game(shown=False)  # playing does not need rendering
        try:
            game.reset(game_seed(0, SeedStream.TRAIN, 0), 0)
            game.step(game.draw(0.0))
            game.info()
            game.screen()
        finally:
            game.close()

    def game(self, shown: bool = True) -> GymWorldGame:
        return GymWorldGame(self, shown)

    def plays(self, facts: Mapping[str, Any]) -> str:
        """See `World.plays`: the class, the actions and the observations must match."""
        if trained_world(facts) != self.class_name:
            return f"was trained in the world {trained_world(facts)!r}, not {self.class_name!r}"
        actions = facts["model"]["num_actions"]
        if space_from(facts["model"]) != self.action_space:
            return f"has actions of other parts than the world {self.name!r}"
        if not self.action_space and actions != len(self.action_names):
            return f"has {actions} actions, but the world {self.name!r} has {len(self.action_names)}"
        return unreadable(facts["model"].get("reads", {}), self.specs)


def _names_of(env: gymnasium.Env, given: Any, world: str, answers: AnswerChecks) -> tuple[str, ...]:
    """Returns the names of the actions of a Discrete space; raises UserError for a wrong number of names."""
    space: Any = env.action_space
    inner: Any = env.unwrapped
    own = getattr(inner, "actions", None)
    if given:
        names = answers.names("action_names", given)
    elif isinstance(own, type) and issubclass(own, enum.Enum):
        names = tuple(action.name for action in own)
    elif callable(getattr(inner, "get_action_meanings", None)):
        meanings = answers.names("get_action_meanings()", inner.get_action_meanings())
        names = tuple(name.lower() for name in meanings)
    else:
        names = tuple(f"action {number}" for number in range(int(space.n)))
    if len(names) != space.n:
        raise UserError(f"the world {world!r} names {len(names)} actions, but has {space.n} ({WORLD_FLAG})")
    return names

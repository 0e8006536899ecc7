"""Worlds that are played by writing: what they have in common.

Their action is a text (`world.text_action`). Beside the captions they have the observation `heard`: what the world has
said since the agent's last text, so a player that remembers its own texts knows the whole conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from motif_jax.envs.sequential import SequentialVector
from motif_jax.envs.text_game import TextGame
from motif_jax.envs.text_players import Makers, TextPlayer, parse_player
from motif_jax.envs.world import CAPTIONS, TEXT, World, text_action, to_text, trained_world
from motif_jax.structs import ArraySpec


class TextWorld(World):
    """See the module docstring; subclasses say what is marked, and make games."""

    # ---- said by subclasses, beside `name`, `about`, `figures` and `game`
    written: int  # most bytes of the agent's texts
    heard: int  # most bytes of the world's texts
    makers: Makers  # of scripted players, beside `random`, by name

    def expect(self, texts: Sequence[str]) -> None:
        """Called with what several games are about to write: a world that asks a server asks about all at once."""

    # ---- the same for all
    action_names = ()
    reads = ("heard",)
    pairs = ("message",)
    texts = None

    def __init__(self, max_episode_steps: int = 5000):
        self.time_limit = max_episode_steps

    @property
    def action(self) -> ArraySpec:  # type: ignore[override]
        """See `World.action`."""
        return text_action(self.written)

    @property
    def specs(self) -> dict[str, ArraySpec]:  # type: ignore[override]
        """See `World.specs`."""
        heard = ArraySpec((self.heard,), "uint8", TEXT)
        return {"heard": heard, "event_heard": heard} | CAPTIONS

    @property
    def players(self) -> tuple[str, ...]:  # type: ignore[override]
        """See `World.players`."""
        return ("random", *self.makers)

    def scripted(self, text: str) -> TextPlayer:
        """The scripted player that the text describes, as `text_players` says; raises UserError if there is none."""
        return parse_player(text, self.makers)

    def check(self) -> None:
        """See `World.check`: nothing can be wrong."""

    def game(self, shown: bool = True) -> TextGame:
        """See `World.game`."""
        raise NotImplementedError

    def vector(
        self,
        num_games: int,
        observations: tuple[str, ...],
        *,
        seed: int,
        stream: int,
        next_episode: Callable[[int], int] | None = None,
        extra_frames: Iterable[str] = (),
        stepping: Any = None,
    ) -> SequentialVector:
        """See `World.vector`."""

        def expect(actions: Sequence[Any]) -> None:
            self.expect([action if isinstance(action, str) else to_text(action) for action in actions])

        return SequentialVector(
            self.game, num_games, observations, seed=seed, stream=stream, next_episode=next_episode, stepping=stepping,
            before_step=None if type(self).expect is TextWorld.expect else expect,
        )  # fmt: skip

    def plays(self, facts: Mapping[str, Any]) -> str:
        """See `World.plays`: policies that choose among actions do not write."""
        own = f"{type(self).__module__}:{type(self).__qualname__}"  # as configs name a world of the user's own
        if trained_world(facts) not in (self.name, own):
            return f"was trained in the world {trained_world(facts)!r}, not {self.name!r}"
        if actions := facts["model"].get("num_actions"):
            return f"chooses among {actions} actions, where the world {self.name!r} is played by writing"
        return ""

"""The base class of text worlds.

Their action is a text (`world.text_action`). In addition to the captions they have the observation `heard`: the world's
answer to the agent's last text. A player that remembers its own texts thus knows the whole conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motif_jax.envs.sequential import SequentialVector, SequentialWorld
from motif_jax.envs.text_game import TextGame
from motif_jax.envs.text_players import Makers, TextPlayer, parse_player
from motif_jax.envs.world import CAPTIONS, TEXT, World, text_action, to_text, trained_world
from motif_jax.structs import ArraySpec


class TextWorld(SequentialWorld, World):
    """See the module docstring; subclasses set the marked attributes and define `game`."""

    # ---- for subclasses, with `name`, `about`, `figures` and `game`
    written: int  # maximum bytes of the agent's texts
    heard: int  # maximum bytes of the world's texts
    makers: Makers  # of scripted players other than `random`, by name

    def expect(self, texts: Sequence[str]) -> None:
        """Receives the texts that several games are about to write, so that a server can be asked about all at once."""

    # ---- the same for all
    action_names = ()
    reads = ("heard",)
    pairs = ("message",)
    texts = None

    def __init__(self, max_episode_steps: int = 5000):
        self.time_limit = max_episode_steps

    @property
    def action(self) -> ArraySpec:  # type: ignore[override]
        return text_action(self.written)

    @property
    def specs(self) -> dict[str, ArraySpec]:  # type: ignore[override]
        heard = ArraySpec((self.heard,), "uint8", TEXT)
        return {"heard": heard, "event_heard": heard} | CAPTIONS

    @property
    def players(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("random", *self.makers)

    def scripted(self, text: str) -> TextPlayer:
        """Makes a scripted player, see `text_players.parse_player`."""
        return parse_player(text, self.makers)

    def check(self) -> None:
        """See `World.check`."""

    def game(self, shown: bool = True) -> TextGame:
        raise NotImplementedError

    def prepare(self, vector: SequentialVector, seed: int, stream: int) -> None:
        if type(self).expect is not TextWorld.expect:
            vector.before_step = lambda actions: self.expect(
                [action if isinstance(action, str) else to_text(action) for action in actions]
            )

    def plays(self, metadata: Mapping[str, Any]) -> str:
        """See `World.plays`: the world must match, and the policy must write texts."""
        class_name = f"{type(self).__module__}:{type(self).__qualname__}"  # as configs name a user's world
        if trained_world(metadata) not in (self.name, class_name):
            return f"was trained in the world {trained_world(metadata)!r}, not {self.name!r}"
        if actions := metadata["model"].get("num_actions"):
            return f"chooses among {actions} actions, but the world {self.name!r} is played by writing"
        return ""

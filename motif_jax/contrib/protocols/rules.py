"""The games of the NetHack Challenge and of BALROG.

In NetHack the policy keeps its actions and its handling of questions and pages; a step is one of its actions, while
these protocols count each key. Their figures are those of the game, BALROG's progression among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motif_jax.envs.babyai.level_settings import SECTION
from motif_jax.envs.babyai.world import BabyAIWorld
from motif_jax.envs.nethack.tasks import ANY_CHARACTER
from motif_jax.envs.nethack.world import NetHackWorld
from motif_jax.envs.protocols import FLAG, ChangedGames
from motif_jax.envs.worlds import make_world, title
from motif_jax.structs import UserError


@dataclass(frozen=True)
class OfNetHack(ChangedGames):
    """Rules of NetHack, but not of other games with its frames."""

    def check(self, env: Mapping[str, Any]) -> None:
        world = make_world(env)
        if not (isinstance(world, NetHackWorld) and world.settings.is_nethack):
            raise refusal(self, "NetHack", env)


@dataclass(frozen=True)
class OfBabyAI(ChangedGames):
    """Rules of BabyAI."""

    def check(self, env: Mapping[str, Any]) -> None:
        if not isinstance(make_world(env), BabyAIWorld):
            raise refusal(self, "BabyAI", env)


def refusal(protocol: ChangedGames, game: str, env: Mapping[str, Any]) -> UserError:
    """The error of a protocol for another `game`."""
    return UserError(f"the protocol {protocol.name!r} is for {game}, not for {title(env)!r} ({FLAG}, --config.env)")


CHALLENGE = OfNetHack(
    "challenge",
    "by the rules of the NetHack Challenge",
    {
        "task": "score", "character": ANY_CHARACTER, "max_episode_steps": 1_000_000, "no_progress_steps": 10_000,
        "penalty_mode": "constant", "penalty_step": 0.0,
    },
)  # fmt: skip
BALROG_NETHACK = OfNetHack(
    "balrog_nethack",
    "by the rules of BALROG's NetHack",
    {**CHALLENGE.changed, "max_episode_steps": 100_000, "no_progress_steps": 150},
)
BALROG_BABYAI = OfBabyAI("balrog_babyai", "by the rules of BALROG's BabyAI", {SECTION: {"level": "MixedTrainLocalN0"}})

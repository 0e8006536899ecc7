"""BabyAI-Text's part of the config: which level is played, and in which words. Without minigrid, for checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from motif_jax.config.table import Flag, Table, Text, Value, Whole
from motif_jax.envs.babyai.words import (
    FRENCH,
    LANGUAGES,
    PUBLISHED_FRENCH,
    REWORDING_FLAG,
    Language,
    make_rewrite,
    parse_actions,
    parse_rewording,
)
from motif_jax.structs import UserError

SECTION = "babyai"
FAMILIES = ("goto", "pickup", "open", "putnext", "sequence")  # of missions; the figure `family` is the place in this
MISSION_BYTES = 320  # of the observation; the longest mission has four clauses with places
TABLE: Table = {  # values of the config's section `env`
    f"{SECTION}.{name}": value
    for name, value in {
        "level": Value(Text(), decides=True, older="GoToLocal"),
        "language": Value(Text(("auto", *LANGUAGES)), decides=True, older="auto"),
        "actions": Value(Text(longest=1000), decides=True, older="canonical"),
        "rewording": Value(Text(longest=1000), decides=True, older="none"),
        "window": Value(Whole(1, 64), decides=True, older=3),
        "prompt_bytes": Value(Whole(0, 2**16), decides=True, older=0),
        "faithful_walls": Value(Flag(), decides=True, older=False),
        "reference_families": Value(Flag(), decides=True, older=False),
        "reference_french": Value(Flag(), decides=True, older=False),
    }.items()
}
FRENCH_LEVELS = {"GoToFrench": "GoToLocal", "MixedTrainLocalFrench": "MixedTrainLocal"}  # the same in English


def short_name(level: str) -> str:
    """A level's name without what gymnasium's ids have around it: `BabyAI-GoToLocal-v0` -> `GoToLocal`."""
    name, dash, version = level.removeprefix("BabyAI-").rpartition("-v")
    return name if dash and version.isdigit() else level.removeprefix("BabyAI-")


class BabyAISettings(NamedTuple):
    """The values of the config's section `env.babyai`, and the time limit."""

    level: str = "GoToLocal"
    language: str = "auto"
    actions: str = "canonical"
    rewording: str = "none"
    window: int = 3
    prompt_bytes: int = 0
    faithful_walls: bool = False
    reference_families: bool = False
    reference_french: bool = False
    max_episode_steps: int = 5000  # levels have limits of their own, which are lower

    @classmethod
    def of(cls, env: Mapping[str, Any]) -> BabyAISettings:
        """From the config's section `env`, or a record of it."""
        values = dict(env.get(SECTION, {}))
        if "max_episode_steps" in env:
            values["max_episode_steps"] = env["max_episode_steps"]
        return cls(**{name: value for name, value in values.items() if name in cls._fields})

    def check(self) -> None:
        """Raises UserError for values that cannot work, whatever levels there are."""
        for key, value in TABLE.items():
            name = key.removeprefix(f"{SECTION}.")
            value.kind.check(name, f"--config.env.{key}", getattr(self, name))
        parse_actions(self.actions)
        if parse_rewording(self.rewording) and self.french:
            raise UserError(
                f"the rewording {self.rewording!r} is of English words, where prompts are French ({REWORDING_FLAG}, "
                f"--config.env.{SECTION}.language)"
            )

    @property
    def french(self) -> bool:
        """Whether sentences are French."""
        name = short_name(self.level)
        return self.language == "french" or (self.language == "auto" and name in FRENCH_LEVELS)

    @property
    def words(self) -> Language:
        """What things are called."""
        if self.french:
            return PUBLISHED_FRENCH if self.reference_french else FRENCH
        return LANGUAGES["english"]

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the player can choose from."""
        return parse_actions(self.actions)

    @property
    def rewrite(self) -> Callable[[str], str]:
        """What is done to a whole prompt."""
        return make_rewrite(parse_rewording(self.rewording))

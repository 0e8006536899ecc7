"""BabyAI-Text's part of the config: which level is played, and in which words. Without minigrid, for checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from motif_jax.config.table import Flag, Text, Whole, deciding
from motif_jax.envs.babyai import words as texts
from motif_jax.structs import UserError

SECTION = "babyai"
FAMILIES = ("goto", "pickup", "open", "putnext", "sequence")  # of missions; the figure `family` is an index into this
MISSION_BYTES = 320  # of the observation; the longest mission has four clauses with places
FRENCH_LEVELS = {"GoToFrench": "GoToLocal", "MixedTrainLocalFrench": "MixedTrainLocal"}  # the same in English


def short_name(level: str) -> str:
    """Strips the prefix and version of gymnasium's ids: `BabyAI-GoToLocal-v0` -> `GoToLocal`."""
    name, dash, version = level.removeprefix("BabyAI-").rpartition("-v")
    return name if dash and version.isdigit() else level.removeprefix("BabyAI-")


@dataclass(frozen=True)
class BabyAISettings:
    """The world babyai (docs/babyai.md)."""

    level: str = deciding("GoToLocal", Text(), "GoToLocal, MixedTrainLocal, or any level of BabyAI by its name")
    language: str = deciding("auto", Text(("auto", *texts.LANGUAGES)), "language of prompts; auto: that of the level")
    actions: str = deciding(
        "canonical",
        Text(longest=1000),
        "names such as turn left,..., or canonical, restricted, augmented, rotate, shift, french",
    )
    rewording: str = deciding(
        "none", Text(longest=1000), "of prompts: none, synonyms, invented_words, ..., or key=chair,ball=table"
    )
    mission: str = deciding(
        "own",
        Text(("own", "shuffled")),
        "the mission that players read; shuffled: with random colours and kinds, a control",
    )
    window: int = deciding(3, Whole(1, 64), "observations in a prompt")
    prompt_bytes: int = deciding(0, Whole(0, 2**16), "maximum size of a prompt in bytes; 0: enough for the window")
    faithful_walls: bool = deciding(False, Flag(), "also name a wall behind an object")
    reference_families: bool = deciding(
        False, Flag(), "as published: in training, each game plays one family of missions"
    )
    reference_french: bool = deciding(
        False, Flag(), "as published: a carried object has its English name, and all missions say 'aller à'"
    )
    max_episode_steps: int = 5000  # that of the game's section; levels have limits of their own, which are lower

    @classmethod
    def of(cls, env: Mapping[str, Any]) -> BabyAISettings:
        """Reads the config's section `env`, or a record of it."""
        values = {**env.get(SECTION, {}), **{name: env[name] for name in ("max_episode_steps",) if name in env}}
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})

    def check(self) -> None:
        """Raises UserError for a rewording that would have no effect."""
        if texts.parse_rewording(self.rewording) and self.french:
            words = f"the rewording {self.rewording!r} is of English words, where prompts are French"
            raise UserError(f"{words} ({texts.REWORDING_FLAG}, --config.env.{SECTION}.language)")

    @property
    def french(self) -> bool:
        return self.language == "french" or (self.language == "auto" and short_name(self.level) in FRENCH_LEVELS)

    def goal(self, mission: str) -> str:
        """Returns a mission in the language of prompts."""
        french = texts.published_french if self.reference_french else texts.to_french
        return french(mission) if self.french else mission

    @property
    def words(self) -> texts.Wording:
        french = texts.PUBLISHED_FRENCH if self.reference_french else texts.LANGUAGES["french"]
        return french if self.french else texts.LANGUAGES["english"]

    @property
    def prompt_length(self) -> int:
        return self.prompt_bytes or 1024 + 1280 * self.window  # for one room: 16 objects take 900 bytes

    @property
    def action_names(self) -> tuple[str, ...]:
        return texts.parse_actions(self.actions)

    @property
    def rewrite(self) -> Callable[[str], str]:
        return texts.make_rewrite(texts.parse_rewording(self.rewording))

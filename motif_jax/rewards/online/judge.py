"""From the config to the judge that is asked during training, and what its labels depend on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Annotator
from motif_jax.annotation.backends import MODELS, make_the_prompt, open_annotator
from motif_jax.annotation.memory import AnswerMemory
from motif_jax.annotation.stream import Direct, Stream
from motif_jax.envs.texts import texts_of
from motif_jax.rewards.online.settings import asks_pairs, judge_section


class Judges:
    """Opens a judge for each goal."""

    def __init__(self, config: ConfigDict):
        """Opens none yet."""
        self._config, self._texts = config, texts_of(config)
        self._one = not asks_pairs(config.policy.online.kind)

    @property
    def name(self) -> str:
        """Who answers."""
        section = self._config.annotate
        return str(section.model or section.backend)

    def facts(self) -> dict[str, Any]:
        """What labels depend on, beside the goal."""
        section = self._config.annotate
        facts: dict[str, Any] = {"backend": section.backend}
        if section.backend in ("lexicon", "judge"):
            facts["rules"] = self._texts.rules().version
        if section.backend in MODELS:
            prompt = make_the_prompt(judge_section(self._config, "defaultgoal"), self._texts, self._one)
            named = Path(section.model).name if section.model.startswith(("/", ".", "~")) else section.model
            facts |= {"model": named, "mode": section.mode, "prompt": prompt.hash}
        return facts

    def open(self, goal: str, taken: int, at_once: bool) -> Stream | Direct:
        """A judge about a goal.

        Args:
          goal: a name, or a sentence.
          taken: questions of earlier judges, which count towards the budget.
          at_once: raises UserError if it cannot be reached now; otherwise it is tried again and again.
        """
        section = judge_section(self._config, goal)

        def opened() -> tuple[Annotator, AnswerMemory]:
            annotator, about = open_annotator(section, self._texts, self._config.seed, self._one)
            cache = Path(section.cache_dir).expanduser() if section.cache_dir else None
            return annotator, AnswerMemory(cache, about, self._one)

        if self._config.policy.synchronous:
            return Direct(opened, taken)
        return Stream(opened, opened() if at_once else None, taken)

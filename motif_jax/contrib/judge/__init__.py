"""The backend `judge`: the rules of the game's texts behind a server, asked over HTTP as a model would be."""

from __future__ import annotations

from typing import Any

from motif_jax.annotation.annotator import Annotator
from motif_jax.annotation.backends import Server, read_json
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.annotation.prompts import OWN_WORDS, QuestionTemplate
from motif_jax.annotation.section import AnnotateSection, SamplingSection
from motif_jax.structs import UserError


class RuleServer(Server):
    """`judge`: answers by the rules of the game's texts, behind the interface of a server."""

    by_rules = True

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"rules": self.texts.rules().version}

    def cache_metadata(self, model: str) -> dict[str, Any]:
        """See `Prompted`; the model's name contains the version of the rules."""
        metadata = super().cache_metadata(model)
        assert metadata.pop("rules") in model
        return metadata

    def _check_server(self) -> None:
        Lexicon(self.texts, self.section.goal)
        words = OWN_WORDS[self.template.one]
        if len(self.template.verdicts) < len(words):
            raise UserError(
                "the judge can only write answers that are plain words, one for each of "
                f"{', '.join(words)} (answers in --config.annotate.prompt_file): ask a model, or "
                "take --config.annotate.backend=lexicon"
            )
        read_json(self.section.server.extra, "server.extra")

    def _open(self, template: QuestionTemplate, sampling: SamplingSection | None) -> Annotator:
        from motif_jax.contrib.judge.server import Judge, JudgeClient

        options = self.section.judge
        delay_s, at_a_time = options.delay_s, options.at_a_time
        judge = Judge(self.section.goal, template, self.texts, delay_s=delay_s, at_a_time=at_a_time)
        return JudgeClient(judge, self.section.server, template, sampling)

    @classmethod
    def model_name(cls, section: AnnotateSection) -> str:
        return section.backend

"""The network `language` as a `PromptNetwork`: a language model is the policy. Loads JAX when it makes something."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.envs.world import World
from motif_jax.language.config import check_model
from motif_jax.language.hub import check_language_model
from motif_jax.networks.kinds import LANGUAGE, PromptNetwork
from motif_jax.policies.decoding import LANGUAGE_FLAG, PRETRAINED, SCORE, TRAINED
from motif_jax.structs import Need, UserError


class LanguageNetwork(PromptNetwork):
    """A language model as the policy; see language_policy.py."""

    overlaps = keeps_untrained = True

    def check(self, config: Any) -> None:
        section = config.policy
        language = section.language
        if language.lora_rank and not (language.model and language.weights == PRETRAINED):
            why = "low-rank additions to an untrained model learn little: choose pretrained weights of a model"
            raise UserError(f"{why}, or lora_rank 0 ({LANGUAGE_FLAG}.lora_rank, .model, .weights)")
        check_model(language.model, language.width, language.heads, LANGUAGE_FLAG)

    def needs(self, section: Any) -> list[Need]:
        model = section.language.model
        if model in ("", TRAINED):
            return []
        return [Need(lambda: check_language_model(model, f"{LANGUAGE_FLAG}.model"), Path(model))]

    def start(self, config: Any, world: World, workdir: Path) -> tuple[dict[str, Any], Any]:
        from motif_jax.policies.language_policy import make_language_policy

        return make_language_policy(config, world, workdir)

    def fields(self, spec: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
        from motif_jax.policies.language_policy import language_policy_fields

        return language_policy_fields(spec, seed)

    def scores_names(self, spec: Mapping[str, Any]) -> bool:
        return bool(spec[LANGUAGE]["head"] == SCORE)

    def language_model(self, spec: Mapping[str, Any], params: Any, frozen: Any) -> Any:
        from motif_jax.policies.language_policy import language_of

        return language_of(spec, params, frozen)

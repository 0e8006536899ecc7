"""Exports the language model of a policy: as a model in Hugging Face layout, or its low-rank additions for PEFT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from motif_jax.console import print_line
from motif_jax.language.adapt import merge_low_rank
from motif_jax.language.config import find_trained
from motif_jax.language.hub import write_language_model
from motif_jax.language.peft import write_adapter
from motif_jax.networks.kinds import LANGUAGE, find_prompt_network
from motif_jax.policies.choice import list_steps
from motif_jax.policies.model import read_policy
from motif_jax.policies.text_sections import TRAINED
from motif_jax.structs import UserError
from motif_jax.tokens import tokeniser_from_text, write_tokeniser

FLAG = "--config.export.language"


def export_language(workdir: Path, directory: Path, kind: str) -> None:
    """Writes the language model of the workdir's last policy, "merged" or as an "adapter", with its tokeniser."""
    _, steps = list_steps(str(workdir), "--workdir")
    model, facts, _ = read_policy(workdir, str(steps[-1]))
    options = facts["model"]
    network = find_prompt_network(options["network"])
    language: Any = network.language_model(options, model.params, model.frozen) if network else None
    if language is None:
        raise UserError(f"the policy in {str(workdir)!r} is not a language model ({FLAG})")
    if kind == "merged":
        write_tokeniser(directory, tokeniser_from_text(options[LANGUAGE]["tokeniser"]))
        write_language_model(directory, merge_low_rank(language))
    else:
        base = facts["config"]["policy"]["language"]["model"]
        write_adapter(directory, language, str(find_trained(workdir, FLAG).resolve()) if base == TRAINED else base)
        write_tokeniser(directory, tokeniser_from_text(options[LANGUAGE]["tokeniser"]))
    print_line(f"export: the language model of step {steps[-1]:,}, {kind}, in {directory}")

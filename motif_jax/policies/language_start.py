"""The language model that a policy begins with: read from a directory, or new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from motif_jax.envs.world import World
from motif_jax.language.config import LanguageConfig, find_trained, from_record, to_record
from motif_jax.language.hub import read_config, read_language_model, read_model_tokeniser
from motif_jax.language.hub_config import make_config
from motif_jax.language.memory import activation_bytes, bytes_of, print_memory
from motif_jax.language.model import make_language_model
from motif_jax.language.shards import sharding_rules
from motif_jax.networks.kinds import LANGUAGE
from motif_jax.policies.language_policy import language_policy_fields, types_of
from motif_jax.policies.model import Model
from motif_jax.policies.prompts import BUCKET
from motif_jax.policies.text_sections import FLAG, PRETRAINED, RANDOM, SCORE, TRAINED, LanguageSection
from motif_jax.structs import UserError, naming
from motif_jax.tokens import Tokeniser, WordTokeniser


def make_language_policy(config: Any, world: World, workdir: Path, learns: bool = True) -> tuple[dict[str, Any], Model]:
    """The network's spec, as checkpoints hold it, and the network with its initial parameters.

    `learns`: says first how much memory training takes.
    """
    section = config.policy.language
    directory = find_model(section, workdir)
    if directory:
        with naming(f"{FLAG}.model"):
            architecture = read_config(directory)
            tokeniser = read_model_tokeniser(directory, architecture)
    else:
        architecture, tokeniser = _new_architecture(section, world)
    spec: dict[str, Any] = {
        "network": LANGUAGE,
        "num_actions": len(world.action_names),
        "dtype": config.policy.dtype,
        LANGUAGE: {
            "config": to_record(architecture),
            "tokeniser": tokeniser.text,
            "actions": list(world.action_names),
            "head": section.head, "formula": section.formula, "hidden": section.hidden,
            "reference_heads": section.reference_heads,
            "lora_rank": section.lora_rank, "lora_alpha": section.lora_alpha, "lora_names": section.lora_names,
            "max_tokens": section.max_tokens, "chunk": section.chunk, "remat": section.remat,
        },
    }  # fmt: skip
    if directory and learns:
        _print_memory(config, spec, tokeniser, world)
    language = None
    if directory and section.weights != RANDOM:
        language, architecture = _read(directory, spec, section, config.seed)
        spec[LANGUAGE]["config"] = to_record(architecture)  # reading the weights may complete it
    model = Model(**language_policy_fields(spec, config.seed, language))
    return spec, model._replace(rules=sharding_rules(architecture, config.policy.tensor))


def _print_memory(config: Any, spec: dict[str, Any], tokeniser: Tokeniser, world: World) -> None:
    section, values = config.policy, spec[LANGUAGE]
    fields = language_policy_fields(spec, None)
    probes = getattr(world, "probes", {}).values()
    longest = max((len(tokeniser.encode(prompt)) for prompt in probes), default=values["max_tokens"])
    parts = section.fsdp * section.tensor  # parts of the parameters that the learner has
    devices = section.num_devices or jax.device_count()
    rows = -(-section.batch_size // section.num_minibatches // max(devices // section.tensor, 1))
    rows = min(rows, values["chunk"] or rows)
    architecture, types = from_record(values["config"]), types_of(spec)
    length = -(-longest // BUCKET) * BUCKET
    learnt, frozen = fields["params"], bytes_of(fields["frozen"])
    names = [tokeniser.encode(name) for name in values["actions"]] if values["head"] == SCORE else []
    logits = rows * (1 + sum(map(len, names))) * architecture.vocabulary * 8  # float32, and their gradients
    print_memory(
        "train_policy", learnt,
        bytes_of(learnt) + (bytes_of(learnt) + frozen) // parts + (frozen if devices > 1 else 0),  # a copy acts
        3 * bytes_of(learnt) // parts,  # with Adam's two moments
        activation_bytes(architecture, rows, length, types.compute.itemsize, values["remat"]) + logits,
        3 * bytes_of(learnt) + frozen,  # a checkpoint
        f"--config.policy.num_minibatches, {FLAG}.chunk, .remat, .lora_rank",
    )  # fmt: skip


def find_model(section: LanguageSection, workdir: Path) -> Path | None:
    """The directory of the language model; None for a new one."""
    if not section.model:
        return None
    if section.model != TRAINED:
        return Path(section.model)
    return find_trained(workdir, f"{FLAG}.model")


def _new_architecture(section: LanguageSection, world: World) -> tuple[LanguageConfig, Tokeniser]:
    words = getattr(world, "words", ())
    if not words:
        raise UserError(
            f"the world {world.name!r} does not list the words of its prompts, which a new language model needs: name "
            f"the directory of a model ({FLAG}.model)"
        )
    tokeniser = WordTokeniser.from_texts(words)
    limits = {"n_positions": section.max_tokens + 32} if section.family == "gpt2" else {}
    sizes = section.width, section.layers, section.heads
    return make_config(section.family, tokeniser.size, *sizes, **limits), tokeniser


def _read(directory: Path, spec: dict[str, Any], section: LanguageSection, seed: int) -> tuple[Any, LanguageConfig]:
    """The model with the directory's parameters: all of them, or only the embeddings."""
    types = types_of(spec)
    with naming(f"{FLAG}.model"):
        graph, params, architecture = read_language_model(directory, types, section.remat)
    model = nnx.merge(graph, params)
    if section.weights == PRETRAINED:
        return model, architecture
    new = make_language_model(architecture, types, section.remat, seed=seed)
    new.embedding = nnx.Param(jnp.asarray(model.embedding[...]))
    return new, architecture

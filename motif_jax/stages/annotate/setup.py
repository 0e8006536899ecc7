"""From the config to an annotation: its table of values and checks, its name, its facts, and the annotator."""

from __future__ import annotations

import hashlib
from typing import Any

from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Annotator
from motif_jax.annotation.backends import ENGINE, MODELS, check_backend, make_the_prompt, open_annotator
from motif_jax.annotation.prompts import MODES, VERSIONS, is_sentence
from motif_jax.annotation.shared_lines import slug
from motif_jax.annotation.texts import Texts
from motif_jax.config.table import MANY_SECONDS, NAME, NAME_LIST, PATH, Flag, Number, Tables, Text, Value, Whole
from motif_jax.envs.texts import texts_of
from motif_jax.preferences.oracles import NEEDS as ORACLES
from motif_jax.preferences.questions import BOTTOM_LINE, KINDS
from motif_jax.preferences.store import PairDataset, digest_of, fingerprint
from motif_jax.structs import UserError
from motif_jax.system.file_names import LONGEST, short_name

LONGEST_NAME = LONGEST - len(".html")  # the longest ending of a file that is called like an annotation
BACKENDS = (*MODELS, "lexicon", *ORACLES)
DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")  # that vLLM knows
TABLES: Tables = {
    "annotate": {
        "backend": Value(Text(BACKENDS), decides=True),
        "model": Value(Text(longest=4000, piece=255, between="/"), decides=True),
        "mode": Value(Text(MODES), decides=True),
        "goal": Value(Text(longest=2000), decides=True),
        "prompt": Value(Text(VERSIONS), decides=True),
        "prompt_file": Value(PATH, decides=True),
        "lexicon": Value(PATH, decides=True, older=""),
        "system_role": Value(Flag(), decides=True),
        "captions": Value(Text(KINDS), decides=True),
        "both_orders": Value(
            Number(0, 1),
            decides=True,
            differs="5 % of the questions are asked in both orders",
        ),
        "tie_margin": Value(Number(0, 0.5), decides=True),
        "custom_name": Value(NAME, decides=True),
        "compare_with": Value(NAME_LIST),
        "max_pairs": Value(Whole(0, 10**12)),
        "num_shards": Value(Whole(1, 99_999), decides=True),  # files are named after five digits
        "shard": Value(Whole(0, 99_998)),
        "merge": Value(Text(("auto", "partial"))),
        "ignore_existing": Value(Flag()),
        "cache_dir": Value(PATH),
        "batch_size": Value(Whole(1)),
        "sampling.temperature": Value(Number(0, 1000), decides=True),
        "sampling.top_p": Value(Number(0, 1, above=True), decides=True),
        "sampling.top_k": Value(Whole(-1), decides=True),
        "sampling.max_tokens": Value(
            Whole(1, 10_000_000),
            decides=True,
            differs="an analysis has at most 1,024 tokens (`max_tokens`) rather than 4,096",
        ),
        "vllm.tensor_parallel": Value(Whole(1, 1024)),
        "vllm.dtype": Value(Text(DTYPES), decides=True),
        "vllm.quantization": Value(Text(longest=64), decides=True),
        "vllm.max_model_len": Value(Whole(0, 100_000_000)),
        "vllm.gpu_memory_utilization": Value(Number(0, 1, above=True)),
        "vllm.extra": Value(Text(longest=4000), decides=True),
        "server.url": Value(Text(longest=2000)),
        "server.key_variable": Value(Text()),
        "server.in_flight": Value(Whole(1, 10_000)),
        "server.timeout_s": Value(Number(0.01, MANY_SECONDS)),
        "server.patience_s": Value(Number(0.01, MANY_SECONDS)),
        "server.start_s": Value(Number(0.01, MANY_SECONDS)),
        "server.prefill": Value(Flag(), decides=True),
        "server.extra": Value(Text(longest=4000), decides=True),
        "judge.delay_s": Value(Number(0, 60), older=0.05),
        "judge.at_a_time": Value(Whole(1, 1000), older=8),
    }
}


def check_section(section: ConfigDict, texts: Texts) -> None:
    """Raises UserError for values that cannot work together; no model is loaded or asked."""
    if not 0 <= section.shard < section.num_shards:
        raise UserError(
            f"shard must be between 0 and {section.num_shards - 1}, not {section.shard} "
            "(--config.annotate.shard, .num_shards)"
        )
    check_backend(section, texts)


def label_name(section: ConfigDict) -> str:
    """The annotation's name: custom, or made from model, captions, goal and prompt as the published names are."""
    return short_name(_label_name(section), LONGEST_NAME)


def _label_name(section: ConfigDict) -> str:
    if section.custom_name:
        return section.custom_name
    if section.backend in ORACLES:
        return section.backend
    goal = section.goal if not is_sentence(section.goal) else f"{slug(section.goal)}-{_hash(section.goal)[:4]}"
    if section.backend not in MODELS:
        name = f"{section.backend}_{section.captions}_{goal}"
        own = section.backend == "lexicon" and section.lexicon
        return f"{name}_{slug(own.removesuffix('.toml'))}" if own else name
    prompt = slug(section.prompt_file.removesuffix(".toml")) if section.prompt_file else section.prompt
    model = "judge" if section.backend == "judge" else section.model or "server"
    name = f"{slug(model)}_{section.captions}_{goal}_{prompt}"
    return name if section.mode == "reason" else f"{name}_{section.mode}"


def make_facts(section: ConfigDict, seed: int, dataset: PairDataset, texts: Texts) -> dict[str, Any]:
    """All that labels depend on, of dataset and config, as a flat dict. The model itself is checked later (job.py)."""
    facts: dict[str, Any] = {"backend": section.backend, "num_shards": section.num_shards}
    facts["dataset"] = fingerprint(dataset)
    beside = [dataset.info["score"]] if section.backend == "score" else []
    beside += [dataset.data["rewards"]] if section.backend == "return" else []
    beside += [dataset.data["blstats"]] if section.captions == "msg_minbl" and section.backend not in ORACLES else []
    facts["beside"] = digest_of(beside) if beside else ""  # arrays beside the messages that labels depend on
    if section.backend == "random":
        facts["seed"] = seed
    if section.backend not in ORACLES:
        facts |= {"captions": section.captions, "goal": section.goal}
        facts |= {"bottom_line_version": BOTTOM_LINE} if section.captions == "msg_minbl" else {}
    if section.backend in ("lexicon", "judge"):
        facts["rules"] = texts.rules().version
    if section.backend in MODELS:
        facts |= {"model": section.model, "mode": section.mode, "prompt": make_the_prompt(section, texts).hash}
        facts["tie_margin"] = section.tie_margin
        if section.backend == "vllm":
            facts |= {f"vllm.{name}": section.vllm[name] for name in ENGINE}
        else:
            facts |= {"server.extra": section.server.extra, "server.prefill": section.server.prefill}
        if section.mode == "reason":
            facts |= {"both_orders": section.both_orders}
            facts |= {f"sampling.{name}": value for name, value in section.sampling.to_dict().items()}
    return facts


def make_annotator(config: ConfigDict) -> tuple[Annotator, dict[str, Any]]:
    """Starts the annotator; returns it and what its answers depend on, for the answer cache ({}: not cached)."""
    return open_annotator(config.annotate, texts_of(config), config.seed)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

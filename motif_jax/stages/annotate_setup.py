"""What the config says about annotation, put together: names, checks, facts, and the annotator itself."""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any

from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Annotator, Sampling
from motif_jax.annotation.answers import slug
from motif_jax.annotation.lexicon import VERSION, Lexicon
from motif_jax.annotation.prompts import GOALS, Prompt, make_prompt
from motif_jax.annotation.vllm_engine import check_vllm, identity
from motif_jax.preferences.oracles import NEEDS as ORACLES
from motif_jax.preferences.questions import BOTTOM_LINE, KINDS
from motif_jax.preferences.store import PairDataset, digest_of, fingerprint
from motif_jax.structs import UserError

MODELS = ("vllm", "server")  # backends that ask a language model
ENGINE = ("dtype", "quantization", "extra")  # options of vLLM that change what a model says
BACKENDS = (*MODELS, "lexicon", *ORACLES)
BOTTOM_LINE_VERSION = "bottom_line_version"  # a fact of captions with the bottom line; older annotations lack it


def check_section(section: ConfigDict) -> None:
    """Refuses values that cannot work; nothing is loaded or asked."""
    if section.backend not in BACKENDS:
        raise UserError(
            f"unknown backend {section.backend!r} (--config.annotate.backend): choose from {', '.join(BACKENDS)}"
        )
    if section.captions not in KINDS:
        raise UserError(
            f"unknown captions {section.captions!r} (--config.annotate.captions): choose from {', '.join(KINDS)}"
        )
    for name in ("num_shards", "batch_size"):
        if section[name] < 1:
            raise UserError(f"{name} must be at least 1, not {section[name]} (--config.annotate.{name})")
    if not 0 <= section.shard < section.num_shards:
        raise UserError(
            f"shard must be between 0 and {section.num_shards - 1}, not {section.shard} "
            "(--config.annotate.shard, .num_shards)"
        )
    if section.max_pairs < 0:
        raise UserError(f"max_pairs must not be negative, not {section.max_pairs} (--config.annotate.max_pairs)")
    for name, low, high in (("both_orders", 0.0, 1.0), ("tie_margin", 0.0, 0.5)):
        if not low <= section[name] <= high:
            raise UserError(
                f"{name} must be between {low:g} and {high:g}, not {section[name]} (--config.annotate.{name})"
            )
    if section.merge not in ("auto", "partial"):
        raise UserError(f"merge must be 'auto' or 'partial', not {section.merge!r} (--config.annotate.merge)")
    for name in (section.custom_name, *section.compare_with.split(",")):
        if name and not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise UserError(
                f"an annotation's name is made of letters, digits, - and _, not {name!r} "
                "(--config.annotate.custom_name, .compare_with)"
            )
    if section.backend == "lexicon":
        make_lexicon(section)
    if section.backend in MODELS:
        make_the_prompt(section)
        check_sampling(section.sampling)
    if section.backend == "vllm":
        check_vllm(section.model)
        read_json(section.vllm.extra, "vllm.extra")
    if section.backend == "server":
        from motif_jax.annotation.endpoint import check_url

        check_url(section.server.url)
        server_key(section.server)
        read_json(section.server.extra, "server.extra")
        for name in ("in_flight", "timeout_s", "patience_s", "start_s"):
            if section.server[name] <= 0:
                raise UserError(
                    f"{name} must be positive, not {section.server[name]} (--config.annotate.server.{name})"
                )


def check_sampling(sampling: ConfigDict) -> None:
    """Refuses sampling that vLLM or a server would refuse later."""
    good = {
        "temperature": sampling.temperature >= 0,
        "top_p": 0 < sampling.top_p <= 1,
        "top_k": sampling.top_k == -1 or sampling.top_k >= 1,
        "max_tokens": sampling.max_tokens >= 1,
    }
    for name, fine in good.items():
        if not fine:
            raise UserError(f"{name} cannot be {sampling[name]} (--config.annotate.sampling.{name})")


def label_name(section: ConfigDict) -> str:
    """What the annotation is called: custom, or made of model, captions, goal and prompt as the published ones are."""
    if section.custom_name:
        return section.custom_name
    if section.backend in ORACLES:
        return section.backend
    goal = section.goal if section.goal in GOALS else f"{slug(section.goal)}-{_hash(section.goal)[:4]}"
    if section.backend == "lexicon":
        return f"lexicon_{section.captions}_{goal}"
    prompt = slug(section.prompt_file.removesuffix(".toml")) if section.prompt_file else section.prompt
    name = f"{slug(section.model or 'server')}_{section.captions}_{goal}_{prompt}"
    return name if section.mode == "reason" else f"{name}_{section.mode}"


def make_facts(section: ConfigDict, seed: int, dataset: PairDataset) -> dict[str, Any]:
    """All that a label depends on: the dataset, and what the config says. Models are told apart when they are there."""
    facts: dict[str, Any] = {"backend": section.backend, "num_shards": section.num_shards}
    facts["dataset"] = fingerprint(dataset)
    beside = [dataset.info["score"]] if section.backend == "score" else []
    beside += [dataset.data["rewards"]] if section.backend == "return" else []
    beside += [dataset.data["blstats"]] if section.captions == "msg_minbl" and section.backend not in ORACLES else []
    facts["beside"] = digest_of(beside) if beside else ""  # what decides, beside the messages
    if section.backend == "random":
        facts["seed"] = seed
    if section.backend not in ORACLES:
        facts |= {"captions": section.captions, "goal": section.goal}
        facts |= {BOTTOM_LINE_VERSION: BOTTOM_LINE} if section.captions == "msg_minbl" else {}
    if section.backend == "lexicon":
        facts["rules"] = VERSION
    if section.backend in MODELS:
        facts |= {"model": section.model, "mode": section.mode, "prompt": make_the_prompt(section).hash}
        facts["tie_margin"] = section.tie_margin
        if section.backend == "vllm":
            facts |= {f"vllm.{name}": section.vllm[name] for name in ENGINE}
        else:
            facts |= {"server.extra": section.server.extra, "server.prefill": section.server.prefill}
        if section.mode == "reason":
            facts |= {"both_orders": section.both_orders}
            facts |= {f"sampling.{name}": value for name, value in section.sampling.to_dict().items()}
    return facts


def make_the_prompt(section: ConfigDict) -> Prompt:
    """The question."""
    return make_prompt(section.mode, section.goal, section.prompt, section.prompt_file, section.system_role)


def make_lexicon(section: ConfigDict) -> Annotator:
    """The rules."""
    return Lexicon(section.goal)


def make_annotator(section: ConfigDict, seed: int) -> tuple[Annotator, dict[str, Any]]:
    """The annotator, started; and what its answers depend on, for the answer cache ({}: not to be cached)."""
    if section.backend == "lexicon":
        return make_lexicon(section), {}
    prompt = make_the_prompt(section)
    sampling = Sampling(**section.sampling.to_dict()) if section.mode == "reason" else None
    about: dict[str, Any] = {"mode": section.mode, "prompt": prompt.hash, "system": prompt.system}
    about |= {"request": prompt.request, "captions": prompt.captions, "retry": prompt.retry}
    about["sampling"] = sampling._asdict() if sampling else None
    if section.backend == "vllm":
        from motif_jax.annotation.vllm_engine import VllmEngine

        options = section.vllm
        engine = {
            "tensor_parallel_size": options.tensor_parallel,
            "dtype": options.dtype,
            "max_model_len": options.max_model_len or None,
            "gpu_memory_utilization": options.gpu_memory_utilization,
            "quantization": options.quantization or None,
            "seed": seed,
        } | read_json(options.extra, "vllm.extra")
        model: Annotator = VllmEngine(os.path.expanduser(section.model), prompt, sampling, section.batch_size, engine)
        about |= {"engine": {name: options[name] for name in ENGINE}}
        return model, about | {"model": identity(section.model), "backend": "vllm"}
    from motif_jax.annotation.server import Server

    server = section.server
    client = Server(
        server.url,
        section.model,
        prompt,
        sampling,
        key=server_key(server),
        in_flight=server.in_flight,
        timeout_s=server.timeout_s,
        patience_s=server.patience_s,
        start_s=server.start_s,
        prefill=server.prefill,
        extra=read_json(server.extra, "server.extra"),
    )
    about |= {"model": client.model, "backend": "server", "prefill": server.prefill, "extra": server.extra}
    return client, about


def server_key(server: ConfigDict) -> str:
    """The key, from the environment. The config only names the variable, and so no file ever holds the key."""
    name = server.key_variable
    if name and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
        raise UserError(
            "key_variable names the environment variable that holds the key, in capitals; it is not the key itself "
            "(--config.annotate.server.key_variable)"
        )
    key = os.environ.get(name, "").strip() if name else ""  # files that keys are read from end with a newline
    if not all("!" <= character <= "~" for character in key):
        raise UserError(f"the key in {name} has characters that no key has (--config.annotate.server.key_variable)")
    return key


def read_json(text: str, name: str) -> dict[str, Any]:
    """More options, written as JSON."""
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        raise UserError(f"{text!r} is not JSON: {error} (--config.annotate.{name})") from error
    if not isinstance(value, dict):
        raise UserError(f"{text!r} is no JSON object (--config.annotate.{name})")
    return value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

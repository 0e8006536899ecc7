"""Makes the annotator that the config describes: rules, a model in this process, or a server."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from ml_collections import ConfigDict

from motif_jax.annotation.annotator import Annotator, Sampling
from motif_jax.annotation.lexicon import Lexicon
from motif_jax.annotation.parsing import OWN_WORDS
from motif_jax.annotation.prompts import QuestionTemplate, make_prompt
from motif_jax.annotation.texts import Texts
from motif_jax.annotation.vllm_engine import check_vllm, identity
from motif_jax.config.table import shown
from motif_jax.structs import UserError

MODELS = ("vllm", "server", "judge")  # backends with the interface of a language model
ENGINE = ("dtype", "quantization", "extra")  # options of vLLM that change a model's answers


def make_the_prompt(section: ConfigDict, texts: Texts, one: bool = False) -> QuestionTemplate:
    """Makes the prompt that the section describes; `one`: about one caption instead of two."""
    return make_prompt(texts, section.mode, section.goal, section.prompt, section.prompt_file, section.system_role, one)


def check_backend(section: ConfigDict, texts: Texts, one: bool = False) -> None:
    """Raises UserError for incompatible values, without loading or asking a model."""
    if section.backend in ("lexicon", "judge"):
        Lexicon(texts, section.goal)
    if section.backend in MODELS:
        prompt = make_the_prompt(section, texts, one)
        if section.backend == "judge" and len(prompt.verdicts) < len(OWN_WORDS[one]):
            raise UserError(
                f"the judge can only write answers that are plain words, one for each of {', '.join(OWN_WORDS[one])} "
                "(answers in --config.annotate.prompt_file): ask a model, or take --config.annotate.backend=lexicon"
            )
        if not section.sampling.top_k:
            raise UserError("top_k cannot be 0: give -1 for all (--config.annotate.sampling.top_k)")
    if section.backend == "vllm":
        check_vllm(section.model)
        read_json(section.vllm.extra, "vllm.extra")
    if section.backend == "server":
        from motif_jax.annotation.endpoint import KEY, URL
        from motif_jax.system.http import check_address

        check_address(section.server.url, URL, KEY)
        server_key(section.server)
    if section.backend in ("server", "judge"):
        read_json(section.server.extra, "server.extra")


def open_annotator(
    section: ConfigDict, texts: Texts, seed: int, one: bool = False, temperature: float | None = None
) -> tuple[Annotator, dict[str, Any]]:
    """Starts the annotator that the section describes.

    `one`: questions are about one caption instead of two. `temperature`: of the probabilities that rules give in this
    process; None: verdicts.

    Returns:
      The annotator, and everything its answers depend on, for the answer cache ({}: not cached).
    """
    if section.backend == "lexicon":
        return Lexicon(texts, section.goal, temperature), {}
    if section.backend not in MODELS:
        raise NotImplementedError(f"open_annotator makes no annotator for the backend {section.backend!r}")
    prompt = make_the_prompt(section, texts, one)
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
    from motif_jax.annotation.judge import Judge, JudgeClient
    from motif_jax.annotation.server import Server

    server = section.server
    values: dict[str, Any] = {
        name: server[name] for name in ("in_flight", "timeout_s", "patience_s", "start_s", "prefill")
    }
    values["extra"] = read_json(server.extra, "server.extra")
    about |= {"backend": section.backend, "prefill": server.prefill, "extra": server.extra}
    if section.backend == "judge":
        judge = Judge({section.goal: prompt}, texts, **section.judge.to_dict())
        return JudgeClient(judge, prompt, sampling, **values), about | {"model": judge.model}
    client = Server(server.url, section.model, prompt, sampling, key=server_key(server), **values)
    return client, about | {"model": client.model}


def server_key(server: ConfigDict) -> str:
    """Reads the server's key from the environment. The config only names the variable, so no file holds the key."""
    name = server.key_variable
    if name and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
        raise UserError(
            "key_variable names the environment variable that holds the key, in capitals; it is not the key itself "
            "(--config.annotate.server.key_variable)"
        )
    key = os.environ.get(name, "").strip() if name else ""  # a key read from a file ends with a newline
    if not all("!" <= character <= "~" for character in key):
        raise UserError(f"the key in {name} has invalid characters (--config.annotate.server.key_variable)")
    return key


def read_json(text: str, name: str) -> dict[str, Any]:
    """Parses options in a JSON object; "" means no options. `name` is the flag, for errors."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise UserError(f"{shown(text)} is not JSON: {error} (--config.annotate.{name})") from error
    if not isinstance(value, dict):
        raise UserError(f"{shown(text)} is not a JSON object (--config.annotate.{name})")
    return value

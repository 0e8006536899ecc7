"""The backend `vllm`: a chat model in this process, on its GPUs.

`LLM.chat` gets thousands of questions per call: the engine batches them itself, and computes the common prefix of all
prompts once (prefix caching). Tensor parallelism is an option of the engine; for data parallelism, start one process
per GPU, each with its own shard.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from motif_jax.annotation.annotator import Annotator, Question, QuestionAnswer, batches
from motif_jax.annotation.prompts import OPENING, VERDICTS, Message, QuestionTemplate, to_answer
from motif_jax.annotation.section import SamplingSection
from motif_jax.structs import UserError
from motif_jax.system.foreign import read_text

FLAG = "--config.annotate.model"
IDENTIFYING = ("*.json", "*.jinja", "*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
TOO_LONG = QuestionAnswer(
    None, "no answer: the question is longer than the model's context (--config.annotate.vllm.max_model_len)"
)
SAMPLED_BYTES = 2**20  # hashed at the start, in the middle and at the end of each file, to identify a model


class VllmEngine(Annotator):
    """An annotator with a chat model in this process."""

    def __init__(
        self, model: str, prompt: QuestionTemplate, sampling: SamplingSection | None, batch: int, engine: dict[str, Any]
    ):
        """Loads the model. `sampling`: None in mode score. `batch`: questions per call. `engine`: of `vllm.LLM`."""
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # sends no telemetry
        from vllm import LLM, SamplingParams
        from vllm.exceptions import VLLMValidationError
        from vllm.sampling_params import StructuredOutputsParams

        self._llm = LLM(model=model, enable_prefix_caching=True, **engine)
        self.model = identity(model)
        self._tokenizer = self._llm.get_tokenizer()
        self._prompt, self._sampling, self._batch = prompt, sampling, batch
        self._refusals, self._refusal, self._answered = (ValueError, VLLMValidationError), "", False
        self._check_template()
        if sampling is None:
            self._tokens = verdict_token_ids(self._tokenizer)
            wanted = [token for ids in self._tokens.values() for token in ids]
            self._params = SamplingParams(temperature=0, max_tokens=1, logprob_token_ids=wanted, detokenize=False)
        else:
            self._params = SamplingParams(**asdict(sampling))
            choice = StructuredOutputsParams(choice=prompt.verdicts) if prompt.verdicts else None
            self._retry_params = SamplingParams(temperature=0, max_tokens=64, structured_outputs=choice)

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        ask = self._score if self._sampling is None else self._reason
        for batch in batches(questions, self._batch):
            yield from zip(batch, ask([self._prompt.messages(question) for question in batch]), strict=True)

    def _score(self, conversations: list[list[Message]]) -> list[QuestionAnswer]:
        prefilled = [[*messages, {"role": "assistant", "content": OPENING}] for messages in conversations]
        answers = []
        for output in self._chat(prefilled, self._params, add_generation_prompt=False, continue_final_message=True):
            if output is None:
                answers.append(TOO_LONG)
                continue
            logprobs = output.outputs[0].logprobs[0]
            probabilities = {
                verdict: sum(math.exp(logprobs[token].logprob) for token in ids)
                for verdict, ids in self._tokens.items()
            }
            answers.append(to_answer(probabilities, _tokens(output), self._prompt.one))
        return answers

    def _reason(self, conversations: list[list[Message]]) -> list[QuestionAnswer]:
        outputs = self._chat(conversations, self._params)
        answers = [TOO_LONG if output is None else self._read(output) for output in outputs]
        again = [index for index, answer in enumerate(answers) if answer.yes is None and outputs[index]]
        retries = [self._prompt.again(conversations[index], answers[index].said) for index in again]
        for index, output in zip(again, self._chat(retries, self._retry_params), strict=True):
            if output is not None:
                answers[index] = answers[index].asked_again(self._read(output))
        return answers

    def _read(self, output: Any) -> QuestionAnswer:
        text = output.outputs[0].text
        return QuestionAnswer(self._prompt.read(text), text, 1.0, *_tokens(output))

    def _chat(self, conversations: list[list[Message]], params: Any, **options: Any) -> list[Any]:
        """One output per conversation; None for a conversation that is too long for the model."""
        if not conversations:
            return []
        outputs = self._try(conversations, params, options)
        if not self._answered and not any(outputs):
            raise UserError(f"vLLM refuses all questions: {self._refusal} (--config.annotate.vllm.max_model_len)")
        self._answered = True
        return outputs

    def _try(self, conversations: list[list[Message]], params: Any, options: dict[str, Any]) -> list[Any]:
        """One output per conversation; bisects a refused batch until each refused conversation is found (None)."""
        template = {"enable_thinking": False}  # models that do not think ignore this
        try:
            return self._llm.chat(conversations, params, use_tqdm=False, chat_template_kwargs=template, **options)
        except self._refusals as error:  # a conversation is longer than the model's context
            self._refusal = _sentence(error)
        middle = len(conversations) // 2
        if not middle:
            return [None]
        halves = conversations[:middle], conversations[middle:]
        return [output for half in halves for output in self._try(half, params, options)]

    def _check_template(self) -> None:
        messages = self._prompt.messages(Question("one", None if self._prompt.one else "two"))
        if self._sampling is not None:
            messages = self._prompt.again(messages, "I do not know.")
        try:
            self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template may raise anything
            raise UserError(
                f"the chat template of the model refuses the conversation: {_sentence(error)} ({FLAG}; "
                "--config.annotate.system_role=False helps where it has no system role)"
            ) from error


def check_vllm(model: str) -> None:
    """Raises UserError if the model's files show that it cannot be loaded."""
    directory, problem = Path(model).expanduser(), ""
    is_path = directory.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1
    if not model:
        problem = "name a model: a directory, or a name of the Hugging Face hub"
    elif not directory.is_dir():  # vLLM will look a name up
        problem = f"there is no model directory {model!r}" if is_path else ""
    elif not _has_chat_template(directory):
        where = "chat_template.jinja, or in tokenizer_config.json"
        problem = f"model directory {model!r} has no chat template ({where}): is it a chat model?"
    if problem:
        raise UserError(f"{problem} ({FLAG})")
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            "the backend 'vllm' needs vLLM, which is not installed: pip install 'motif_jax[vllm]', in an environment "
            "of its own, or use --config.annotate.backend=server"
        )


def identity(model: str) -> str:
    """Identifies a model: its name and, for a directory, a hash of its files, independent of its path."""
    directory = Path(model).expanduser()
    if not directory.is_dir():
        return model
    digest = hashlib.sha256()
    files = [file for pattern in IDENTIFYING for file in directory.glob(pattern) if file.is_file()]
    for file in sorted(files):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with open(file, "rb") as data:
            for offset in (0, size // 2, max(size - SAMPLED_BYTES, 0)):
                data.seek(offset)
                digest.update(data.read(SAMPLED_BYTES))
    return f"{directory.resolve().name} {digest.hexdigest()[:16]}"


def verdict_token_ids(tokenizer: Any) -> dict[str, list[int]]:
    """The tokens that begin each verdict after the opening, with or without a space."""
    opening = tokenizer.encode(OPENING, add_special_tokens=False)
    tokens: dict[str, set[int]] = {verdict: set() for verdict in VERDICTS}
    for verdict, ids in tokens.items():
        for text in (verdict, f" {verdict}"):
            opened = tokenizer.encode(OPENING + text, add_special_tokens=False)
            if opened[: len(opening)] == opening and len(opened) > len(opening):
                ids.add(opened[len(opening)])
    times = Counter(itertools.chain(*tokens.values()))
    unique = {verdict: sorted(token for token in ids if times[token] == 1) for verdict, ids in tokens.items()}
    if not all(unique.values()):
        raise UserError(
            f"the tokenizer of this model cannot tell the verdicts (1), (2) and (0) apart by their first token: use "
            f"--config.annotate.mode=reason ({FLAG})"
        )
    return unique


def _has_chat_template(directory: Path) -> bool:
    if (directory / "chat_template.jinja").is_file() or (directory / "chat_template.json").is_file():
        return True
    try:
        return bool(json.loads(read_text(directory / "tokenizer_config.json")).get("chat_template"))
    except (OSError, ValueError, AttributeError):
        return False


def _tokens(output: Any) -> tuple[int, int, int]:
    return len(output.prompt_token_ids), output.num_cached_tokens or 0, len(output.outputs[0].token_ids)


def _sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]

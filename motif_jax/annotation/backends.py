"""The judges of the config, by name: what their answers depend on, whether they can work, and how they are opened.

A backend is looked up once, by `annotate.backend`, and then has all the answers about itself. Its `metadata` are all
values that its answers depend on. Flattened, they keep two judges apart: they are recorded with a shard of answers
(stages/annotate), and as `identity`, with the goal and a hash of the model's files, with an online reward
(rewards/online) and with cached answers, whose folder is named after a hash of it (annotator.py).

A judge of one's own is a subclass of CaptionBackend, `--config.annotate.backend=module:Class`.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import hashlib
import inspect
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.annotation.annotator import (
    TOKENS,
    Annotator,
    AnswerCache,
    Asking,
    AskingCounts,
    Draws,
    Incomplete,
    Question,
    QuestionAnswer,
    Ratings,
    Sampled,
)
from motif_jax.annotation.prompts import EXAMPLES, GOAL_FLAG, RATE, QuestionTemplate, is_sentence, make_prompt
from motif_jax.annotation.section import AnnotateSection, SamplingSection, ServerSection
from motif_jax.annotation.vllm_engine import VllmEngine, check_vllm
from motif_jax.config.table import flatten, shown
from motif_jax.envs.own_code import failure, guarded, load_class
from motif_jax.envs.texts import LEXICON_FLAG, Texts, preference
from motif_jax.files import slug
from motif_jax.language.chat import FORMATS, ChatFormat
from motif_jax.language.config import LanguageConfig, locate_model, model_bytes, model_hash
from motif_jax.language.hub import check_language_model, read_chat_format
from motif_jax.names import BACKENDS
from motif_jax.preferences.store import PairDataset
from motif_jax.structs import Need, UserCodeError, UserError, legible, naming
from motif_jax.system.errors import find_refusal
from motif_jax.system.foreign import parse_foreign_json

FLAG, MODEL_FLAG = "--config.annotate.backend", "--config.annotate.model"
CHAT_FLAG, AUTO = "--config.annotate.chat_format", "auto"  # auto: the model's own format
LONGEST_ANSWER = 2_000  # characters of a wrong answer that are printed
SMALL = 4e9  # bytes of a model that needs examples: a billion parameters or two
RESERVED = {  # keys of other metadata of shards and caches
    "backend", "opened", "num_shards", "dataset", "beside", "captions", "bottom_line_version", "tie_margin",
    "both_orders",
}  # fmt: skip


class CaptionBackend(abc.ABC):
    """A judge of captions, as a section `annotate` of the config describes it; nothing is opened yet."""

    title = ""  # in a report's sentences, of a judge that is no model
    plural = False  # whether this title is a plural: "what the rules like"
    in_process = False  # holds the memory of the accelerator until this process ends
    by_rules = False  # by the rules of the game's texts, which read texts of any length
    uses_jax = False  # beside a learner, it is opened in a process of its own (stream.py)

    def __init__(self, section: AnnotateSection, texts: Texts, seed: int, one: bool = False, verdicts: bool = False):
        """`one`: questions are about one caption instead of two. `verdicts`: rules give no probabilities."""
        self.section, self.texts, self.seed, self.one, self.verdicts = section, texts, seed, one, verdicts

    # ---- what every judge says of itself: a default would be wrong in silence. `find_backend` shows these docstrings

    @property
    @abc.abstractmethod
    def is_model(self) -> bool:
        """Whether it is a language model: its answers are cached, and may depend on the order of captions."""

    @property
    @abc.abstractmethod
    def weights(self) -> str:
        """A hash of a model's files, which may be replaced under the same name; "" where there are none."""

    @abc.abstractmethod
    def metadata(self) -> dict[str, Any]:
        """All values that its answers depend on, as JSON; inner objects are sections of the config.

        Its name and the goal are added. A model's sampling seed is left out: no question is asked again for another.
        """

    @abc.abstractmethod
    def open(self) -> Annotator:
        """Opens it. Raises UserError if it does not work."""

    # ---- what most judges leave as it is

    def check(self) -> None:
        """Raises UserError for values that cannot work, without opening anything."""
        return

    def needs(self) -> list[Need]:
        """The files of others that it reads."""
        return []

    @property
    def tie_margin(self) -> float:
        """Answers this close to one half are ties."""
        return float(self.section.tie_margin) if self.is_model else 0.0

    @property
    def both_orders(self) -> float:
        """The share of questions that are asked in both orders: 0 for rules, whose answers do not depend on it."""
        return float(self.section.both_orders) if self.is_model else 0.0

    @property
    def rates(self) -> bool:
        """Whether it is asked about single captions, and pairs are answered from these ratings (`Ratings`)."""
        return False

    def flat_metadata(self) -> dict[str, Any]:
        """The metadata as JSON gives them back, with the backend's name; raises UserError if JSON lacks such values."""
        with user_code(self.section.backend):
            metadata = self.metadata()
        try:
            read = json.loads(json.dumps(metadata, allow_nan=False))
            if not isinstance(read, dict):
                raise TypeError("it is not a dictionary")
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(
                f"the metadata of the judge {self.section.backend!r} must be a dictionary of finite JSON values, not "
                f"{shown(metadata)}: {error} ({FLAG})"
            ) from error
        if clash := RESERVED & read.keys():
            raise UserError(f"the metadata of {self.section.backend!r} cannot be named {', '.join(clash)} ({FLAG})")
        return {"backend": self.section.backend} | flatten(read)

    def identity(self) -> dict[str, Any]:
        """What tells records of its answers from those of others: flat metadata, the goal, the hash of its files."""
        weights = {"weights": self.weights} if self.weights else {}
        return self.flat_metadata() | {"goal": self.section.goal} | weights

    def cache_metadata(self, model: str) -> dict[str, Any]:
        """The identity with the full name of the opened model."""
        return self.identity() | {"opened": model}

    def labelling(self) -> dict[str, Any]:
        """Flat metadata of how answers become labels."""
        return {"tie_margin": self.tie_margin, "both_orders": self.both_orders} if self.is_model else {}


class Lexicon(Annotator):
    """Answers questions by the rules of a game: a deterministic stand-in for a language model.

    Each rule has a pattern and a worth per goal (texts.py). A caption's worth is the sum over its matching rules. Of
    two captions the one with the higher worth is better, and equal worths are a tie; with a temperature, the difference
    of worth decides the probability. A single caption is helpful if its worth is above 0.
    """

    model = ""

    def __init__(self, texts: Texts, goal: str, temperature: float | None = None):
        """Checks that the game has rules. `temperature`: of probabilities (`envs.texts`); None: verdicts."""
        rules = texts.rules()
        if not rules.rules:
            raise UserError(
                f"this game has no lexicon: name a file of rules ({LEXICON_FLAG}), put a lexicon.toml where the "
                "world's `texts` points, or ask a language model (--config.annotate.backend=model, vllm or server)"
            )
        if goal not in texts.goals:
            raise UserError(
                f"the lexicon knows the goals {', '.join(texts.goals)}, and not {goal!r} ({GOAL_FLAG}): a goal in "
                "your own words needs a language model, --config.annotate.backend=model, vllm or server"
            )
        self._temperature = temperature
        self._worth = functools.lru_cache(100_000)(rules.worth_to(goal))

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        for question in filter(None, questions):  # without pauses
            yield question, self.answer(question)

    def answer(self, question: Question) -> QuestionAnswer:
        first, why_first = self.worth(question.first)
        if question.second is None:
            return QuestionAnswer(float(first > 0), f"{why_first} ({first:+g})")
        second, why_second = self.worth(question.second)
        better = preference(second - first, self._temperature)
        return QuestionAnswer(better, f"1: {why_first} ({first:+g}); 2: {why_second} ({second:+g})")

    def worth(self, caption: str) -> tuple[float, str]:
        value, names = self._worth(caption)
        return value, ", ".join(names) or "nothing of note"


class Rules(CaptionBackend):
    """`lexicon`: the rules of the game's texts, in this process."""

    title, plural = "the rules", True
    by_rules = True
    is_model, weights = False, ""

    def metadata(self) -> dict[str, Any]:
        degrees = {} if self.verdicts else {"rules_temperature": self.section.rules_temperature}
        return {"goal": self.section.goal, "rules": self.texts.rules().version} | degrees

    def check(self) -> None:
        Lexicon(self.texts, self.section.goal)

    def open(self) -> Annotator:
        return Lexicon(self.texts, self.section.goal, None if self.verdicts else self.section.rules_temperature)


class Prompted(CaptionBackend):
    """A language model, or a stand-in behind the same interface."""

    is_model = True
    continues = False  # whether it can be given a text to continue

    def metadata(self) -> dict[str, Any]:
        section = self.section
        metadata: dict[str, Any] = {"model": section.model, "mode": section.mode, "prompt": self.template.hash}
        metadata |= {"sampling": asdict(self.sampling)} if self.sampling else {}
        return metadata | ({"samples": section.samples} if section.samples > 1 else {})

    def cache_metadata(self, model: str) -> dict[str, Any]:
        metadata = super().cache_metadata(model)
        del metadata["model"]  # whose name in the config may be one of several paths
        return metadata

    def check(self) -> None:
        if self.section.prompt_file and self.section.prompt != AUTO:
            flags = "--config.annotate.prompt, .prompt_file"
            raise UserError(f"your own prompts take the place of {self.section.prompt!r}: give one of them ({flags})")
        if self.template.ending and not self.continues:
            raise UserError(
                "a prompt with an `ending` is a text to continue, which only a model in this process is given "
                "(--config.annotate.prompt, .prompt_file; --config.annotate.backend=model)"
            )

    def open(self) -> Annotator:
        annotator = self._open()
        return annotator if self.section.samples == 1 else Sampled(annotator, self.section.samples)

    @abc.abstractmethod
    def _open(self) -> Annotator:
        """Opens the model, which is asked with the prompt; without sampling, in mode score."""

    @property
    def version(self) -> str:
        """The version of the prompt, one of `prompts.VERSIONS` or RATE."""
        return "default" if self.section.prompt == "auto" else self.section.prompt

    @functools.cached_property
    def template(self) -> QuestionTemplate:
        """The prompt; raises UserError if it cannot work."""
        section, one = self.section, self.one or self.rates
        return make_prompt(
            self.texts, section.mode, section.goal, self.version, section.prompt_file, section.system_role, one
        )

    @property
    def rates(self) -> bool:
        return self.section.mode == RATE

    @property
    def sampling(self) -> SamplingSection | None:
        """How the analysis is sampled; None in modes without an analysis."""
        return self.section.sampling if self.section.mode == "reason" else None

    @property
    def both_orders(self) -> float:
        return {"reason": super().both_orders, "score": 1.0, "rate": 0.0}[self.section.mode]

    def labelling(self) -> dict[str, Any]:
        labelling = super().labelling()
        return labelling if self.section.mode == "reason" else {"tie_margin": labelling["tie_margin"]}


class Model(Prompted):
    """`model`: a language model in this process; see own_model.py."""

    in_process = uses_jax = continues = True

    def metadata(self) -> dict[str, Any]:
        section = self.section
        orders = {"orders": "log-odds"} if section.mode == "score" else {}
        return super().metadata() | orders | ({} if section.chat_format == AUTO else {"chat": section.chat_format})

    @property
    def weights(self) -> str:
        return model_hash(self.section.model)

    @property
    def both_orders(self) -> float:
        # In mode score, each answer is of both orders.
        return super().both_orders if self.section.mode == "reason" else 0.0

    @property
    def version(self) -> str:
        section = self.section
        if self.rates:
            return RATE
        if section.mode == "score" and section.prompt == "auto" and model_bytes(section.model) < SMALL:
            return EXAMPLES
        return super().version

    def check(self) -> None:
        if not self.section.model:
            raise UserError("name a directory, a GGUF file, or smollm2 (--config.annotate.model)")
        super().check()

    def needs(self) -> list[Need]:
        def check() -> None:
            config = check_language_model(self.section.model, MODEL_FLAG)
            with naming(MODEL_FLAG):
                own = read_chat_format(Path(self.section.model))
            self._find_chat(config, own)

        return [Need(check, Path(self.section.model))]

    def _find_chat(self, config: LanguageConfig, own: ChatFormat | None) -> ChatFormat | None:
        """The format of conversations, None for a text to continue; raises UserError for a model that cannot judge."""
        if config.is_encoder_decoder:
            raise UserError(f"{self.section.model!r} is an encoder-decoder: choose another model ({MODEL_FLAG})")
        chat = None if self.template.ending else FORMATS.get(self.section.chat_format) or own
        if not (chat or self.template.ending):
            raise UserError(
                f"{self.section.model!r} has no known format of conversations: name one ({CHAT_FLAG}="
                f"{', '.join(FORMATS)}), or choose a text to continue (--config.annotate.mode=score, "
                f".prompt=examples), or another model ({MODEL_FLAG})"
            )
        return chat

    def _open(self) -> Annotator:
        from motif_jax.annotation.own_model import OwnModel, OwnReasons
        from motif_jax.language.loaded import load_language

        template = self.template
        with naming(MODEL_FLAG):
            language = load_language(self.section.model)
        name, chat = locate_model(self.section.model).name, self._find_chat(language.config, language.chat_format)
        if self.sampling is None:
            return OwnModel(language, template, chat, name, self.section.batch_size)
        assert chat, "a text to continue has no mode reason"
        return OwnReasons(language, template, chat, self.sampling, self.seed, name, self.section.batch_size)


class Vllm(Prompted):
    """`vllm`: a model in this process."""

    in_process = True
    weights = ""  # the name of the opened model has a hash of its files

    def metadata(self) -> dict[str, Any]:
        options = self.section.vllm
        engine = {"dtype": options.dtype, "quantization": options.quantization, "extra": options.extra}
        return super().metadata() | {"vllm": engine}

    def check(self) -> None:
        super().check()
        check_vllm(self.section.model)
        read_json(self.section.vllm.extra, "vllm.extra")

    def _open(self) -> Annotator:
        options = self.section.vllm
        engine = {
            "tensor_parallel_size": options.tensor_parallel,
            "dtype": options.dtype,
            "max_model_len": options.max_model_len or None,
            "gpu_memory_utilization": options.gpu_memory_utilization,
            "quantization": options.quantization or None,
            "seed": self.seed,
        } | read_json(options.extra, "vllm.extra")
        model = os.path.expanduser(self.section.model)
        return VllmEngine(model, self.template, self.sampling, self.section.batch_size, engine)


class Server(Prompted):
    """`server`: a model behind an OpenAI-compatible URL."""

    weights = ""  # its files are not seen

    def metadata(self) -> dict[str, Any]:
        server = self.section.server
        return super().metadata() | {"server": {"extra": server.extra, "prefill": server.prefill}}

    def check(self) -> None:
        super().check()
        check_server(self.section.server)

    def _open(self) -> Annotator:
        from motif_jax.annotation.client import ChatClient

        server = self.section.server
        return ChatClient(server, self.section.model, self.template, self.sampling, server_key(server))


class Oracle(CaptionBackend):
    """Compares numbers of the dataset instead of captions, as in the original; or decides by chance."""

    is_model, weights = False, ""

    def open(self) -> Annotator:
        name = self.section.backend
        raise UserError(f"{name!r} compares numbers of the game, and a judge of captions is asked ({FLAG})")

    def metadata(self) -> dict[str, Any]:
        return {}

    def numbers(self, dataset: PairDataset) -> np.ndarray | None:
        """The numbers that it compares, [N, 2, ...]; None if it needs none."""
        return None

    def answer(self, dataset: PairDataset, rows: np.ndarray) -> np.ndarray:
        """P(second is better) of some pairs, whose rows ascend: 0, 1/2 or 1. [M] -> [M] float32"""
        numbers = self.numbers(dataset)
        assert numbers is not None
        first, second = numbers[rows].reshape(len(rows), 2, math.prod(numbers.shape[2:])).sum(-1, dtype=np.float64).T
        return np.where(first == second, 0.5, second > first).astype(np.float32)


def of_nethack(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """An array of a dataset that only NetHack's have; raises UserError for others."""
    if name not in arrays:
        raise UserError(f"the dataset has no {name!r}, which moments of NetHack have ({FLAG}, .captions)")
    return arrays[name]


class ScoreOracle(Oracle):
    """`score`: the score of the episode that a moment is from."""

    title = "an oracle that knows the score"

    def numbers(self, dataset: PairDataset) -> np.ndarray | None:
        return of_nethack(dataset.info, "score")


class ReturnOracle(Oracle):
    """`return`: the rewards of a moment."""

    title = "an oracle that knows the rewards"

    def numbers(self, dataset: PairDataset) -> np.ndarray | None:
        return dataset.data["rewards"]


class Chance(Oracle):
    """`random`: a pair's verdict depends on the seed alone."""

    title = "chance"

    def metadata(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def answer(self, dataset: PairDataset, rows: np.ndarray) -> np.ndarray:
        return np.random.default_rng(self.seed).integers(2, size=len(dataset))[rows].astype(np.float32)


# ---- finding and opening a judge; a user's is guarded


def user_code(backend: str) -> contextlib.AbstractContextManager[None]:
    """A context for calls of a judge: errors in a user's judge become UserCodeError, others pass unchanged."""

    def explain(error: BaseException) -> UserError | None:
        own = backend not in BACKENDS and not isinstance(error, Incomplete) and not find_refusal(error)
        return failure(f"the judge {backend!r}", FLAG, error) if own else None

    return guarded(explain)


def find_backend(section: AnnotateSection) -> type[CaptionBackend]:
    """The class of the backend that a section `annotate` names; raises UserError if it does not exist."""
    path = BACKENDS.get(section.backend, section.backend)
    backend = load_class(path, "judge", FLAG)
    if not (isinstance(backend, type) and issubclass(backend, CaptionBackend)):
        raise UserError(f"the judge {path!r} must be a subclass of CaptionBackend ({FLAG})")
    if missing := sorted(backend.__abstractmethods__):
        told = [f"{name}: {inspect.getdoc(getattr(backend, name))}".split("\n")[0].rstrip(".") for name in missing]
        raise UserError(f"the judge {path!r} does not define {'; '.join(told)} ({FLAG}, docs/annotation.md)")
    return backend


def make_judge(
    section: AnnotateSection, texts: Texts, seed: int, one: bool = False, verdicts: bool = False
) -> CaptionBackend:
    """The judge that a section `annotate` names, see `CaptionBackend`; raises UserError if it cannot be made."""
    kind = find_backend(section)
    with user_code(section.backend):
        return kind(section, texts, seed, one, verdicts)


def check_backend(backend: CaptionBackend) -> None:
    """Raises UserError for values that cannot work, without opening the judge."""
    with user_code(backend.section.backend):
        backend.check()
        shares = {"tie_margin": (backend.tie_margin, 0.5), "both_orders": (backend.both_orders, 1.0)}
    for name, (share, most) in shares.items():
        if not is_number(share, most):
            raise UserError(
                f"{name} of the judge {backend.section.backend!r} must be a number from 0 to {most:g}, not "
                f"{shown(share)} ({FLAG})"
            )


def needs_of(backend: CaptionBackend) -> list[Need]:
    """What the judge needs from outside."""
    with user_code(backend.section.backend):
        return backend.needs()


def opened(backend: CaptionBackend) -> Annotator:
    """Opens a judge in this process."""
    name = backend.section.backend
    with user_code(name):
        annotator = backend.open()
    return annotator if name in BACKENDS else UserAnnotator(name, annotator)


OpenBackend = Callable[[CaptionBackend], Annotator]  # `opened`, another process, or a stand-in of tests


class UserAnnotator(Annotator):
    """What a user's judge has opened: its errors name the judge, and its answers are checked."""

    def __init__(self, backend: str, annotator: Any):
        """`backend`: module:Class. Raises UserError if the object is not an annotator."""
        self._backend, self._annotator = backend, annotator
        with user_code(backend):
            model = getattr(annotator, "model", None)
            methods = [getattr(annotator, name, None) for name in ("answers", "close")]
        if not (isinstance(model, str) and all(map(callable, methods))):
            raise UserError(
                f"`open` of the judge {backend!r} must return an object with the text `model` and the methods "
                f"`answers` and `close`, not {shown(annotator)} ({FLAG})"
            )
        self.model = model

    def answers(self, questions: Iterable[Question | None]) -> Iterator[tuple[Question, QuestionAnswer]]:
        with user_code(self._backend):
            draws = Draws(self._annotator.answers(questions))
        while True:
            with user_code(self._backend):
                answered = draws.next()
            if not draws.more:
                return
            yield self._checked(answered)

    def close(self) -> None:
        with user_code(self._backend):
            self._annotator.close()

    def _checked(self, answered: Any) -> tuple[Question, QuestionAnswer]:
        """A question and its answer in Python's own types; raises UserCodeError if it is something else."""
        match answered:
            case (Question(str(), str() | None) as question, QuestionAnswer() as answer):
                yes, said, mass, *tokens, refused = answer
                problem = "" if yes is None or is_number(yes) else f"yes = {shown(yes)}, not None or from 0 to 1"
                if not (isinstance(said, str) and is_number(mass) and all(is_number(one, 2**31) for one in tokens)):
                    problem = "a field of the wrong type or range"
            case _:
                problem = "something else than a Question and its QuestionAnswer"
        if problem:
            sentence = f"the judge {self._backend!r} answered with {problem} ({FLAG})"
            raise UserCodeError(sentence, f"The answer: {repr(answered)[:LONGEST_ANSWER]}")
        plain: dict[str, Any] = dict(zip(TOKENS, map(int, tokens), strict=True))
        plain |= {"yes": None if yes is None else float(yes), "mass": float(mass), "refused": bool(refused)}
        return question, answer._replace(**plain)


def is_number(value: object, most: float = 1.0) -> bool:
    """Whether a user's value is a number from 0 to `most`; not for NaN or an array."""
    return isinstance(value, float | int | np.floating | np.integer | np.bool_) and bool(0 <= value <= most)


def open_judge(
    backend: CaptionBackend, cache_dir: str | None, counts: AskingCounts,
    open_backend: OpenBackend = opened, rated_together: int = 0,
) -> Asking:  # fmt: skip
    """Opens a judge, whose answers are counted in `counts`. `rated_together`: see `Ratings`.

    `cache_dir`: the folder of all caches; "": answers are kept in memory only; None: not at all.
    """
    annotator = open_backend(backend)
    try:
        cache = Path(cache_dir).expanduser() if cache_dir else None
        cached = backend.is_model and cache_dir is not None  # rules are faster than a cache
        answers = AnswerCache(backend.cache_metadata(annotator.model), cache) if cached else None
        if backend.rates:
            return Ratings(annotator, answers, counts, rated_together)
        return Asking(annotator, answers, counts)
    except BaseException:
        annotator.close()
        raise


# ---- names, keys and options


def name_annotation(section: AnnotateSection) -> str:
    """A name like published ones, from model, captions, goal and prompt, which does not depend on this machine."""
    kind, goal = find_backend(section), section.goal
    if issubclass(kind, Oracle):
        return section.backend
    if is_sentence(goal):  # shortened, with a hash
        goal = f"{slug(goal)}-{hashlib.sha256(goal.encode()).hexdigest()[:4]}"
    judge = section.model if issubclass(kind, Prompted) and not kind.by_rules else ""
    name = f"{slug(judge or section.backend)}_{section.captions}_{goal}"
    if issubclass(kind, Rules):
        return f"{name}_{slug(section.lexicon.removesuffix('.toml'))}" if section.lexicon else name
    if not issubclass(kind, Prompted):
        return name
    prompt = "default" if section.prompt == "auto" else section.prompt
    if issubclass(kind, Model):
        prompt = RATE if section.mode == "rate" else section.prompt
    if section.prompt_file:
        prompt = slug(section.prompt_file.removesuffix(".toml"))
    return f"{name}_{prompt}" if section.mode in ("reason", prompt) else f"{name}_{prompt}_{section.mode}"


def server_key(server: ServerSection) -> str:
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


def check_server(server: ServerSection) -> None:
    """Raises UserError for an address, a key's variable or further fields that cannot work, without connecting."""
    from motif_jax.annotation.client import KEY, URL
    from motif_jax.system.http import check_address

    check_address(server.url, URL, KEY)
    server_key(server)
    read_json(server.extra, "server.extra")


def read_json(text: str, name: str) -> dict[str, Any]:
    """Parses options in a JSON object; "" means no options. `name` is the flag, for errors."""
    with legible(f"{shown(text)} as JSON", f"--config.annotate.{name}"):
        return parse_foreign_json((text or "{}").encode())

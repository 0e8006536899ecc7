"""The config's section annotate. Loads nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field

from motif_jax.annotation.prompts import MODES, VERSIONS
from motif_jax.config.table import MANY_SECONDS, NAME, NAME_LIST, PATH, Flag, Number, Text, Whole, value
from motif_jax.language.chat import FORMATS
from motif_jax.names import BACKENDS
from motif_jax.preferences.questions import KINDS

DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")  # of vLLM


@dataclass(frozen=True)
class SamplingSection:
    """Sampling of answers in mode reason."""

    temperature: float = value(0.1, Number(0, 1000), "temperature", decides=True)
    top_p: float = value(0.95, Number(0, 1, above=True), "probability mass to draw tokens from", decides=True)
    top_k: int = value(50, Whole(-1), "number of tokens to draw from; vllm and model only; -1: all", decides=True)
    max_tokens: int = value(
        1024,
        Whole(1, 10_000_000),
        "maximum tokens of an answer",
        decides=True,
        differs="an analysis has at most 1,024 tokens (`max_tokens`) rather than 4,096",
    )


@dataclass(frozen=True)
class Vllm:
    """The backend vllm."""

    tensor_parallel: int = value(1, Whole(1, 1024), "GPUs per copy of the model")
    dtype: str = value("auto", Text(DTYPES), "type of parameters and activations", decides=True)
    quantization: str = value("", Text(longest=64), "fp8 halves the memory on recent GPUs", decides=True)
    max_model_len: int = value(4096, Whole(0, 100_000_000), "maximum tokens of prompt and answer; 0: the model's limit")
    gpu_memory_utilization: float = value(0.92, Number(0, 1, above=True), "share of the GPU's memory for vLLM")
    extra: str = value("{}", Text(longest=4000), "additional arguments of vllm.LLM, as JSON", decides=True)


@dataclass(frozen=True)
class ServerSection:
    """The backend server."""

    url: str = value("http://127.0.0.1:8000/v1", Text(longest=2000), "base URL, up to /v1")
    key_variable: str = value("MOTIF_JAX_API_KEY", Text(), "environment variable of the API key, if one is needed")
    in_flight: int = value(64, Whole(1, 10_000), "maximum number of concurrent requests")
    timeout_s: float = value(300.0, Number(0.01, MANY_SECONDS), "timeout of a request, in seconds")
    patience_s: float = value(600.0, Number(0.01, MANY_SECONDS), "seconds to retry a server that is down")
    start_s: float = value(
        0.0,
        Number(0, MANY_SECONDS),
        "seconds to wait for the server at the start of the job; 0: 1,800 while its port is closed or it is busy, as a "
        "model may be loaded, otherwise 30",
    )
    prefill: bool = value(False, Flag(), "mode score: begin the answer with '(', only vLLM's server can", decides=True)
    extra: str = value("{}", Text(longest=4000), "more fields of the request, as JSON; null removes one", decides=True)


@dataclass(frozen=True)
class JudgeSection:
    """The backend judge: a local server that answers by the lexicon's rules."""

    delay_s: float = value(0.05, Number(0, 60), "seconds per question, to simulate a language model")
    at_a_time: int = value(8, Whole(1, 1000), "questions that it answers in parallel")


@dataclass(frozen=True)
class AnnotateSection:
    """Preferences between the moments of pairs."""

    backend: str = value(
        "lexicon",
        Text(tuple(BACKENDS), own=True),
        "lexicon: rules; judge: the same rules behind a local server; model: a language model in this process; "
        "vllm, server: other language models; score, return, random: without captions",
        decides=True,
    )
    model: str = value(
        "",
        PATH,
        "model: a directory, a GGUF file, or smollm2; vllm: a directory or a name; server: its name for the model",
        decides=True,
    )
    mode: str = value(
        "reason",
        Text(MODES),
        "reason: an analysis, then a verdict, as published; score: probabilities of verdicts; rate: ratings of single "
        "captions, from which the labels of pairs are computed",
        decides=True,
    )
    goal: str = value(
        "defaultgoal", Text(longest=2000), "defaultgoal, zeroknowledge, combat, gold, stairs, a sentence", decides=True
    )
    prompt: str = value("auto", Text(VERSIONS), "auto: examples for small models here, else default", decides=True)
    prompt_file: str = value("", PATH, "your own prompts, as motif_jax/envs/nethack/texts/default.toml", decides=True)
    lexicon: str = value("", PATH, "TOML file with your own rules; empty: those of the game", decides=True)
    samples: int = value(1, Whole(1, 1000), "mode reason: analyses per question, for a probability", decides=True)
    rules_temperature: float = value(
        1.0, Number(0, above=True), "lexicon: P(second is better) = sigmoid(difference of worth / this)", decides=True
    )
    system_role: bool = value(True, Flag(), "False for models whose chat template has no system role", decides=True)
    chat_format: str = value("auto", Text(("auto", *FORMATS)), "model: chat format; auto: its template's", decides=True)
    captions: str = value("msg", Text(KINDS), "messages; msg_minbl: also depth, gold, HP, level, hunger", decides=True)
    both_orders: float = value(
        0.05,
        Number(0, 1),
        "mode reason: share of the questions that are asked in both orders, beside the first 128",
        decides=True,
        differs="128 questions and 5 % of the others are asked in both orders, and all if the order decides over 5 %",
    )
    tie_margin: float = value(0.1, Number(0, 0.5), "probabilities within this distance of 1/2 are ties", decides=True)
    custom_name: str = value("", NAME, "annotation; empty: named after model, captions, goal and prompt", decides=True)
    compare_with: str = value("", NAME_LIST, "measure agreement with these annotations of the dataset: name,name")
    max_pairs: int = value(0, Whole(0, 10**12), "annotate only this many pairs, as a trial; 0: all")
    order: str = value(
        "by_caption",
        Text(("by_caption", "random", "disagreement")),
        "order of the questions: by_caption; random; disagreement: those on which small reward models "
        "disagree come first",
    )
    rounds: int = value(4, Whole(1, 1000), "order disagreement: rounds, between which the reward models are trained")
    num_shards: int = value(1, Whole(1, 99_999), "number of jobs that share the questions", decides=True)  # five digits
    shard: int = value(0, Whole(0, 99_998), "index of this job, from 0")
    merge: str = value("auto", Text(("auto", "partial")), "partial: merge the answers that exist, without asking")
    ignore_existing: bool = value(False, Flag(), "label again; with an empty cache_dir, questions are asked again, too")
    cache_dir: str = value("runs/answers", PATH, "cache of models' answers, for all experiments; empty: no cache")
    batch_size: int = value(
        2048,
        Whole(1),
        "vllm: questions per call; model: questions that are computed together, up to 256, or 32 in mode reason; both "
        "orders of a question are asked in the same batch",
    )
    sampling: SamplingSection = field(default_factory=SamplingSection)
    vllm: Vllm = field(default_factory=Vllm)
    server: ServerSection = field(default_factory=ServerSection)
    judge: JudgeSection = field(default_factory=JudgeSection)

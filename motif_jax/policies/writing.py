"""Writes a policy's next text in many conversations at a time, decoded with beta (Q - V).

All numbers of a sweep (beta, clip, temperature, top-k, top-p, factors of logits and ranks) are arguments of the
compiled program, and the number of conversations and the widths of contexts are padded to few sizes. So a sweep of beta
needs the same compiled programs as one beta.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from motif_jax.devices.mesh import DATA, local_mesh
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import game_seed, to_row, to_text
from motif_jax.language.generation import TokenSampling
from motif_jax.language.packing import pad_rows
from motif_jax.policies.decoding import Decoding, check_decoding
from motif_jax.policies.programs import DecodingNumbers, make_probabilities, make_program
from motif_jax.policies.values import ValueModel
from motif_jax.structs import ArraySpec, Episode, UserError
from motif_jax.transcripts.render import ConversationTokens

# Equal contexts of at least this length are read once; for shorter ones, compiling another program takes longer.
SHARED_FROM = 64
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
    """Writes with a model, and caches its compiled programs."""

    def __init__(self, model: ValueModel, as_drawn: bool = False):
        """Parameters are put on the devices at their first use.

        `as_drawn`: whether probabilities are those at the temperature of the decoding, rather than at 1.
        """
        self.model, self._as_drawn = model, as_drawn
        self.programs: dict[tuple[Any, ...], Any] = {}
        self._placed: dict[Mesh, tuple[Any, ...]] = {}

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
        model, longest = self.model, self.model.config.max_positions
        replies = [Reply("", 1.0, [], np.zeros(0, np.float32))] * len(contexts)
        going_on = [row for row, tokens in enumerate(contexts) if not longest or len(tokens) < longest]
        order = sorted(going_on, key=lambda row: len(contexts[row]))
        for start in range(0, len(order), decoding.batch_size):
            chunk = order[start : start + decoding.batch_size]
            read = [contexts[row] for row in chunk]
            equal = count_equal(read) if decoding.kind != "beam" and len(read) == decoding.batch_size else 1
            tokens, segments = pad_contexts(read[::equal], decoding.batch_size // equal)
            program = self._program(decoding)
            drawn = np.array(numbers, np.int32)[np.resize(chunk, decoding.batch_size)]
            params, (tokens, segments, drawn) = self._place(tokens, segments, drawn)
            written = program(*params, tokens, segments, key, drawn, self._numbers(decoding))
            for row, tokens_of, length, log_prob, each in zip(chunk, *map(np.asarray, written), strict=False):
                written_tokens = tokens_of[:length].tolist()
                has_end = written_tokens[-1:] == [model.renderer.stop]
                text = model.tokeniser.decode(written_tokens[: len(written_tokens) - has_end])
                replies[row] = Reply(text, float(np.exp(log_prob)), written_tokens, each[:length])
        return replies

    def probabilities(self, tokens: Sequence[int], decoding: Decoding) -> Probabilities:
        """Probabilities of the next token along a conversation, cut to the model's context.

        Temperature, top-k and top-p are not used.
        """
        model = self.model
        tokens = tokens[: model.config.max_positions or None]
        if (key := ("probabilities",)) not in self.programs:
            self.programs[key] = jax.jit(make_probabilities(model))
        params, (padded, segments) = self._place(*pad_contexts([tokens], 1))
        arrays = self.programs[key](*params, padded, segments, self._numbers(decoding))
        policy, shifted, advantage = (np.asarray(array)[: len(tokens)] for array in arrays)
        return Probabilities(policy, shifted, advantage if model.recipe.per_token else None)

    def name_of(self, token: int) -> str:
        """A token for display: its text, or "end" for the agent's end mark."""
        return "end" if token == self.model.renderer.stop else self.model.tokeniser.decode([token])

    def _place(self, *rows: np.ndarray) -> tuple[tuple[Any, ...], Any]:
        """Places the parameters and shards arrays [B, ...] over this host's devices if B allows it."""
        mesh = local_mesh(len(rows[0]))
        if mesh not in self._placed:
            model = self.model
            copies = NamedSharding(mesh, PartitionSpec())
            self._placed[mesh] = jax.device_put((model.policy, model.target, model.online), copies)
        return self._placed[mesh], jax.device_put(rows, NamedSharding(mesh, PartitionSpec(DATA)))

    def _numbers(self, decoding: Decoding) -> DecodingNumbers:
        temperature, logits = 0.0 if decoding.kind == "greedy" else decoding.temperature, float(decoding.include_logits)
        if self._as_drawn and temperature:
            temperature, logits = 1.0, logits / temperature
        sampling = TokenSampling(jnp.float32(temperature), jnp.int32(decoding.top_k), jnp.float32(decoding.top_p))
        ranks = decoding.rerank_values, decoding.rerank_log_prob
        wanted = decoding.wanted_return / self.model.reward_scale
        return DecodingNumbers(sampling, *map(jnp.float32, (logits, decoding.beta, decoding.clip, *ranks, wanted)))

    def _program(self, decoding: Decoding) -> Any:
        kind = "sample" if decoding.kind == "greedy" else decoding.kind  # a temperature of 0
        count = {"beam": decoding.beams, "rerank": decoding.candidates}.get(kind, 1)
        key = kind, count, decoding.max_tokens, bool(np.isfinite(decoding.clip))
        if key not in self.programs:
            self.programs[key] = jax.jit(make_program(self.model, *key))
        return self.programs[key]


def count_equal(contexts: Sequence[Sequence[int]]) -> int:
    """The largest of 8, 4 and 2 such that each run of that many neighbours has one long context; otherwise 1.

    The contexts that remain must be divisible among this host's devices.
    """
    for times in (8, 4, 2) if len(contexts[0]) >= SHARED_FROM else ():
        firsts = [row - row % times for row in range(len(contexts))]
        divisible = len(contexts) % (times * jax.local_device_count()) == 0
        if divisible and all(contexts[row] == contexts[first] for row, first in enumerate(firsts)):
            return times
    return 1


def pad_contexts(contexts: Sequence[Sequence[int]], num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and segments of a batch, padded with copies of the rows. [num_rows, L] each"""
    return pad_rows([contexts[row % len(contexts)] for row in range(num_rows)], WIDTHS)


# Plays text worlds: keeps the conversation of every game, and lets a policy write its next text.

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
    renderer, games, talks, played = writer.model.renderer, [], [], []
    for number in episodes:
        games.append(world.game(shown=False))
        games[-1].begin(game_seed(seed, stream, number), number)
        talks.append(ConversationTokens(renderer, games[-1].heard, longest, decoding.max_tokens))
    texts, log_probs = ([[before] * len(talk.tokens) for talk in talks] for before in (NOT_WRITTEN, 0.0))
    turn = 0
    while playing := [at for at, game in enumerate(games) if not game.end]:
        contexts = [talks[at].context() for at in playing]
        written = writer.write(contexts, decoding, jax.random.fold_in(key, turn), playing)
        world.expect([reply.text for reply in written])
        for at, reply in zip(playing, written, strict=True):
            games[at].say(reply.text)
            mark = [] if reply.tokens[-1:] == [renderer.stop] else [renderer.stop]
            talks[at].said(reply.tokens + mark)
            after = mark + talks[at].heard(games[at].heard)
            texts[at] += [turn] * len(reply.tokens) + [NOT_WRITTEN] * len(after)
            log_probs[at] += reply.log_probs.tolist() + [0.0] * len(after)
        turn += 1
    for game, talk, *rest in zip(games, talks, texts, log_probs, strict=True):
        played.append(Played._make((game.record(), talk.tokens, *rest)))
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

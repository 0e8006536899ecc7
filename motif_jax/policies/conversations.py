"""Plays text worlds: keeps the conversation of every game, and lets a policy write its next text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from motif_jax.envs.seeding import game_seed
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import to_row, to_text
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.writing import ValueWriter
from motif_jax.structs import ArraySpec, Episode
from motif_jax.transcripts.live import ConversationTokens

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
    texts: list[list[int]] = []
    log_probs: list[list[float]] = []
    for number in episodes:
        game = world.game(shown=False)
        game.begin(game_seed(seed, stream, number), number)
        games.append(game)
        talks.append(ConversationTokens(renderer, game.heard, longest, decoding.max_tokens))
        texts.append([NOT_WRITTEN] * len(talks[-1].tokens))
        log_probs.append([0.0] * len(talks[-1].tokens))
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
        """See `actors.acting.BatchedPolicy`; the writer pads by itself."""
        return count

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

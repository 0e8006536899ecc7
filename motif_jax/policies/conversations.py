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
    return [game.episode for game in play_tokens(world, writer, decoding, episodes, jax.random.key(seed), seed, stream)]


def play_tokens(
    world: TextWorld, writer: ValueWriter, decoding: Decoding, episodes: Iterable[int], key: jax.Array, seed: int,
    stream: int,
) -> list[Played]:  # fmt: skip
    """Plays episodes side by side in this process, and keeps their tokens.

    The episodes' numbers, seed and stream determine the games; `key` samples episodes of the same number differently.
    """
    renderer, games, tokens, found = writer.model.renderer, [], [], []
    texts: list[list[int]] = []
    log_probs: list[list[float]] = []
    for number in episodes:
        game = world.game(shown=False)
        game.begin(game_seed(seed, stream, number), number)
        games.append(game)
        tokens.append(renderer.begin(game.heard))
        texts.append([NOT_WRITTEN] * len(tokens[-1]))
        log_probs.append([0.0] * len(tokens[-1]))
    turn = 0
    while playing := [at for at, game in enumerate(games) if not game.end]:
        written = writer.write([tokens[at] for at in playing], decoding, jax.random.fold_in(key, turn), playing)
        world.expect([reply.text for reply in written])
        for at, reply in zip(playing, written, strict=True):
            games[at].say(reply.text)
            ended = reply.tokens[-1:] == [renderer.stop]
            after = ([] if ended else [renderer.stop]) + renderer.heard(games[at].heard)
            tokens[at] += reply.tokens + after
            texts[at] += [turn] * len(reply.tokens) + [NOT_WRITTEN] * len(after)
            log_probs[at] += reply.log_probs.tolist() + [0.0] * len(after)
        turn += 1
    for game, *rest in zip(games, tokens, texts, log_probs, strict=True):
        found.append(Played._make((game.record(), *rest)))
        game.close()
    return found


class WritingPlayer:
    """An `inference.BatchedPolicy` whose actions are texts.

    When the model's context is full, the conversation begins anew from the world's last text.
    """

    reads: tuple[str, ...] = ("heard",)

    def __init__(self, writer: ValueWriter, decoding: Decoding, width: int, num_games: int, seed: int):
        """Begins without conversations. `width`: bytes of an action."""
        self.outputs = {"probability": ArraySpec((), "float32")}  # probability of the whole text
        self.starts: dict[str, ArraySpec] = {}
        self._writer, self._decoding, self._width = writer, decoding, width
        self._tokens: list[list[int]] = [[] for _ in range(num_games)]
        self._key, self._calls = jax.random.key(seed), 0

    def room(self, count: int) -> int:
        """See `inference.BatchedPolicy`; the writer pads by itself."""
        return count

    def __call__(
        self, observations: dict[str, np.ndarray], first: np.ndarray, games: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        renderer = self._writer.model.renderer
        for row, game in enumerate(games.tolist()):
            heard = to_text(observations["heard"][row].tolist())
            longer = self._tokens[game] + renderer.heard(heard)
            self._tokens[game] = renderer.begin(heard) if first[row] or self._is_full(longer) else longer
        key, numbers = jax.random.fold_in(self._key, self._calls), games.tolist()
        self._calls += 1
        written = self._writer.write([self._tokens[game] for game in numbers], self._decoding, key, numbers)
        actions = np.stack([to_row(reply.text, self._width) for reply in written])
        for game, action in zip(games.tolist(), actions, strict=True):
            self._tokens[game] = self._tokens[game] + renderer.said(to_text(action.tolist()))  # possibly cut to `width`
        return actions, {"probability": np.array([reply.probability for reply in written], np.float32)}

    def _is_full(self, tokens: list[int]) -> bool:
        longest = self._writer.model.config.max_positions
        return 0 < longest < len(tokens) + self._decoding.max_tokens

"""Plays text worlds: keeps the conversation of every game, and lets a policy write its next text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from motif_jax.envs.seeding import game_seed
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import to_row, to_text
from motif_jax.policies.decoding import Decoding
from motif_jax.policies.writing import ValueWriter
from motif_jax.structs import ArraySpec, Episode


def play_games(
    world: TextWorld, writer: ValueWriter, decoding: Decoding, episodes: Iterable[int], *, seed: int, stream: int
) -> list[Episode]:
    """Plays episodes side by side in this process, without a pool.

    Args:
      world: the text world.
      writer, decoding: the policy.
      episodes: numbers of the episodes, which determine the games together with seed and stream.
      seed, stream: as for a pool; the policy samples with the same seed.
    """
    renderer, games, tokens, found = writer.model.renderer, [], [], []
    for number in episodes:
        game = world.game(shown=False)
        game.begin(game_seed(seed, stream, number), number)
        games.append(game)
        tokens.append(renderer.begin(game.heard))
    key, turn = jax.random.key(seed), 0
    while playing := [at for at, game in enumerate(games) if not game.end]:
        written = writer.write([tokens[at] for at in playing], decoding, jax.random.fold_in(key, turn), playing)
        world.expect([text for text, _ in written])
        for at, (text, _) in zip(playing, written, strict=True):
            said = len(games[at].turns)
            games[at].say(text)
            for one in games[at].turns[said:]:  # texts as the world stores them, possibly cut
                tokens[at] = tokens[at] + (renderer.said(one.text) if one.is_action else renderer.heard(one.text))
        turn += 1
    for game in games:
        found.append(game.record())
        game.close()
    return found


class WritingPlayer:
    """An `inference.BatchedPolicy` whose actions are texts."""

    reads: tuple[str, ...] = ("heard",)

    def __init__(self, writer: ValueWriter, decoding: Decoding, width: int, num_games: int, seed: int):
        """Begins without conversations.

        Args:
          writer, decoding: the policy.
          width: bytes of an action.
          num_games: games of the pool.
          seed: for sampling.
        """
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
        """See `inference.BatchedPolicy`."""
        renderer = self._writer.model.renderer
        for row, game in enumerate(games.tolist()):
            heard = to_text(observations["heard"][row].tolist())
            self._tokens[game] = renderer.begin(heard) if first[row] else self._tokens[game] + renderer.heard(heard)
        key, numbers = jax.random.fold_in(self._key, self._calls), games.tolist()
        self._calls += 1
        written = self._writer.write([self._tokens[game] for game in numbers], self._decoding, key, numbers)
        actions = np.stack([to_row(text, self._width) for text, _ in written])
        for game, action in zip(games.tolist(), actions, strict=True):
            self._tokens[game] = self._tokens[game] + renderer.said(to_text(action.tolist()))  # possibly cut to `width`
        return actions, {"probability": np.array([odds for _, odds in written], np.float32)}

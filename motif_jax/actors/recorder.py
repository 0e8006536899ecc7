"""Records the frames of an episode: during playback, or in the worker if the game cannot be played back.

A game that is not reproducible (`episodes/playback.py` tests it) is recorded in its worker: `RecordedGame` writes a
file per episode, which the parent reads and removes when the episode's steps arrive.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.actors.players import ScriptedPlayers
from motif_jax.captions import WIDTH
from motif_jax.envs.own_code import WORLD_FLAG
from motif_jax.envs.text_game import TextGame
from motif_jax.envs.text_world import TextWorld
from motif_jax.envs.world import SCREEN_SHAPE, GameSeed, SeedStream, game_seed
from motif_jax.structs import Episode, UserError

MOST_BYTES = 8 * 2**20  # of an episode's packed frames; larger episodes have captions, but no replay
MOST_PICTURES = 2**27  # bytes of an episode's pictures; all are dropped beyond this
MOST_CAPTIONS = 2**16  # distinct captions counted per episode; the events are unknown beyond this


class RecordedFrames:
    """The frames of one episode: screens, captions, and pictures where the game has them."""

    def __init__(self, game: Any, most_bytes: float = float("inf")):
        """Records the game's current state as the first frame; past `most_bytes` all frames are dropped."""
        self._game, self._left = game, most_bytes
        self._picture: Callable[[], bytes] = getattr(game, "picture", bytes)
        self._left_of_pictures = MOST_PICTURES
        self._frames: list[tuple[bytes, bytes, np.ndarray, bytes, int]] = []  # screen, picture, cursor, message, count
        self._rewards: list[float] = []
        self.captions: collections.Counter[bytes] = collections.Counter()  # of all frames but the first
        self._show()

    def step(self, action: Any) -> float:
        reward = self._game.step(action)
        caption = caption_of(self._game)
        if caption in self.captions or len(self.captions) < MOST_CAPTIONS:
            self.captions[caption] += 1
        if self._left >= 0:
            self._rewards.append(reward)
            self._show()
        return reward

    def _show(self) -> None:
        screen = [np.asarray(part) for part in self._game.screen()]
        if [part.shape for part in screen] != [SCREEN_SHAPE, SCREEN_SHAPE, (2,)]:
            raise UserError(
                f"the screen of a game must be characters and colours of shape {SCREEN_SHAPE}, and a cursor of shape "
                f"(2,), not {', '.join(str(part.shape) for part in screen)} ({WORLD_FLAG})"
            )
        chars, colors, cursor = (part.astype(np.uint8) for part in screen)
        packed, picture = zlib.compress(chars.tobytes() + colors.tobytes(), 1), self._picture()
        self._left -= len(packed) + len(picture) + WIDTH
        self._left_of_pictures -= len(picture)
        self._frames.append((packed, picture, cursor, caption_of(self._game), self._game.message_count))
        if picture and self.too_many_pictures:  # all are dropped: an empty picture would repeat the one before it
            self._frames = [(frame[0], b"", *frame[2:]) for frame in self._frames]
            self._picture = bytes
        if self._left < 0:
            self._frames, self._rewards = [], []

    @property
    def too_many_pictures(self) -> bool:
        """Whether the episode had more than MOST_PICTURES bytes of pictures, and so has none."""
        return self._left_of_pictures < 0

    def packed(self) -> dict[str, np.ndarray] | None:
        """All frames, for `unpacked`; None if there were too many bytes."""
        if self._left < 0:
            return None
        screens, pictures, cursors, messages, counts = zip(*self._frames, strict=True)
        padded = b"".join(message.ljust(WIDTH, b"\0") for message in messages)
        arrays: dict[str, np.ndarray] = {
            **_joined("screen", screens), "cursor": np.array(cursors, np.uint8),
            "message": np.frombuffer(padded, np.uint8).reshape(-1, WIDTH), "count": np.array(counts, np.int32),
            "reward": np.array(self._rewards, np.float32),
        }  # fmt: skip
        return arrays | (_joined("picture", pictures) if any(pictures) else {})


def _joined(name: str, parts: Sequence[bytes]) -> dict[str, np.ndarray]:
    """The concatenated parts, and the end of each."""
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return {f"{name}s": np.frombuffer(b"".join(parts), np.uint8), f"{name}_ends": ends}


def unpacked(packed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a replay (`replays/replay.py`) that come from the game."""
    arrays = dict(packed)
    data, ends = arrays.pop("screens").tobytes(), arrays.pop("screen_ends").tolist()
    frames = b"".join(zlib.decompress(data[start:end]) for start, end in itertools.pairwise([0, *ends]))
    screens = np.frombuffer(frames, np.uint8).reshape(-1, 2, *SCREEN_SHAPE)
    return arrays | {"chars": screens[:, 0], "colors": screens[:, 1]}


class RecordedGame:
    """A wrapper of a worker's game that records its episodes."""

    def __init__(self, game: Any, folder: Path):
        self._game, self._folder = game, folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._game, name)

    def reset(self, seed: GameSeed, episode: int = 0) -> None:
        self._game.reset(seed, episode)
        self._file = file_of(self._folder, episode)
        self._frames = RecordedFrames(self._game, MOST_BYTES)

    def step(self, action: Any) -> float:
        reward = self._frames.step(action)
        if self._game.end:
            captions = self._frames.captions
            arrays: dict[str, Any] = {
                "cause": np.frombuffer(str(getattr(self._game, "cause", "")).encode(), np.uint8),
                "captions": np.frombuffer(b"".join(text.ljust(WIDTH, b"\0") for text in captions), np.uint8),
                "times": np.array(list(captions.values()), np.int64),
                **(self._frames.packed() or {}),
            }
            partial = self._file.with_name(f"partial-{self._file.name}")
            np.savez(partial, **arrays)  # neither compressed nor synced: during this the worker seems to hang
            partial.replace(self._file)
        return reward


def caption_of(game: Any) -> bytes:
    """The game's current message; raises UserError if a user's world gives anything but bytes."""
    message = game.message
    if not isinstance(message, bytes) or len(message) > WIDTH:
        raise UserError(f"the message of a game must be at most {WIDTH} bytes, not {message!r:.80} ({WORLD_FLAG})")
    return message


def file_of(folder: Path, episode: int) -> Path:
    """The recording of an episode."""
    return folder / f"episode-{episode}.npz"


# ---- text worlds with scripted players: without workers and arrays, but the same games as in a pool for COLLECT

# A branch's seed follows from its number, which is beyond those of episodes.
FIRST_BRANCH, BRANCHES = 2**50, 2**10  # number of the first branch; more than an episode's branches


def play_episodes(world: TextWorld, player: str, episodes: Iterable[int], *, seed: int) -> Iterator[Episode]:
    """Plays episodes one after another; numbers and seed determine the games. `player`: as for `parse_scripted`."""
    players = ScriptedPlayers(player, world, 1)
    with contextlib.closing(world.game(shown=False)) as game:
        for number in episodes:
            _begin(game, players, number, seed)
            _go_on(game, players)
            yield game.record()


def play_branches(
    world: TextWorld, expert: str, other: str, episodes: Iterable[int], *, per_moment: int = 1, seed: int
) -> Iterator[Episode]:
    """Plays each episode with one player, and branches off before each of its texts with another.

    So the values of the same state can be compared between the two players. `per_moment`: branches from each state.

    Yields:
      The expert's episode, then its branches. Their `info` has `episode`; `branch`, the number of the branch from 1 on,
      or 0 for the expert's episode; and `shared`, the number of first turns in common with the expert's episode.
    """
    experts, others = ScriptedPlayers(expert, world, 1), ScriptedPlayers(other, world, 1)
    with contextlib.closing(world.game(shown=False)) as game:
        for number in episodes:
            _begin(game, experts, number, seed)
            states = []
            while not game.end:
                states.append(game.state())
                game.say(experts.choose(0, game))
            yield game.record(shared=0, branch=0)
            starts = (state for state in states for _ in range(per_moment))
            for branch, start in enumerate(starts, 1):
                if branch >= BRANCHES:  # its seed would be that of another episode's branch
                    raise UserError(f"an episode has at most {BRANCHES - 1:,} branches (--config.collect.branches)")
                own = game_seed(seed, SeedStream.COLLECT, FIRST_BRANCH + number * BRANCHES + branch)
                others.begin(0, own)
                game.begin(own, number)
                game.set_state(start)
                _go_on(game, others)
                yield game.record(shared=len(start.turns), branch=branch)


def _begin(game: TextGame, players: ScriptedPlayers, number: int, seed: int) -> None:
    seeds = game_seed(seed, SeedStream.COLLECT, number)
    players.begin(0, seeds)
    game.begin(seeds, number)


def _go_on(game: TextGame, players: ScriptedPlayers) -> None:
    while not game.end:
        game.say(players.choose(0, game))

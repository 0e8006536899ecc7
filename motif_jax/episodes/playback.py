"""Plays episodes again from their seed and actions, to count what happened in them and to record every frame.

So evaluation transfers no screens, keeps a few bytes per step (`Track`), and chooses afterwards which episodes to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import WIDTH, decode
from motif_jax.envs.nethack import ACTION_NAMES
from motif_jax.envs.observations import FRAME, Frames, frame_keys
from motif_jax.envs.seeding import SeedStream, game_seed
from motif_jax.envs.vector import Game, GameSettings
from motif_jax.files import read_arrays, write_whole
from motif_jax.replays.replay import Replay
from motif_jax.structs import EndStatus, EpisodeInfo, UserError

SCREEN = ("tty_chars", "tty_colors", "tty_cursor")


class Track(NamedTuple):
    """Data kept for each step of an episode. [T] each"""

    action: np.ndarray  # int32
    value: np.ndarray  # what the policy expected; NaN for scripted players, as below. float32
    probability: np.ndarray  # of the action
    z: np.ndarray  # normalised learnt reward; NaN without one
    intrinsic: np.ndarray  # learnt reward that the agent receives, before its coefficient


class EpisodeEvents(NamedTuple):
    """What happened in an episode, in addition to the figures in `EpisodeInfo`."""

    cause: str  # of death; "" if the agent did not die
    did: dict[str, int] | None  # how often each kind of event happened; None if unknown


class EventCounter:
    """Plays episodes again and counts the events in them; use it as a context manager."""

    def __init__(self, settings: GameSettings, seed: int, happenings: Callable[[str], list[str]]):
        """Takes the settings and the seed with which the episodes were played, and what a message tells."""
        self._settings, self._seed, self._happenings = settings, seed, happenings
        self._game: Game | None = None
        self._known: dict[bytes, list[str]] = {}  # the events that a message reports

    def __enter__(self) -> EventCounter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._game is not None:
            self._game.close()

    def describe(self, info: EpisodeInfo, actions: np.ndarray) -> EpisodeEvents | None:
        """Counts the events of an episode; None if it comes out differently, as a non-deterministic custom game may."""
        if self._game is None:
            self._game = make_game(self._settings)
        did: dict[str, int] = {}
        begin(self._game, self._seed, info.episode)
        for action in actions.tolist():
            if self._game.end:  # it ended earlier than the first time
                return None
            self._game.step(action)
            message = self._game.message
            if message not in self._known:
                self._known[message] = self._happenings(decode(np.frombuffer(message, np.uint8)))
            for name in self._known[message]:
                did[name] = did.get(name, 0) + 1
        if self._game.info() != info:
            return None
        return EpisodeEvents(getattr(self._game, "cause", ""), did)


def make_game(settings: GameSettings, more: Iterable[str] = ()) -> Game:
    """Makes a game whose frames have the arrays that it needs itself, and `more`."""
    keys = dict.fromkeys((*frame_keys((), settings.screen), *more))
    return settings.make(Frames(1, keys).views(0))


def begin(game: Game, seed: int, episode: int) -> None:
    """Starts an episode of evaluation."""
    game.reset(game_seed(seed, SeedStream.EVALUATE, episode), episode)


def figures_of(info: EpisodeInfo) -> dict[str, Any]:
    """The figures of an episode, as in its line of `episodes.jsonl`."""
    return info._asdict() | {"end_status": EndStatus(info.end_status).name.lower()}


def make_replay(
    settings: GameSettings, seed: int, row: Mapping[str, Any], track: Track, about: Mapping[str, Any]
) -> Replay | None:
    """Plays an episode again and records every frame; None if it comes out differently.

    Args:
      settings, seed: those with which it was played.
      row: its line of `episodes.jsonl`.
      track: its steps.
      about: further entries of `Replay.about`, such as the player.
    """
    game = make_game(settings, SCREEN)
    steps = len(track.action)
    chars, colors = (np.zeros((steps + 1, *FRAME[key].shape), np.uint8) for key in SCREEN[:2])
    cursor, message = np.zeros((steps + 1, 2), np.uint8), np.zeros((steps + 1, WIDTH), np.uint8)
    count, reward = np.zeros(steps + 1, np.int32), np.zeros(steps, np.float32)

    def show(at: int) -> None:
        frame = game.last_frame if game.end else game.buffers
        chars[at], colors[at], cursor[at] = (frame[key] for key in SCREEN)
        message[at] = np.frombuffer(game.message.ljust(WIDTH, b"\0"), np.uint8)
        count[at] = game.message_count

    try:
        begin(game, seed, row["episode"])
        show(0)
        for step, action in enumerate(track.action.tolist()):
            if game.end:
                return None
            reward[step] = game.step(action)
            show(step + 1)
        info = game.info()
    finally:
        game.close()
    if any(row[name] != value for name, value in figures_of(info).items()):
        return None
    names = ACTION_NAMES if settings.num_actions == len(ACTION_NAMES) else map(str, range(settings.num_actions))
    facts = {"episode": row["episode"], "end": row["end_status"], "cause": row["cause"], "task": settings.task}
    facts |= {"action_names": list(names), "figures": dict(row)}
    return Replay(
        {**about, **facts}, chars, colors, cursor, message, count, track.action, reward,
        track.z, track.intrinsic, track.value, track.probability,
    )  # fmt: skip


def write_tracks(file: Path, tracks: Mapping[int, Track]) -> None:
    """Writes the steps of episodes, by episode number, to one file."""
    numbers = sorted(tracks)
    arrays: dict[str, Any] = {"episode": np.array(numbers, np.int64)}
    arrays |= {"steps": np.array([len(tracks[number].action) for number in numbers], np.int64)}
    for name in Track._fields:
        dtype = np.int32 if name == "action" else np.float32
        arrays[name] = np.concatenate([np.zeros(0, dtype), *(getattr(tracks[number], name) for number in numbers)])
    write_whole(file, lambda out: np.savez_compressed(out, **arrays))


def read_tracks(file: Path) -> dict[int, Track]:
    """Reads a file of `write_tracks`; an empty dictionary if the file does not exist."""
    if not file.is_file():
        return {}
    try:
        arrays = read_arrays(file, ("episode", "steps", *Track._fields))
        ends = np.cumsum(arrays["steps"])
        parts = {name: np.split(arrays[name], ends) for name in Track._fields}  # the last of each is empty
        if any(len(chunks[-1]) or len(arrays[name]) != arrays["steps"].sum() for name, chunks in parts.items()):
            raise ValueError("arrays of different lengths")
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{str(file)!r} is damaged ({error}): remove its directory (--workdir)") from error
    return {
        number: Track(*(parts[name][at] for name in Track._fields))
        for at, number in enumerate(arrays["episode"].tolist())
    }

"""The steps of evaluated episodes, and two ways to their events and frames.

A game that repeats is played again from its seed and actions (`PlayedAgain`). So evaluation transfers no screens, keeps
a few bytes per step (`Track`), and chooses afterwards which episodes to show. Any other is recorded by its worker while
it is played (`Recorded`).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import random
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.actors.recorder import MOST_PICTURES, RecordedFrames, caption_of, file_of, unpacked
from motif_jax.actors.worker import Ended, FilledSlot
from motif_jax.captions import WIDTH, decode
from motif_jax.console import print_line
from motif_jax.envs.own_code import owner, reported
from motif_jax.envs.world import WAIT, Game, SeedStream, World, game_seed, is_text, spell, to_text
from motif_jax.envs.worlds import make_world, title
from motif_jax.files import write_whole
from motif_jax.replays.replay import LONGEST, Replay
from motif_jax.screens import printable
from motif_jax.structs import EndStatus, EpisodeInfo, Turn

EPISODES, STEPS = 3, 70  # number of test episodes, and most steps of each
EVENTS = ("cause", "captions", "times")  # in a recording; the rest is its frames
# The events of an episode in `episodes.jsonl`: the cause of its end, and the number of events by kind. Here unknown.
UNKNOWN: dict[str, Any] = {"cause": "", "did": None}

Row = Mapping[str, Any]  # a line of `episodes.jsonl`


class Track(NamedTuple):
    """Data kept for each step of an episode. [T] each"""

    action: np.ndarray  # int32; texts: [T, bytes] uint8 (`world.to_row`); several choices or numbers: [T, D]
    value: np.ndarray  # the policy's value estimate. float32, like the rest; NaN if missing
    probability: np.ndarray  # of the action
    z: np.ndarray  # normalised learnt reward
    intrinsic: np.ndarray  # learnt reward that the agent receives, before its coefficient
    odds: np.ndarray | None = None  # probabilities of all actions, if they are few. [T, A]
    chooser: np.ndarray | None = None  # the number of who chose the action, if there are several. int32


class EpisodeMessages(NamedTuple):
    """The messages of an episode: the first, and one after each step. [T + 1] each"""

    messages: list[bytes]
    still: list[bool]  # whether the step changed none of the world's figures


Happenings = Callable[[str], Iterable[str]]  # a message -> the names of the events that it reports


def begin(game: Game, seed: int, episode: int) -> None:
    """Starts an episode of evaluation."""
    game.reset(game_seed(seed, SeedStream.EVALUATE, episode), episode)


def play_again(game: Game, seed: int, episode: int, actions: np.ndarray) -> Iterator[None]:
    """Begins an episode and plays actions until it ends, possibly earlier than before; yields before and after each."""
    begin(game, seed, episode)
    yield
    for action in actions.tolist():
        if game.end:
            break
        game.step(action)
        yield


def messages_of(
    env: Mapping[str, Any], seed: int, rows: Iterable[Row], tracks: Mapping[int, Track]
) -> Iterator[EpisodeMessages | None]:
    """Plays the episodes of these rows again and yields the messages of each; None if one is not the same."""
    with reported(env):
        world = make_world(env)
        with contextlib.closing(world.game(shown=False)) as game:
            for row in rows:
                messages, figures = [], []
                for _ in play_again(game, seed, row["episode"], tracks[row["episode"]].action):
                    messages.append(caption_of(game))
                    figures.append(game.info().figures)
                same = len(messages) == row["steps"] + 1 and is_same(row, game.info(), world.figures)
                still = [False, *(before == after for before, after in itertools.pairwise(figures))]
                yield EpisodeMessages(messages, still) if same else None


def is_same(row: Row, info: EpisodeInfo, figures: Iterable[str]) -> bool:
    """Whether an episode that was played again has ended as its line of `episodes.jsonl` says."""
    figures_now = figures_of(info, figures)
    return all(row.get(name) in (value, None) for name, value in figures_now.items())  # None: not recorded


def figures_of(info: EpisodeInfo, figures: Iterable[str]) -> dict[str, Any]:
    """The values of an episode as in `episodes.jsonl`; `figures` are the names of the world's figures."""
    return info.named(figures) | {"end_status": EndStatus(info.end_status).name.lower()}


# ---- two ways to the events and the frames of an evaluated episode; a world has one


class PlayedAgain:
    """Games that repeat: episodes are played again from their seed and actions, so nothing is kept beside these."""

    folder = ""  # where workers record episodes; "": they do not

    def __init__(self, env: Mapping[str, Any], seed: int, happenings: Happenings):
        self._env, self._seed, self._happenings = dict(env), seed, happenings
        self._game: Game | None = None

    def close(self) -> None:
        game, self._game = self._game, None
        if game is not None:
            with reported(self._env):
                game.close()

    def events(self, info: EpisodeInfo, actions: np.ndarray) -> dict[str, Any]:
        """The cause of the end of an episode that has just been played, and its events; unknown if they differ."""
        with reported(self._env):
            game = self._open()
            moments = play_again(game, self._seed, info.episode, actions)
            next(moments)  # its first message is of no step
            captions = collections.Counter(caption_of(game) for _ in moments)
            if game.info() != info:
                return UNKNOWN
            return {"cause": game.cause, "did": count_events(captions, self._happenings)}

    def _open(self) -> Any:
        if self._game is None:
            self._game = make_world(self._env).game(shown=False)
        return self._game

    def turns(self, episode: int, track: Track) -> list[Turn]:
        """The conversation of an episode in a world of texts."""
        with reported(self._env):
            for _ in play_again(self._open(), self._seed, episode, track.action):
                pass
            return self._open().turns

    def forget(self, episode: int) -> None:
        """Called for an episode that is not wanted, such as one that was played before."""

    def keep(self, episodes: Collection[int]) -> None:
        """Of the episodes so far, only these may be asked for with `replay`."""

    def save(self) -> None:
        """Called before the rows and tracks of all episodes so far are written."""

    def remove_others(self) -> None:
        """Called once they are on disk: the episodes that are not to be kept are not needed any more."""

    def replay(self, row: Row, track: Track, metadata: Mapping[str, Any]) -> Replay | str:
        """An episode with every frame, and with further `metadata`; or why there is none: the episode "has ..."."""
        if row["steps"] > LONGEST:
            return f"has {row['steps']:,} steps, more than can be shown"
        self.close()  # some games can exist only once in a process
        with reported(self._env):
            world = make_world(self._env)
            with contextlib.closing(world.game()) as game:
                begin(game, self._seed, row["episode"])
                frames = RecordedFrames(game)
                for action in track.action.tolist():
                    if game.end:
                        break
                    frames.step(action)
                info = game.info()
        if not is_same(row, info, world.figures):
            return "cannot be repeated exactly"
        packed = frames.packed()
        assert packed is not None  # there is no limit
        if frames.too_many_pictures:
            print_line(
                f"no pictures in the replay of episode {row['episode']}: they have more than {MOST_PICTURES:,} bytes"
            )
        return replay_of(self._env, row, track, metadata, packed)


class Recorded:
    """Games that do not repeat: workers record episodes while they play, and the recordings to keep lie in `kept`."""

    def __init__(self, env: Mapping[str, Any], happenings: Happenings, kept: Path):
        self._env, self._happenings, self._kept = dict(env), happenings, kept
        self._temporary = tempfile.TemporaryDirectory(prefix="motif_jax-")
        self.folder = self._temporary.name
        self._frames: dict[int, dict[str, Any]] = {}  # of the episodes to keep that are not in `kept` yet
        self._wanted: set[int] = set()

    def close(self) -> None:
        self._temporary.cleanup()

    def events(self, info: EpisodeInfo, actions: np.ndarray) -> dict[str, Any]:
        file = file_of(Path(self.folder), info.episode)
        if not file.is_file():
            return UNKNOWN
        with np.load(file) as archive:
            arrays = dict(archive)
        cause, captions, times = (arrays.pop(name) for name in EVENTS)
        if times.sum() != len(actions):  # it is from an earlier attempt at this episode, whose worker died
            return UNKNOWN
        file.unlink()
        file_of(self._kept, info.episode).unlink(missing_ok=True)  # of an attempt before a kill
        if arrays:  # the frames, unless they were too many
            self._frames[info.episode] = arrays
        texts = [row.tobytes().rstrip(b"\0") for row in captions.reshape(-1, WIDTH)]
        counted = dict(zip(texts, times.tolist(), strict=True))
        return {"cause": cause.tobytes().decode(), "did": count_events(counted, self._happenings)}

    def forget(self, episode: int) -> None:
        file_of(Path(self.folder), episode).unlink(missing_ok=True)

    def keep(self, episodes: Collection[int]) -> None:
        self._wanted = {*episodes}
        self._frames = {number: frames for number, frames in self._frames.items() if number in self._wanted}

    def save(self) -> None:
        for number, frames in self._frames.items():
            write_whole(file_of(self._kept, number), functools.partial(np.savez, **frames))
        self._frames.clear()

    def remove_others(self) -> None:
        for file in {*self._kept.glob("*")} - {file_of(self._kept, number) for number in self._wanted}:
            file.unlink()

    def replay(self, row: Row, track: Track, metadata: Mapping[str, Any]) -> Replay | str:
        frames, file = self._frames.get(row["episode"]), file_of(self._kept, row["episode"])
        if frames is None and file.is_file():
            with np.load(file) as archive:
                frames = dict(archive)
        if frames is None:
            return "was not recorded, or has too many frames"
        return replay_of(self._env, row, track, metadata, frames)


Frames = PlayedAgain | Recorded


def count_events(captions: Mapping[bytes, int], happenings: Happenings) -> dict[str, int]:
    """The number of events by kind, from the number of times of each message."""
    did: collections.Counter[str] = collections.Counter()
    for message, times in captions.items():
        for name in happenings(decode(np.frombuffer(message, np.uint8))):
            did[name] += times
    return dict(did)


def replay_of(
    env: Mapping[str, Any], row: Row, track: Track, metadata: Mapping[str, Any], packed: Mapping[str, Any]
) -> Replay:
    """Makes a replay of an episode from its frames (`recorder.RecordedFrames.packed`)."""
    world = make_world(env)
    action, names = track.action, list(world.action_names)
    if is_text(world.action):
        action, names = numbered([printable(to_text(row)) for row in track.action.tolist()])
    elif track.action.ndim > 1:
        action, names = numbered([spell(row) for row in track.action])
    own = {
        "episode": row["episode"], "end": row["end_status"], "cause": row["cause"], "task": title(env),
        "action_names": names, "figures": dict(row),
    }  # fmt: skip
    return Replay({**metadata, **own}, **track._replace(action=action)._asdict(), **unpacked(packed))


def numbered(texts: list[str]) -> tuple[np.ndarray, list[str]]:
    """Actions in the format of a replay: an index per step, [T] int32, and the distinct texts."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return np.array([numbers[text] for text in texts], np.int32), list(numbers)


def write_tracks(file: Path, tracks: Mapping[int, Track]) -> None:
    """Writes the steps of episodes, by number, to one file; a column is left out unless all episodes have it."""
    numbers = sorted(tracks)
    arrays: dict[str, Any] = {"episode": np.array(numbers, np.int64)}
    arrays |= {"steps": np.array([len(tracks[number].action) for number in numbers], np.int64)}
    for name in Track._fields:
        parts = [getattr(tracks[number], name) for number in numbers]
        shapes = {np.shape(part)[1:] if part is not None else None for part in parts}
        if len(shapes) == 1 and None not in shapes:
            arrays[name] = np.concatenate(parts)
    write_whole(file, lambda out: np.savez_compressed(out, **arrays))


def read_tracks(file: Path) -> dict[int, Track]:
    """Reads a file of `write_tracks`; an empty dictionary if the file does not exist."""
    if not file.is_file():
        return {}
    with np.load(file) as archive:
        arrays = dict(archive)
    ends = np.cumsum(arrays["steps"])
    parts = {name: np.split(array, ends) for name, array in arrays.items() if name in Track._fields}
    return {
        number: Track(**{name: chunks[at] for name, chunks in parts.items()})
        for at, number in enumerate(arrays["episode"].tolist())
    }


# ---- tests whether a game repeats


def plays_the_same_twice(env: Mapping[str, Any], seed: int, beside: bool) -> bool:
    """Whether a short piece of the user's game is the same when it is played twice with the same seed and actions.

    Always True for the program's own games, which have tests. `beside`: workers play several games. Then another game
    runs beside the second play, which reveals games that share a source of randomness.
    """
    if owner(env) is None:
        return True
    with reported(env):
        world = make_world(env)
        return all(
            _play(world, seed, episode, beside=False) == _play(world, seed, episode, beside)
            for episode in range(EPISODES)
        )


def _play(world: World, seed: int, episode: int, beside: bool) -> list[Any]:
    """Plays a short piece of an episode; returns what is seen at each step, and the state at the end."""
    rng, frames, reward = random.Random(episode), [], 0.0

    def draw(game: Any, rng: random.Random) -> Any:
        return game.draw(rng.random()) if world.action.shape else rng.randrange(len(world.action_names))

    def make() -> Any:
        game = world.game(shown=False)
        if hasattr(game, "seen"):  # observations, which contain more than a screen
            return game
        game.close()
        return world.game()

    with contextlib.ExitStack() as stack:
        game, *others = (stack.enter_context(contextlib.closing(make())) for _ in range(1 + beside))
        for number, one in enumerate((game, *others)):
            begin(one, seed, episode + EPISODES * number)
        for step in range(STEPS):
            seen = game.seen.values() if hasattr(game, "seen") else game.screen()
            arrays = [np.asarray(array).tobytes() for array in seen]
            frames.append([caption_of(game), game.message_count, reward, *arrays])
            if game.end:
                break
            reward = game.step(draw(game, rng))
            for other in others:
                if other.end:
                    begin(other, seed, EPISODES + episode)
                other.step(draw(other, random.Random(step)))
        return [*frames, game.info(), game.end, game.cause]


# ---- assembles complete episodes from rollouts


StepArrays = dict[str, np.ndarray]  # one row per step of an episode. [T, ...] each


class Pieces:
    """Collects the steps of every game until its episode ends."""

    def __init__(self) -> None:
        # By worker, group and game: arrays of the open episode's steps, in parts.
        self._open: dict[tuple[int, int, int], list[StepArrays]] = {}

    def take(
        self, full: FilledSlot, rows: Mapping[str, np.ndarray], first: np.ndarray, ended: Iterable[Ended]
    ) -> list[tuple[EpisodeInfo, StepArrays]]:
        """Appends a rollout's steps to their episodes; returns summary and steps of each episode that ended.

        `rows`: arrays of the rollout, by name, [T, E, ...]. `first`: whether its first step begins an episode, [E].
        `ended`: episodes that ended in it.
        """
        games = [(full.worker, full.group, game) for game in range(len(first))]
        # An episode whose worker died is played again, so its steps are dropped.
        parts = [[] if begins else self._open[game] for game, begins in zip(games, first, strict=True)]
        start, finished = [0] * len(first), []

        def keep(game: int, stop: int | None) -> list[StepArrays]:
            parts[game].append({key: array[start[game] : stop, game].copy() for key, array in rows.items()})
            return parts[game]

        for step, game, info in ended:
            chunks = keep(game, step + 1)
            steps = {key: np.concatenate([one[key] for one in chunks]) for key in rows}
            if (actions := steps.get("action")) is not None and actions.ndim == 1:  # without the steps of waiting
                steps = {key: array[actions != WAIT] for key, array in steps.items()}
            finished.append((info, steps))
            parts[game], start[game] = [], step + 1
        for game, key in enumerate(games):
            self._open[key] = keep(game, None)
        return finished

"""A recorded episode, frame by frame, with actions and rewards, in one file.

Frame 0 is the first screen of the episode, frame t + 1 the screen after action t.
"""

from __future__ import annotations

import collections
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from motif_jax.captions import decode
from motif_jax.files import write_whole
from motif_jax.screens import REVERSED, SHOWN, printable
from motif_jax.structs import legible
from motif_jax.system.foreign import check_regular, parse_foreign_json
from motif_jax.system.machine import read_arrays

if TYPE_CHECKING:
    from PIL.Image import Image

ROWS, COLUMNS = 24, 80
LONGEST = 200_000  # steps; each takes 4 kB of memory
LARGEST = 2**30  # bytes of a replay's arrays; more than LONGEST steps need
SIDE = 1024  # maximum pixels on a side of a replay's picture


class Replay(NamedTuple):
    """An episode of T steps."""

    metadata: dict[str, Any]  # player, task, episode, end, cause, action_names, threshold, ...: `episodes/playback.py`
    chars: np.ndarray  # [T + 1, 24, 80] uint8
    colors: np.ndarray  # [T + 1, 24, 80] uint8, 0..15, from 16 on reversed
    cursor: np.ndarray  # row and column. [T + 1, 2] uint8
    message: np.ndarray  # [T + 1, 256] uint8
    count: np.ndarray  # type: ignore[assignment]  # times that the episode has shown this message so far. [T + 1] int32
    action: np.ndarray  # [T] int32
    reward: np.ndarray  # the game's. [T] float32
    z: np.ndarray  # normalised learnt reward of the message after the action; NaN without one. [T] float32
    intrinsic: np.ndarray  # learnt reward that the agent receives, before its coefficient; NaN likewise. [T] float32
    value: np.ndarray  # the policy's value estimate before the action; NaN for scripted players. [T] float32
    probability: np.ndarray  # of the action under the policy; NaN likewise. [T] float32
    odds: np.ndarray | None = None  # probabilities of all actions, if few and known. [T, A] float32
    chooser: np.ndarray | None = None  # who chose the action, an index into about["choosers"]. [T] int32
    pictures: np.ndarray | None = None  # concatenated WebP images of the game, if it has any. uint8
    picture_ends: np.ndarray | None = None  # end of each frame's image; empty: like the previous. [T + 1] int64

    @property
    def steps(self) -> int:
        return len(self.action)

    @property
    def is_late(self) -> bool:
        """Whether a step is rewarded for the message before its action (`policy.reference_alignment`)."""
        return bool(self.metadata.get("one_step_late"))

    def picture(self, frame: int) -> bytes:
        """The picture of a frame, in WebP; b"" without pictures."""
        if self.pictures is None or self.picture_ends is None:
            return b""
        ends = self.picture_ends[: frame + 1]
        at = int(np.searchsorted(ends, ends[-1]))  # the last frame whose picture is not empty
        return self.pictures[ends[at - 1] if at else 0 : ends[at]].tobytes()

    @property
    def title(self) -> str:
        return f"{self.metadata['player']}, episode {self.metadata['episode']}"

    @property
    def ending(self) -> str:
        """The end of the episode in a few words."""
        end = self.metadata["end"]
        return str(self.metadata["cause"] or END_WORDS.get(end, end or "not over"))

    @property
    def chosen(self) -> str:
        """The recorded reasons for choosing this episode, or ""."""
        return ", ".join(map(str, self.metadata["chosen"]))

    @property
    def rewarded_by(self) -> str:
        """The reward that is shown beside the game's: "learnt", or another word."""
        return str(self.metadata.get("rewarded_by", "learnt"))

    @property
    def choosers(self) -> list[str]:
        """The names of those that may have chosen an action, if the player consists of several."""
        names = self.metadata.get("choosers")
        return list(map(str, names)) if isinstance(names, list) else []

    def action_name(self, step: int) -> str:
        """The action at this step, and who of several chose it; "" before the first and after the last step."""
        if not 0 <= step < self.steps:
            return ""
        name = _name(int(self.action[step]), self.metadata["action_names"], "action")
        return name if self.chooser is None else f"{name} ({_name(int(self.chooser[step]), self.choosers, 'chooser')})"

    def message_text(self, frame: int) -> str:
        return decode(self.message[frame]).strip()


def _name(number: int, names: Sequence[Any], kind: str) -> str:
    return str(names[number]) if 0 <= number < len(names) else f"{kind} {number}"


class TopMessage(NamedTuple):
    """A message of an episode, with its count and its reward."""

    text: str
    times: int
    z: float  # normalised learnt reward; NaN without one


ARRAYS: dict[str, tuple[str, int, tuple[int, ...]]] = {  # dtype, rows beyond those of the steps, shape of a row
    "chars": ("uint8", 1, (ROWS, COLUMNS)), "colors": ("uint8", 1, (ROWS, COLUMNS)), "cursor": ("uint8", 1, (2,)),
    "message": ("uint8", 1, (256,)), "count": ("int32", 1, ()), "action": ("int32", 0, ()),
    "reward": ("float32", 0, ()), "z": ("float32", 0, ()), "intrinsic": ("float32", 0, ()),
    "value": ("float32", 0, ()), "probability": ("float32", 0, ()),
}  # fmt: skip
OPTIONAL = ("odds", "chooser", "pictures", "picture_ends")
METADATA = {
    "player": str, "task": str, "episode": int, "chosen": list, "end": str, "cause": str, "action_names": list,
    "figures": dict,
}  # fmt: skip


def save_replay(path: Path, replay: Replay) -> None:
    """Writes a replay to a file, atomically."""
    arrays = {name: getattr(replay, name) for name in (*ARRAYS, *OPTIONAL) if getattr(replay, name) is not None}
    metadata = np.frombuffer(json.dumps(replay.metadata).encode(), np.uint8)
    write_whole(path, lambda file: np.savez_compressed(file, about=metadata, **arrays))


def load_replay(path: Path, flag: str) -> Replay:
    """Reads and checks a replay; errors name `flag`."""
    with legible(f"the replay {str(path)!r}", flag, KeyError, TypeError):
        check_regular(path)
        arrays = read_arrays(path, ("about", *ARRAYS), optional=OPTIONAL, limit=LARGEST)
        metadata = parse_foreign_json(arrays.pop("about").tobytes())
        _check(metadata, arrays)
    return Replay(metadata, **arrays)


def _check(metadata: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError unless these are the metadata and the arrays of a replay."""
    steps, pictures = arrays["action"].size, arrays.get("pictures", np.empty(0)).size
    wanted = {name: (dtype, (steps + more, *shape)) for name, (dtype, more, shape) in ARRAYS.items()}
    wanted |= {"odds": ("float32", (steps, len(metadata["action_names"]))), "chooser": ("int32", (steps,))}
    wanted |= {"pictures": ("uint8", (pictures,)), "picture_ends": ("int64", (steps + 1,))}
    wrong = {name for name, array in arrays.items() if (str(array.dtype), array.shape) != wanted[name]}
    wrong |= {name for name, kind in METADATA.items() if not isinstance(metadata[name], kind)}
    ends = np.append(0, arrays.get("picture_ends", 0))
    together = ("pictures" in arrays) == ("picture_ends" in arrays)
    if wrong or not together or np.diff(ends).min() < 0 or ends[-1] != pictures:
        raise ValueError(f"it is damaged ({', '.join(sorted(wrong)) or 'pictures'})")


def open_picture(packed: bytes) -> Image:
    """Decodes a WebP picture from any source; raises UserError if it is damaged, of another format, or too large."""
    from PIL import Image

    readable = legible("a picture of a replay", "", SyntaxError, Image.DecompressionBombError)
    with readable, Image.open(io.BytesIO(packed), formats=["WEBP"]) as picture:
        if max(picture.size) > SIDE:
            raise ValueError(f"it has more than {SIDE} pixels on a side")
        return picture.convert("RGB")


def top_messages(replay: Replay, number: int = 100) -> list[TopMessage]:
    """The messages of the episode's steps, most frequent first."""
    after = 0 if replay.is_late else 1  # the frame whose message a step is rewarded for
    keys = [message.tobytes() for message in replay.message[after : after + replay.steps]]
    first = {key: step for step, key in reversed([*enumerate(keys)])}
    top = collections.Counter(keys).most_common(number)  # in the order of their first steps, if equally frequent
    return [TopMessage(decode(np.frombuffer(key, np.uint8)), times, float(replay.z[first[key]])) for key, times in top]


# Sums, top messages and texts of an episode for the viewer, computed once.

END_WORDS = {
    "death": "died", "ended": "ended", "aborted": "stopped by the time limit", "task_successful": "reached the goal",
}  # fmt: skip
BARS = "▁▂▃▄▅▆▇█"
LEAST = 0.01  # rewards below this share of the episode's largest are not highlighted
PENALTY = 0.1  # the game's rewards below this are not highlighted: penalties for steps without game time
BLOCK = 1000  # frames processed together, to save memory
LEAST_ROWS = 8  # so that the list of messages fits
COMMON = ("episode", "steps", "episode_return", "end_status", "success", "intrinsic_return")  # every world's figures


class Story(NamedTuple):
    """An episode and its sums; frame t + 1 follows action t."""

    replay: Replay
    earned: np.ndarray  # sum of the game's reward so far. [T + 1] float64
    gained: np.ndarray  # sum of the learnt reward so far. [T + 1] float64
    learnt: bool  # whether the episode has a learnt reward
    rewards: np.ndarray  # for the bars: learnt, or else the game's; small ones are 0. [T + 1] float64
    rewarded: np.ndarray  # frames where `rewards` is not 0. int64
    top: list[TopMessage]
    rows: int  # rows of the screen that the game uses in the episode


def describe(replay: Replay) -> Story:
    """Computes the story of a replay."""
    intrinsic = np.concatenate([[0.0], np.nan_to_num(replay.intrinsic.astype(np.float64))])
    extrinsic = np.concatenate([[0.0], np.nan_to_num(replay.reward.astype(np.float64))])
    earned, gained = np.cumsum(extrinsic), np.cumsum(intrinsic)
    learnt = bool(np.isfinite(replay.intrinsic).any())
    rewards = intrinsic if learnt else extrinsic
    rewards[np.abs(rewards) < max(LEAST * np.abs(rewards).max(), 0.0 if learnt else PENALTY)] = 0
    rewarded, top, rows = np.flatnonzero(rewards), top_messages(replay), LEAST_ROWS
    for start in range(0, len(replay.chars), BLOCK):
        chars, colors = replay.chars[start : start + BLOCK], replay.colors[start : start + BLOCK]
        seen = (SHOWN[chars] != ord(" ")) | (colors >= REVERSED)
        rows = max(int(np.flatnonzero(seen.any((0, 2))).max(initial=0)) + 1, rows)
    return Story(replay, earned, gained, learnt, rewards, rewarded, top, rows)


def number(value: float) -> str:
    """Formats a reward or a sum of rewards; "-" if it is not finite."""
    if not np.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    places = 0 if abs(value) >= 10_000 else 2 if abs(value) >= 0.1 else 3
    return f"{value:+,.{places}f}"


def bars(rewards: np.ndarray, width: int, frame: int) -> tuple[list[tuple[str, float]], int]:
    """The whole episode in `width` parts: the bar and the value of the reward with the largest magnitude in each.

    Returns the parts, and the index of the one with this frame. Bars grow with the square root of the reward, because
    the first times of a message have much higher rewards than later ones.
    """
    edges = np.linspace(0, len(rewards), width + 1).astype(int)
    parts = [rewards[start : max(end, start + 1)] for start, end in itertools.pairwise(edges)]
    most = [max(part, key=abs, default=0.0) for part in parts]
    scale = float(np.abs(rewards).max(initial=0.0)) or 1.0
    levels = [int(np.ceil((abs(value) / scale) ** 0.5 * len(BARS))) for value in map(float, most)]
    shown = [(BARS[max(level - 1, 0)], float(value)) for level, value in zip(levels, most, strict=True)]
    return shown, int(np.searchsorted(edges, frame, side="right")) - 1


def summary(story: Story, messages: int) -> str:
    """Summarises the episode in a few lines of text and its most frequent `messages` messages."""
    replay = story.replay
    lines = [f"{replay.title}: {replay.ending} after {replay.steps:,} steps"]
    parts = [f"return of the game {number(story.earned[-1])}"]
    parts += [f"{replay.rewarded_by} {number(story.gained[-1])}"] * story.learnt
    parts += [
        f"{name.replace('_', ' ')} {value:,}"
        for name, value in replay.metadata["figures"].items()
        if name not in COMMON and type(value) in (int, float)
    ]
    lines.append(", ".join(parts))
    if story.top and messages:
        lines += ["", f"{'times':>7}  {'reward':>7}  message"]
        lines += [f"{top.times:7,}  {number(top.z):>7}  {top.text.strip() or '(none)'}" for top in story.top[:messages]]
    return "\n".join(map(printable, lines))  # without control characters, which could move the cursor

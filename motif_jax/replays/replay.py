"""A recorded episode, frame by frame, with actions and rewards, in one file.

Frame 0 is the first screen of the episode, frame t + 1 the screen after action t.
"""

from __future__ import annotations

import collections
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.captions import decode
from motif_jax.files import write_whole
from motif_jax.structs import UserError
from motif_jax.system.arrays import read_arrays

ROWS, COLUMNS = 24, 80
LONGEST = 200_000  # steps; each takes 4 kB of memory
LARGEST = 2**30  # bytes of a replay's arrays; more than LONGEST steps need


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
    charge: np.ndarray | None = None  # the option that chose the action, an index into about["options"]. [T] int32
    pictures: np.ndarray | None = None  # concatenated WebP images of the game, if it has any. uint8
    picture_ends: np.ndarray | None = None  # end of each frame's image; empty: like the previous. [T + 1] int64

    @property
    def steps(self) -> int:
        """T, the number of steps."""
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
        """The player's name and the number of the episode."""
        return f"{self.metadata['player']}, episode {self.metadata['episode']}"


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
OPTIONAL = ("odds", "charge", "pictures", "picture_ends")
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
    if not os.path.isfile(path):  # False for a name that is too long
        raise UserError(f"there is no replay {str(path)!r} ({flag})")
    try:
        arrays = read_arrays(path, ("about", *ARRAYS), optional=OPTIONAL, limit=LARGEST)
        metadata = json.loads(arrays.pop("about").tobytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{str(path)!r} is not a replay, or is damaged ({error}): remove it, or see {flag}") from error
    if not isinstance(metadata, dict) or not all(isinstance(metadata.get(key), kind) for key, kind in METADATA.items()):
        raise UserError(f"{str(path)!r} is not a replay: its metadata is incomplete ({flag})")
    steps, nothing = arrays["action"].size, np.zeros(0)
    wanted = {name: (dtype, (steps + more, *shape)) for name, (dtype, more, shape) in ARRAYS.items()}
    wanted |= {"odds": ("float32", (steps, len(metadata["action_names"]))), "charge": ("int32", (steps,))}
    wanted |= {"pictures": ("uint8", (arrays.get("pictures", nothing).size,)), "picture_ends": ("int64", (steps + 1,))}
    for name, array in arrays.items():
        if (str(array.dtype), array.shape) != wanted[name]:
            raise UserError(f"{str(path)!r} is not a replay: its {name!r} is {array.dtype} {array.shape} ({flag})")
    ends = arrays.get("picture_ends")
    if (ends is None) != ("pictures" not in arrays) or (
        ends is not None and (np.diff(ends, prepend=0).min() < 0 or ends[-1] != arrays["pictures"].size)
    ):
        raise UserError(f"{str(path)!r} is not a replay: its pictures are damaged ({flag})")
    return Replay(metadata, **arrays)


def top_messages(replay: Replay, number: int = 100) -> list[TopMessage]:
    """Returns the most frequent messages of the episode's steps, most frequent first."""
    after = 0 if replay.is_late else 1  # the frame whose message a step is rewarded for
    keys = [message.tobytes() for message in replay.message[after : after + replay.steps]]
    first = {key: step for step, key in reversed([*enumerate(keys)])}
    top = collections.Counter(keys).most_common(number)  # in the order of their first steps, if equally frequent
    return [
        TopMessage(decode(replay.message[first[key] + after]), times, float(replay.z[first[key]])) for key, times in top
    ]

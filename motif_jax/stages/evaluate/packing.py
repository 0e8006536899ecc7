"""Replays as pages hold them; a thousand steps of an episode take about ten kilobytes.

A packed replay is zlib's deflate, in base64, of

    chars, colors    [T + 1, 24 * 80] uint8: the first frame, then each frame XOR the one before
    reward, z, intrinsic, value, probability    [T] float32
    odds             [T, A] float32: probabilities of all actions; A = 0 if they are not known
    count, message   [T + 1] int32: how often the message was seen, and its index in `messages`
    action           [T] int32
    charge           [T] int32: the option that chose the action, an index into `options`; missing without options
    picture          [T + 1] int32: index of the frame's picture in `pictures`; -1: no picture
    cursor           [T + 1, 2] uint8

concatenated, little-endian. assets/player.js unpacks it in the browser.
"""

from __future__ import annotations

import base64
import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.captions import decode
from motif_jax.pages.formats import exact
from motif_jax.pages.player import PackedReplay
from motif_jax.replays.bitmaps import open_picture
from motif_jax.replays.replay import COLUMNS, Replay, load_replay
from motif_jax.replays.story import option_names, rewarded_by
from motif_jax.screens import REVERSED, SHOWN
from motif_jax.stages.evaluate.summary import END_NAMES
from motif_jax.structs import EndStatus

PICTURES = 300  # of a replay in a page
PICTURE_SIDE, PICTURE_QUALITY = 240, 70  # pixels, and of WebP's 100: about 5 kB for a picture
FLOATS = ("reward", "z", "intrinsic", "value", "probability")
GOAL = EndStatus.TASK_SUCCESSFUL.name.lower()


def packed_replay(file: Path, player: str) -> PackedReplay:
    """A replay for the report; `player`: the name of who plays."""
    replay = load_replay(file, "--workdir")
    return PackedReplay(named(player, replay), replay.steps, replay.about["end"] == GOAL, pack(replay))


def named(player: str, replay: Replay) -> str:
    """The title of a replay: player, episode, reason of choice, returns, end."""
    about = replay.about
    words = [player, f"episode {about['episode']}"]
    words += [str(word) for word in about["chosen"] if not str(word).isdigit()]
    words.append(f"return {exact(float(replay.reward.sum()))}")
    if not np.isnan(replay.intrinsic).all():
        words.append(f"{rewarded_by(about)} {exact(float(np.nansum(replay.intrinsic)))}")
    words.append(str(about["cause"] or END_NAMES[about["end"]]))
    return " · ".join(words)


def pack(replay: Replay) -> dict[str, Any]:
    """A replay as the page stores it; the module's docstring describes `packed`."""
    numbers: dict[bytes, int] = {}
    message = [numbers.setdefault(line.tobytes(), len(numbers)) for line in replay.message]
    blank = (SHOWN[replay.chars] == ord(" ")) & (replay.colors < REVERSED)  # its colour is invisible
    parts = [delta(SHOWN[replay.chars]), delta(np.where(blank, 0, replay.colors).astype(np.uint8))]
    parts += [getattr(replay, name).astype("<f4") for name in FLOATS]
    odds = np.zeros((replay.steps, 0)) if replay.odds is None else replay.odds
    parts += [odds.astype("<f4")]
    pictures, picture = page_pictures(replay)
    parts += [replay.count.astype("<i4"), np.array(message, "<i4"), replay.action.astype("<i4")]
    parts += [] if replay.charge is None else [replay.charge.astype("<i4")]
    parts += [picture.astype("<i4"), replay.cursor]
    packed = zlib.compress(b"".join(part.tobytes() for part in parts), 9)
    return {
        "steps": replay.steps,
        "known": odds.shape[1],
        "actions": [str(name) for name in replay.about["action_names"]],
        "options": None if replay.charge is None else option_names(replay),
        "messages": [decode(np.frombuffer(line, np.uint8)) for line in numbers],
        "pictures": [base64.b64encode(one).decode() for one in pictures],
        "box": used_box(replay),
        "packed": base64.b64encode(packed).decode(),
    }


def page_pictures(replay: Replay) -> tuple[list[bytes], np.ndarray]:
    """The distinct pictures of a replay, and the index of each frame's picture. [T + 1] int32

    They are encoded again from their pixels, smaller. If there are more than PICTURES, every second, third, ... of them
    is kept.
    """
    numbers = np.full(replay.steps + 1, -1, np.int32)
    found: list[bytes] = []
    if replay.picture_ends is None:
        return found, numbers
    own = np.flatnonzero(np.diff(replay.picture_ends, prepend=0))
    for at in own[:: -(-len(own) // PICTURES) or 1]:
        numbers[at:] = len(found)
        found.append(page_picture(replay.picture(int(at))))
    return found, numbers


def page_picture(packed: bytes) -> bytes:
    """A picture of a replay as the page shows it."""
    picture = open_picture(packed)
    picture.thumbnail((PICTURE_SIDE, PICTURE_SIDE))
    out = io.BytesIO()
    picture.save(out, "WEBP", quality=PICTURE_QUALITY, method=2)
    return out.getvalue()


def used_box(replay: Replay) -> list[int]:
    """The used box of the screen over all frames: top, left, height, width; zeros for an empty screen.

    The first two rows are left out if they repeat the message, which the page shows below the screen.
    """
    seen = ((SHOWN[replay.chars] != ord(" ")) | (replay.colors >= REVERSED)).any(0)
    said = SHOWN[replay.message[:, : 2 * COLUMNS]].reshape(-1, 2, COLUMNS)
    if np.array_equal(SHOWN[replay.chars[:, :2]], said):
        seen[:2] = False
    if not seen.any():
        return [0, 0, 0, 0]
    (top, bottom), (left, right) = (np.flatnonzero(seen.any(axis))[[0, -1]].tolist() for axis in (1, 0))
    return [top, left, bottom + 1 - top, right + 1 - left]


def delta(frames: np.ndarray) -> np.ndarray:
    """Each frame XOR the one before; the first frame is unchanged. [T + 1, 24, 80] uint8"""
    changed = frames.copy()
    changed[1:] ^= frames[:-1]
    return changed

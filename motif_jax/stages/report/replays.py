"""The report's replay player; a thousand steps of an episode take about ten kilobytes.

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.captions import decode
from motif_jax.pages.blocks import data_script
from motif_jax.pages.formats import esc, exact
from motif_jax.replays.bitmaps import open_picture
from motif_jax.replays.replay import COLUMNS, Replay, load_replay
from motif_jax.replays.story import option_names, rewarded_by
from motif_jax.screens import PALETTE, REVERSED, SHOWN
from motif_jax.stages.evaluate.summary import END_NAMES
from motif_jax.stages.report.found import checked
from motif_jax.stages.report.head import label
from motif_jax.stages.report.parts import EvaluatedPlayer
from motif_jax.structs import EndStatus

SPEEDS = (1, 2, 5, 10, 20, 50, 100)  # steps per second
USUAL = 10
GOAL = EndStatus.TASK_SUCCESSFUL.name.lower()
FEW = 5  # steps; shorter episodes are not shown first
REACHED = 3  # the same for episodes that reached their goal
PICTURES = 300  # of a replay in a page
PICTURE_SIDE, PICTURE_QUALITY = 240, 70  # pixels, and of WebP's 100: about 5 kB for a picture
FLOATS = ("reward", "z", "intrinsic", "value", "probability")


def choose(players: Sequence[EvaluatedPlayer], most: int) -> list[tuple[EvaluatedPlayer, Path]]:
    """At most `most` replays: those of the workdir's policy first, then those of the other players in turn."""
    own = [(player, file) for player in players if player.path == "." for file in player.replays]
    others = [player.replays for player in players if player.path != "."]
    rest = [player for player in players if player.path != "."]
    turns = [
        (player, files[turn])
        for turn in range(max(map(len, others), default=0))
        for player, files in zip(rest, others, strict=True)
        if turn < len(files)
    ]
    return (own + turns)[:most]


def of_replays(chosen: Sequence[tuple[EvaluatedPlayer, Path]]) -> list[str]:
    """The replay player and its data, as HTML."""
    options, data = [], []
    replays = [load_replay(file, "--workdir") for _, file in chosen]
    own = [number for number, (player, _) in enumerate(chosen) if player is chosen[0][0]]
    first = own[most_telling([replays[number] for number in own])]
    for number, ((player, file), replay) in enumerate(zip(chosen, replays, strict=True)):
        with checked(file):
            name, selected = f"replay-{number}", " selected" if number == first else ""
            options.append(f'<option value="{name}"{selected}>{esc(named(player, replay))}</option>')
            data.append(data_script(name, pack(replay)))
    colours = [f"rgb({red} {green} {blue})" for red, green, blue in PALETTE]
    return [_replay_player("".join(options)), data_script("colours", colours), *data]


def most_telling(replays: Sequence[Replay]) -> int:
    """The index of the replay that is shown first.

    It is the longest that reached its goal, if that has REACHED steps; else the first with FEW steps; else the first.
    """
    reached = [replay.steps if replay.about["end"] == GOAL else 0 for replay in replays]
    if max(reached) >= REACHED:
        return reached.index(max(reached))
    return next((number for number, replay in enumerate(replays) if replay.steps >= FEW), 0)


def named(player: EvaluatedPlayer, replay: Replay) -> str:
    """The title of a replay: player, episode, reason of choice, returns, end."""
    about = replay.about
    words = [label(player), f"episode {about['episode']}"]
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

    They are encoded again from their pixels, because a replay may come from an untrusted source. If there are more than
    PICTURES, every second, third, ... of them is kept.
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
    """A picture of a replay as the page shows it; raises ValueError if it is damaged."""
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


def _replay_player(options: str) -> str:
    speeds = "".join(
        f'<option value="{speed}"{" selected" if speed == USUAL else ""}>{speed} steps/s</option>' for speed in SPEEDS
    )
    buttons = "".join(
        f'<button type="button" class="{name}" title="{esc(title)}" aria-label="{esc(title)}">{word}</button>'
        for name, title, word in (
            ("earlier", "the reward before", "« reward"), ("back", "one step back", "‹"),
            ("forward", "one step on", "›"), ("later", "the next reward", "reward »"),
        )
    )  # fmt: skip
    facts = "".join(
        f"<div><dt>{title}</dt><dd>{value}</dd></div>"
        for title, value in (
            ("the action that led here", '<span class="action">–</span><small class="chance"></small>'),
            ("learnt reward, or program's", '<span class="learnt">–</span> <small class="worth"></small>'),
            ("the same, so far", '<span class="learnt-sum of-learnt">0</span>'),
            ("the policy's value", '<span class="value">–</span>'),
            ("the game's reward", '<span class="game">–</span>'),
            ("the game's, so far", '<span class="game-sum of-game">0</span>'),
        )
    )  # fmt: skip
    return (
        '<div class="player" tabindex="0" role="group" aria-label="Replay player">'
        f'<select class="choice" aria-label="episode">{options}</select>'
        '<div class="stage"><canvas class="screen" role="img" aria-label="the game\'s screen"></canvas>'
        '<p class="message none">…</p>'
        '<canvas class="line" tabindex="0" role="slider" aria-label="step" aria-valuemin="0" aria-valuemax="0" '
        'aria-valuenow="0"></canvas>'
        f'<div class="keys"><button type="button" class="play">Play</button>{buttons}'
        f'<select class="speed" aria-label="speed">{speeds}</select>'
        '<button type="button" class="zoom" aria-pressed="false" title="follow the hero">Zoom</button>'
        '<span class="where">step <b class="step">0</b> of <span class="steps">0</span></span></div>'
        f'<dl>{facts}</dl><ol class="odds" aria-label="probabilities of the next action" hidden></ol></div>'
        '<div class="moments" hidden><p class="highest"></p><ol></ol></div>'
        '<p class="help">In the chart under the game, bars up are the learnt reward of each step, or a '
        "program's, bars down the "
        "game's reward, and negative rewards are red: click or drag. "
        "<kbd>space</kbd> plays, <kbd>←</kbd> <kbd>→</kbd> step, <kbd>↑</kbd> <kbd>↓</kbd> change the "
        "speed, <kbd>n</kbd> <kbd>p</kbd> go to rewards, <kbd>z</kbd> zooms.</p></div>"
    )

"""From a game's raw frame to the observations that are shipped.

`Frames` holds the buffers that games write into, stacked so that one NumPy call serves all games of a group.
`Observer` turns them into the requested observations. A name stands for what a player sees before the next action;
with the prefix `event_` it stands for what the last action led to, also when it ended the episode (the plain name then
already shows the next episode's first frame).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from motif_jax.structs import ArraySpec, UserError

CROP = 12  # cells on a side
HERO_ROW, HERO_COLUMN = 7, 6  # where the hero stands in the crop: terminal row = map row + 1

# What a game writes, as NLE lays it out.
FRAME = {
    "tty_chars": ArraySpec((24, 80), "uint8"),
    "tty_colors": ArraySpec((24, 80), "int8"),
    "tty_cursor": ArraySpec((2,), "uint8"),
    "glyphs": ArraySpec((21, 79), "int16"),
    "chars": ArraySpec((21, 79), "uint8"),
    "colors": ArraySpec((21, 79), "uint8"),
    "blstats": ArraySpec((27,), "int64"),
    "message": ArraySpec((256,), "uint8"),
}
BLANK = {"tty_chars": ord(" "), "tty_colors": 0, "chars": ord(" "), "colors": 0}  # screens, and what is outside them
MARGIN = 8 * 80  # blank cells before and after each screen, so that a crop can be read where the screen has ended

OBSERVATIONS = {
    "chars": ArraySpec((CROP, CROP), "uint8"),  # characters around the hero
    "colors": ArraySpec((CROP, CROP), "uint8"),  # their colours, 0..15 (16..31 reversed)
    "vector": ArraySpec((27,), "float32"),  # blstats, scaled and clipped to [-5, 5]
    "blstats": ArraySpec((27,), "int32"),  # the bottom line as the game counts; `scale_blstats` makes it a vector
    "message": ArraySpec((256,), "uint8"),
    "message_count": ArraySpec((), "int32"),  # times this message was seen in this episode, now included
    "tty_chars": ArraySpec((24, 80), "uint8"),
    "tty_colors": ArraySpec((24, 80), "int8"),
    "glyphs": ArraySpec((21, 79), "int16"),
}
EVENTS = {f"event_{key}": OBSERVATIONS[key] for key in ("blstats", "message", "message_count")}
EVENTS |= {f"event_{key}": OBSERVATIONS[key] for key in ("tty_chars", "tty_colors")}

EVENT_COUNT = "event_message_count"

POLICY_OBSERVATIONS = ("chars", "colors", "blstats", "message", "message_count", "event_message", "event_message_count")

# The published scaling: score, depth, branch, level, conditions and alignment are hidden from the policy.
BLSTATS_SCALE = np.zeros(27, np.float32)
BLSTATS_SCALE[[0, 1]] = 1 / 79, 1 / 21  # column, row
BLSTATS_SCALE[3:9] = 1 / 10  # attributes; 2 (strength percentage) stays hidden
BLSTATS_SCALE[[10, 11, 14, 15, 16, 18, 22]] = 1 / 10
BLSTATS_SCALE[[13, 20]] = 1 / 1000  # gold, time
BLSTATS_SCALE[19] = 1 / 100  # experience points
BLSTATS_SCALE[21] = 1  # hunger
LOW, HIGH = np.float32(-5), np.float32(5)


def scale_blstats(blstats: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """What the policy reads of the bottom line. [..., 27] integers -> [..., 27] float32."""
    out = np.empty(blstats.shape, np.float32) if out is None else out
    out[...] = blstats  # plain calls on equal types: one mixed-type call, or np.clip, takes 10x as long on one game
    np.multiply(out, BLSTATS_SCALE, out=out)
    np.maximum(out, LOW, out=out)
    return np.minimum(out, HIGH, out=out)


def observation_specs(keys: Iterable[str]) -> dict[str, ArraySpec]:
    """Specs of the named observations, in the given order."""
    known = OBSERVATIONS | EVENTS
    specs = {}
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
            raise UserError(f"unknown observation {key!r} (observations): {hint}")
        specs[key] = known[key]
    return specs


def frame_keys(keys: Iterable[str], screen: str) -> tuple[str, ...]:
    """The raw arrays that games must write for these observations. Fewer is faster: the terminal alone costs 4 us."""
    needed = {"glyphs", "blstats", "message"}  # the tasks themselves read these
    for key in keys:
        key = key.removeprefix("event_")
        if key in ("chars", "colors"):
            needed.add(f"tty_{key}" if screen == "terminal" else key)
        elif key in FRAME:
            needed.add(key)
    return tuple(key for key in FRAME if key in needed)


class Frames:
    """Raw frames of `num_games` games; `views(i)` are the buffers that game i writes into."""

    def __init__(self, num_games: int, keys: Iterable[str]):
        self.num_games = num_games
        self.arrays: dict[str, np.ndarray] = {}  # [E, *FRAME shape]
        self.screens: dict[str, np.ndarray] = {}  # [E, MARGIN + cells + MARGIN]: the same memory with its margins
        for key in keys:
            shape, dtype = FRAME[key]
            if key in BLANK:
                cells = shape[0] * shape[1]
                self.screens[key] = np.full((num_games, MARGIN + cells + MARGIN), BLANK[key], dtype)
                self.arrays[key] = self.screens[key][:, MARGIN : MARGIN + cells].reshape(num_games, *shape)
            else:
                self.arrays[key] = np.zeros((num_games, *shape), dtype)

    def views(self, game: int) -> dict[str, np.ndarray]:
        """Contiguous buffers of one game."""
        return {key: array[game] for key, array in self.arrays.items()}


class Observer:
    """Writes the requested observations of a group of games into given rows."""

    def __init__(self, keys: Iterable[str], frames: Frames, screen: str = "terminal"):
        self.specs = observation_specs(keys)
        self._arrays = frames.arrays
        crops = [key for key in ("chars", "colors") if key in self.specs]
        self._crops = []
        for key in crops:
            source = f"tty_{key}" if screen == "terminal" else key
            columns = FRAME[source].shape[1]
            cells = frames.screens[source].reshape(-1).view(np.uint8)
            # windows[s] is the crop whose first cell is cell s of all screens laid end to end. [..., 12, 12]
            windows = as_strided(cells, (len(cells) - CROP * columns, CROP, CROP), (1, columns, 1), writeable=False)
            self._crops.append((key, windows, BLANK[source]))
        if crops:
            self._columns = columns
            self._last_whole = columns - CROP + HERO_COLUMN  # the hero's last column with all of the crop on the screen
            first_row = 0 if screen == "terminal" else 1
            corner = MARGIN - (HERO_ROW - 1 + first_row) * columns - HERO_COLUMN
            self._corners = [corner + game * frames.screens[source].shape[1] for game in range(frames.num_games)]
            self._blstats = [memoryview(row) for row in frames.arrays["blstats"]]
        # Sorted once here, because every string looked at in a step costs as much as a small copy.
        plain = [key for key in self.specs if key not in crops and not key.startswith("event_")]
        self._copies = [(key, frames.arrays[key]) for key in plain if key in frames.arrays]
        self._vector = "vector" in plain
        self._count = "message_count" in plain
        events = [key for key in self.specs if key.startswith("event_") and key != EVENT_COUNT]
        self._events = [(key, key.removeprefix("event_")) for key in events]
        self._event_count = EVENT_COUNT in self.specs

    def observe(self, rows: dict[str, np.ndarray], counts: list[int]) -> None:
        """What the players see now. `rows[key]` is [E, ...]; `counts` are the message counts."""
        if self._crops:
            self._crop(rows)
        for key, array in self._copies:
            rows[key][:] = array
        if self._vector:
            scale_blstats(self._arrays["blstats"], out=rows["vector"])
        if self._count:
            row = rows["message_count"]
            for game, count in enumerate(counts):  # a list is assigned no faster
                row[game] = count

    def _crop(self, rows: dict[str, np.ndarray]) -> None:
        columns, last_whole = self._columns, self._last_whole
        targets = [(rows[key], windows) for key, windows, _ in self._crops]
        for game, blstats in enumerate(self._blstats):
            x = blstats[0]
            start = self._corners[game] + columns * blstats[1] + x
            # One plain copy per game beats one indexed gather for all: NumPy's gather takes 3 us to set up.
            for row, windows in targets:
                row[game] = windows[start]
            if x < HERO_COLUMN or x > last_whole:  # the window wraps into the neighbouring lines
                for key, _, blank in self._crops:
                    rows[key][game, :, : max(HERO_COLUMN - x, 0)] = blank
                    rows[key][game, :, min(columns - x + HERO_COLUMN, CROP) :] = blank

    def record_events(self, rows: dict[str, np.ndarray], counts: list[int], ends: dict[int, dict]) -> None:
        """What the last actions led to; `ends[i]` is the last frame of game i where its episode ended."""
        for key, name in self._events:
            rows[key][:] = self._arrays[name]
            for game, last in ends.items():
                rows[key][game] = last[name]
        if self._event_count:
            row = rows[EVENT_COUNT]
            for game, count in enumerate(counts):
                row[game] = count

"""Converts games' raw frames to observations, with one NumPy call for all games of a group.

`envs/world.py` explains the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided

from motif_jax.captions import WIDTH
from motif_jax.envs.world import MESSAGE, SCREEN_SHAPE, GameSeed, Rows, Viewpoint, select_specs
from motif_jax.structs import ArraySpec, EndStatus, EpisodeInfo

CROP = 12  # cells on a side
COLOURS = 32  # 0..15, and 16..31 the same reversed
HERO_ROW, HERO_COLUMN = 7, 6  # the hero's place in the crop: terminal row = map row + 1

# The arrays that a game writes, in NLE's layout.
FRAME = {
    "tty_chars": ArraySpec(SCREEN_SHAPE, "uint8"),
    "tty_colors": ArraySpec(SCREEN_SHAPE, "int8"),
    "tty_cursor": ArraySpec((2,), "uint8"),
    "glyphs": ArraySpec((21, 79), "int16"),
    "chars": ArraySpec((21, 79), "uint8"),
    "colors": ArraySpec((21, 79), "uint8"),
    "blstats": ArraySpec((27,), "int64"),
    "message": ArraySpec((WIDTH,), "uint8"),
}
SCREENS = {"terminal": ("tty_chars", "tty_colors"), "map": ("chars", "colors")}  # sources of the crop
SHOWN = ("tty_chars", "tty_colors", "tty_cursor")  # of a picture for people
BLANKS = ord(" "), 0  # character and colour outside the screen
MARGIN = 8 * 80  # blank cells before and after each screen, for crops beyond its edge

OBSERVATIONS = {
    "crop": ArraySpec((2, CROP, CROP), "uint8", "planes"),  # around the hero: characters, and COLOURS
    "vector": ArraySpec((27,), "float32"),  # blstats, scaled and clipped to [-5, 5]
    "blstats": ArraySpec((27,), "int32"),  # the unscaled bottom line; `scale_blstats` converts it to `vector`
    "position": ArraySpec((4,), "int32"),  # the hero's dungeon, level, column, row
    **MESSAGE,
    **{key: FRAME[key] for key in ("tty_chars", "tty_colors", "glyphs")},
}
EVENTS = {
    f"event_{key}": OBSERVATIONS[key]
    for key in ("blstats", "message", "message_count", "tty_chars", "tty_colors", "glyphs")
}
EVENTS["event_drawn"] = ArraySpec((), "int32")  # squares of the level that are drawn on the map

# Readings of a step, which can be rewards: changes of numbers of the bottom line, whether the step took no turn of the
# game and opened no question (a fast hero has some free steps), and whether the hero is on stairs.
EVENT_IDLE, EVENT_STAIRS = "event_idle", "event_stairs"
CHANGES = {"event_score": 9, "event_health": 10, "event_gold": 13, EVENT_IDLE: 20}  # places in blstats
EVENTS |= dict.fromkeys((*CHANGES, EVENT_STAIRS), ArraySpec((), "float32"))

# Names of numbers of the bottom line.
NUMBERS = {
    name: ("blstats", place)
    for name, place in {
        "column": 0, "row": 1, "strength": 3, "dexterity": 4, "constitution": 5, "intelligence": 6, "wisdom": 7,
        "charisma": 8, "score": 9, "health": 10, "max_health": 11, "depth": 12, "gold": 13, "energy": 14,
        "max_energy": 15, "armor_class": 16, "experience_level": 18, "experience": 19, "turn": 20, "hunger": 21,
        "burden": 22, "dungeon": 23, "level": 24,
    }.items()
}  # fmt: skip
STILL = ("column", "row", "dungeon", "level", "health", "energy", "gold", "experience")  # unchanged if nothing happened
VIEWPOINTS = {
    "crop": Viewpoint(HERO_ROW, HERO_COLUMN, plane=0, planes_first=True),  # characters
    "glyphs": Viewpoint("row", "column"),
}

EVENT_COUNT, EVENT_DRAWN = "event_message_count", "event_drawn"
BLANK_GLYPH = 2359  # of a square that is not drawn; NLE's GLYPH_CMAP_OFF

POLICY_OBSERVATIONS = ("crop", "blstats", "message", "message_count", "event_message", "event_message_count")

# The published scaling: score, depth, branch, level, conditions and alignment are hidden from the policy.
BLSTATS_SCALE = np.zeros(27, np.float32)
BLSTATS_SCALE[[0, 1]] = 1 / 79, 1 / 21  # column, row
BLSTATS_SCALE[3:9] = 1 / 10  # attributes; 2 (strength percentage) stays hidden
BLSTATS_SCALE[[10, 11, 14, 15, 16, 18, 22]] = 1 / 10
BLSTATS_SCALE[[13, 20]] = 1 / 1000  # gold, time
BLSTATS_SCALE[19] = 1 / 100  # experience points
BLSTATS_SCALE[21] = 1  # hunger
POSITION = [23, 24, 0, 1]  # of blstats
LOW, HIGH = np.float32(-5), np.float32(5)


class FrameGame(Protocol):
    """A game that writes NetHack's frames into buffers: NetHack, the toy game, or one of yours."""

    num_actions: int
    buffers: dict[str, np.ndarray]
    end: EndStatus
    message: bytes
    message_count: int
    last_frame: dict[str, np.ndarray]

    @property
    def on_stairs(self) -> bool: ...  # the hero stands on stairs down
    @property
    def opened_question(self) -> bool: ...  # the last step made the game ask something, such as what to eat
    def reset(self, seed: GameSeed, episode: int) -> None: ...
    def step(self, action: int) -> float: ...
    def info(self) -> EpisodeInfo: ...
    def close(self) -> None: ...


def scale_blstats(blstats: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Scales and clips the bottom line to [-5, 5] for the policy. [..., 27] integers -> [..., 27] float32."""
    out = np.empty(blstats.shape, np.float32) if out is None else out
    out[...] = blstats  # a mixed-type call, or np.clip, takes 10x as long on one game
    np.multiply(out, BLSTATS_SCALE, out=out)
    np.maximum(out, LOW, out=out)
    return np.minimum(out, HIGH, out=out)


def count_drawn(glyphs: np.ndarray) -> int:
    """Counts the squares of a level that are drawn."""
    return int(np.count_nonzero(glyphs != BLANK_GLYPH))


def observation_specs(keys: Iterable[str]) -> dict[str, ArraySpec]:
    """Returns the specs of the named observations, in the given order."""
    return select_specs(OBSERVATIONS | EVENTS, keys)


def open_rows(rows: dict[str, np.ndarray]) -> Rows:
    """Opens arrays of [E, ...] for `Observer`; open rows that are written repeatedly only once.

    Messages and scalars are written through memoryviews, which take a quarter of the time of a NumPy assignment.
    """
    opened: Rows = {key: memoryview(row) if row.ndim == 1 else row for key, row in rows.items()}
    for key in opened.keys() & {"message", "event_message"}:
        opened[key] = memoryview(rows[key]).cast("B")  # [E * 256]
    return opened


class Observer:
    """The raw frames of a group of games, and the observations that are made of them, in rows of `open_rows`."""

    def __init__(self, num_games: int, keys: Iterable[str], screen: str = "terminal", extra_frames: Iterable[str] = ()):
        """Makes the arrays that `keys` need, and `extra_frames`."""
        self.specs = observation_specs(keys)
        needed = {key.removeprefix("event_") for key in self.specs} | {"glyphs", "blstats", "message"}  # read by tasks
        needed |= {*extra_frames, *(SCREENS[screen] if "crop" in self.specs else ())}
        # Fewer are faster: the terminal alone costs 4 us per step. [E, *FRAME shape]
        self.arrays = {
            key: np.zeros((num_games, *spec.shape), spec.dtype) for key, spec in FRAME.items() if key in needed
        }
        if "crop" in self.specs:
            self._find_windows(num_games, screen)
        # Sorted once here, because every string comparison in a step costs as much as a small copy.
        self._message = memoryview(self.arrays["message"]).cast("B")
        stored = self.arrays | {"message": self._message}
        self._copies = [(key, stored[key]) for key in self.specs if key in self.arrays]
        events = [(key, key.removeprefix("event_")) for key in self.specs if key.startswith("event_")]
        self._events = [(key, name) for key, name in events if name in self.arrays and name != "message"]
        self._changes = [(key, place) for key, place in CHANGES.items() if key in self.specs]
        self._before = self.arrays["blstats"].copy()  # the bottom lines before the step

    def _find_windows(self, num_games: int, screen: str) -> None:
        """Stores the screens between margins, and finds the crop around each of their cells."""
        rows, columns = FRAME[SCREENS[screen][0]].shape
        plane = MARGIN + rows * columns + MARGIN
        store = np.empty((num_games, 2, plane), np.uint8)  # characters and colours
        store[:] = np.array(BLANKS)[:, None]
        for index, key in enumerate(SCREENS[screen]):
            cells = store[:, index, MARGIN:-MARGIN].view(FRAME[key].dtype)
            self.arrays[key] = cells.reshape(num_games, rows, columns)
        cells = store.reshape(-1)
        # windows[s] is the crop whose first character is cell s of the flat store. [..., 2, 12, 12]
        count = len(cells) - plane - CROP * columns
        self._windows = as_strided(cells, (count, 2, CROP, CROP), (1, plane, columns, 1), writeable=False)
        first_row = 0 if screen == "terminal" else 1
        corner = MARGIN - (HERO_ROW - 1 + first_row) * columns - HERO_COLUMN
        self._corners = [corner + game * 2 * plane for game in range(num_games)]
        self._blstats = [memoryview(row) for row in self.arrays["blstats"]]
        self._columns = columns
        self._last_whole = columns - CROP + HERO_COLUMN  # the hero's last column with the whole crop on the screen

    def views(self, game: int) -> dict[str, np.ndarray]:
        """Returns the contiguous buffers that one game writes into."""
        return {key: array[game] for key, array in self.arrays.items()}

    def observe(self, rows: Rows, counts: np.ndarray) -> None:
        if self._changes:
            self._before[:] = self.arrays["blstats"]
        if "crop" in self.specs:
            self._crop(rows["crop"])
        for key, array in self._copies:
            rows[key][:] = array
        if "vector" in self.specs:
            scale_blstats(self.arrays["blstats"], out=rows["vector"])
        if "position" in self.specs:
            rows["position"][:] = self.arrays["blstats"][:, POSITION]
        if "message_count" in self.specs:
            rows["message_count"][:] = counts

    def _crop(self, rows: np.ndarray) -> None:
        columns, windows, corners, last_whole = self._columns, self._windows, self._corners, self._last_whole
        for game, blstats in enumerate(self._blstats):
            x = blstats[0]
            # A copy per game is faster than one gather for all games, whose setup takes 3 us in NumPy.
            rows[game] = windows[corners[game] + columns * blstats[1] + x]
            if x < HERO_COLUMN or x > last_whole:  # the window wraps into the neighbouring lines
                for plane, blank in enumerate(BLANKS):
                    rows[game, plane, :, : max(HERO_COLUMN - x, 0)] = blank
                    rows[game, plane, :, min(columns - x + HERO_COLUMN, CROP) :] = blank

    def record_events(self, rows: Rows, counts: np.ndarray, ends: dict[int, dict], games: Sequence[FrameGame]) -> None:
        """Writes the event observations. `ends`: the last frame of each game whose episode ended, by its index."""
        if "event_message" in self.specs:
            rows["event_message"][:] = memoryview(self._after("message", ends)).cast("B")
        for key, name in self._events:
            rows[key][:] = self._after(name, ends)
        for key, place in self._changes:
            change = self._after("blstats", ends)[:, place] - self._before[:, place]
            if key == EVENT_IDLE:
                change = (change == 0) & ~np.array([game.opened_question for game in games], bool)
            rows[key][:] = change.astype(np.float32)
        if EVENT_STAIRS in self.specs:
            rows[EVENT_STAIRS][:] = np.array([game.on_stairs for game in games], np.float32)
        if EVENT_DRAWN in self.specs:
            glyphs = self._after("glyphs", ends)
            rows[EVENT_DRAWN][:] = np.count_nonzero(glyphs != BLANK_GLYPH, axis=(1, 2)).astype(np.int32)
        if EVENT_COUNT in self.specs:
            rows[EVENT_COUNT][:] = counts

    def _after(self, name: str, ends: dict[int, dict]) -> np.ndarray:
        """The raw array after the step, with the last frame of episodes that ended."""
        if not ends:
            return self.arrays[name]
        after = self.arrays[name].copy()
        for game, last in ends.items():
            after[game] = last[name]
        return after

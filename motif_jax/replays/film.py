"""Exports of an episode: a sequence of sheets with durations, as an asciinema cast, an animated GIF or an MP4 film.

The frames of a GIF contain only the changes. Films are encoded by ffmpeg. The pictures of a replay may come from an
untrusted source.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import shutil
import struct
import subprocess
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import numpy as np

from motif_jax.files import write_whole
from motif_jax.replays.replay import Story
from motif_jax.replays.scene import MESSAGES, TEXT, Canvas, View, changes, compose, needed
from motif_jax.screens import BACKGROUND, PALETTE, printable
from motif_jax.structs import UserError, legible

# The font has cells of 9 x 18 pixels, and letters made of strokes, separated by ";". A stroke is a list of points: a
# column, 0 to 8, and a row, 0 to h in base 18, in the middle of its pixel. Capitals span the rows 3 to d, small letters
# 6 to d; descenders end at row g.
#
#     "13 1d 7d"     straight lines from point to point
#     "~13 73 7d"    a quadratic B-spline, which starts at the first point and ends at the last
#     "o13 73 7d"    a closed quadratic B-spline
#     "4d"           a dot

HEIGHT, WIDTH = 18, 9  # of a cell; a sheet then has even numbers of pixels, as MP4 requires
HALF_LINE, HALF_DOT = 0.65, 1.1  # pixels: half the width of a line, and the radius of a dot
PARTS = 6  # straight lines per bend

LETTERS = {
    " ": "", "!": "43 49;4d", '"': "33 36;53 56", "#": "34 2d;64 5d;17 77;1a 7a",
    "$": "~75 54 14 17 38 58 79 7c 3c 1b;42 4e", "%": "o13 33 36 16;o5a 7a 7d 5d;73 1d",
    "&": "~7d 25 23 53 56 18 1d 5d 79", "'": "43 46", "(": "~62 36 3b 6f", ")": "~22 56 5b 2f",
    "*": "44 4a;15 79;19 75", "+": "45 4b;18 78", ",": "4d;~4d 4e 3f", "-": "18 78", ".": "4d", "/": "72 1e",
    "0": "o33 53 75 7b 5d 3d 1b 15;48", "1": "15 43 4d;1d 7d", "2": "~15 13 73 77 1d;1d 7d",
    "3": "~14 13 73 78 38;~38 78 7d 1d 1c", "4": "6d 63 1a 7a", "5": "73 23 27;~27 77 7d 1d 1c",
    "6": "~64 13 1a;o17 77 7d 1d", "7": "13 73 3d", "8": "o13 73 78 18;o18 78 7d 1d", "9": "o13 73 79 19;~76 7d 2c",
    ":": "47;4d", ";": "47;4d;~4d 4e 3f", "<": "74 18 7c", "=": "16 76;1a 7a", ">": "14 78 1c",
    "?": "~14 13 73 77 47 4a;4d", "@": "~6d 1d 13 73 7a;o46 76 7a 4a",
    "A": "1d 43 7d;2a 6a", "B": "13 1d;~13 53 74 77 58 18;~18 58 79 7c 5d 1d", "C": "~75 53 33 15 1b 3d 5d 7b",
    "D": "13 1d;~13 43 75 7b 4d 1d", "E": "73 13 1d 7d;18 68", "F": "73 13 1d;18 68",
    "G": "~75 53 33 15 1b 3d 5d 7b 78;78 48", "H": "13 1d;73 7d;18 78", "I": "23 63;43 4d;2d 6d",
    "J": "33 63 6a;~6a 6d 1d 1b", "K": "13 1d;73 19;37 7d", "L": "13 1d 7d", "M": "1d 13 48 73 7d", "N": "1d 13 7d 73",
    "O": "o33 53 75 7b 5d 3d 1b 15", "P": "1d 13;~13 53 74 78 59 19", "Q": "o33 53 75 7b 5d 3d 1b 15;5b 7f",
    "R": "1d 13;~13 53 74 78 59 19;49 7d", "S": "~74 53 13 17 38 58 79 7d 3d 1c", "T": "13 73;43 4d",
    "U": "13 1a;~1a 1d 7d 7a;7a 73", "V": "13 4d 73", "W": "13 2d 47 6d 73", "X": "13 7d;73 1d", "Y": "13 48 73;48 4d",
    "Z": "13 73 1d 7d", "[": "62 32 3f 6f", "\\": "12 7e", "]": "22 52 5f 2f", "^": "26 43 66", "_": "0f 8f",
    "`": "33 55",
    "a": "~17 16 76 79;79 7d;~79 19 1d 7d 7a", "b": "12 1d;~18 16 76 7d 1d 1b", "c": "~77 76 16 1d 7d 7c",
    "d": "72 7d;~78 76 16 1d 7d 7b", "e": "~7c 7d 1d 16 76 79;19 79", "f": "~72 42 45;45 4d;16 66",
    "g": "~78 76 16 1d 7d 7b;76 7d;~7d 7g 2g 1f", "h": "12 1d;~18 16 76 79;79 7d", "i": "26 46 4d;2d 6d;43",
    "j": "36 56 5e;~5e 5g 2g;53", "k": "12 1d;66 1a;39 7d", "l": "22 42 4b;~4b 4d 6d",
    "m": "16 1d;~18 16 46 48;48 4d;~48 46 76 78;78 7d", "n": "16 1d;~18 16 76 79;79 7d", "o": "o16 76 7d 1d",
    "p": "16 1g;~18 16 76 7d 1d 1b", "q": "76 7g;~78 76 16 1d 7d 7b", "r": "26 2d;~29 26 76 77",
    "s": "~77 56 16 19 39 5a 7a 7d 3d 1c", "t": "43 4b;~4b 4d 7d;16 76", "u": "16 1a;~1a 1d 7d 7a;76 7d",
    "v": "16 4d 76", "w": "16 2d 48 6d 76", "x": "16 7d;76 1d", "y": "16 4d;76 4d;~4d 3g 1g", "z": "16 76 1d 7d",
    "{": "~62 42 48 28;~28 48 4f 6f", "|": "41 4g", "}": "~22 42 48 68;~68 48 4f 2f", "~": "~19 27 37 5a 6a 78",
    "·": "48", "…": "1d;4d;7d", "–": "18 78", "—": "08 88", "→": "18 78;55 78 5b", "←": "18 78;35 18 3b",
    "↑": "44 4d;17 44 77", "↓": "44 4d;1a 4d 7a", "‖": "32 3e;52 5e", "▶": "13 1d 78 13;25 2b 68 25;36 3a 58 36;47 49",
    "ı": "26 46 4d;2d 6d", "°": "o33 53 56 36", "×": "15 7b;75 1b", "‘": "43 46", "’": "43 46", "“": "33 36;53 56",
    "”": "33 36;53 56",
}  # fmt: skip
ACCENTS = {  # on small letters; on capitals three rows higher
    "\u0300": "33 54", "\u0301": "34 53", "\u0302": "24 43 64", "\u0303": "~24 33 54 63", "\u0308": "24;64",
    "\u030a": "o32 52 54 34", "\u0327": "~4d 5f 3g",
}  # fmt: skip
CEDILLA = "\u0327"  # below all letters
UNKNOWN = "13 73 7d 1d 13"
SHADES = 7  # from the background to a full colour, for smooth edges
BLOCKS = "▁▂▃▄▅▆▇█"  # eighths of a cell; drawn here, because they must join exactly
RULES = {"─": "lr", "│": "tb", "┌": "br", "┐": "bl", "└": "tr", "┘": "tl"}  # lines to left, right, top, bottom


_LEVELS = np.arange(1, SHADES)[:, None] / (SHADES - 1)
_SHADED = np.array(BACKGROUND) + _LEVELS * (np.array(PALETTE) - BACKGROUND)[:, None]  # [colours, SHADES - 1, 3]
# Index 0 is the background, which all colours share; the other shades of each colour follow. [C, 3]
COLOURS = np.concatenate([[BACKGROUND], np.round(_SHADED).reshape(-1, 3)]).astype(np.uint8)
_OF_COLOUR = np.pad(np.arange(1, len(COLOURS), dtype=np.uint8).reshape(len(PALETTE), -1), ((0, 0), (1, 0)))
OF_STYLE = np.concatenate([_OF_COLOUR, _OF_COLOUR[:, ::-1]])  # indices into COLOURS, then reversed. [styles, SHADES]


def paint(canvas: Canvas, rows: slice = slice(None), columns: slice = slice(None)) -> np.ndarray:
    """Draws a part of a sheet as indices into COLOURS. [pixels down, pixels across] uint8"""
    chars, styles = canvas.chars[rows, columns], canvas.styles[rows, columns]
    codes, inverse = np.unique(chars, return_inverse=True)
    glyphs = np.stack([_glyph(chr(code)) for code in codes])[inverse.reshape(chars.shape)]  # [R, C, height, width]
    cells = OF_STYLE[styles[..., None, None], glyphs]
    return cells.transpose(0, 2, 1, 3).reshape(chars.shape[0] * HEIGHT, chars.shape[1] * WIDTH)


@functools.cache
def _glyph(character: str) -> np.ndarray:
    """The shades of a character's pixels; a box for an unknown character. [HEIGHT, WIDTH] uint8"""
    glyph = np.zeros((HEIGHT, WIDTH), np.uint8)
    if character in BLOCKS:
        glyph[HEIGHT - round(HEIGHT * (BLOCKS.index(character) + 1) / len(BLOCKS)) :, :-1] = SHADES - 1
        return glyph
    if character in RULES:
        down, across = HEIGHT // 2, WIDTH // 2
        lines: dict[str, Any] = {"l": np.s_[down, : across + 1], "r": np.s_[down, across:],
                 "t": np.s_[: down + 1, across], "b": np.s_[down:, across]}  # fmt: skip
        for way in RULES[character]:
            glyph[lines[way]] = SHADES - 1
        return glyph
    letter, *accents = list(unicodedata.normalize("NFD", character))
    covered = _cover(UNKNOWN)
    if letter in LETTERS and ACCENTS.keys() >= set(accents):
        covered = _cover(LETTERS["ı" if letter == "i" and accents else letter])
        for accent in accents:
            covered = np.maximum(covered, _cover(ACCENTS[accent], -3.0 * (letter.isupper() and accent != CEDILLA)))
    return np.round(covered * (SHADES - 1)).astype(np.uint8)


def _cover(strokes: str, down: float = 0.0) -> np.ndarray:
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    pixels = np.stack([columns, rows - down], -1)  # [18, 9, 2]
    covered = np.zeros((HEIGHT, WIDTH))
    for stroke in filter(None, strokes.split(";")):
        points = _points(stroke)
        half = HALF_LINE if len(points) > 1 else HALF_DOT
        for start, end in zip(points, points[1:] if len(points) > 1 else points, strict=False):
            line = end - start
            along = np.clip((pixels - start) @ line / max(line @ line, 1e-9), 0, 1)
            distance = np.linalg.norm(pixels - start - along[..., None] * line, axis=-1)  # of the pixels' middles
            covered = np.maximum(covered, np.clip(half + 0.5 - distance, 0, 1))
    return covered


def _points(stroke: str) -> np.ndarray:
    """The vertices of a stroke as a polyline. [N, 2]"""
    points = np.array([(int(point[0]), int(point[1], 18)) for point in stroke.lstrip("~o").split()], float)
    if stroke[0] not in "~o":
        return points
    if stroke[0] == "o":
        points = np.concatenate([points[-1:], points, points[:1]])
    joints = (points[:-1] + points[1:]) / 2
    if stroke[0] == "~":
        joints[0], joints[-1] = points[0], points[-1]
    share = np.linspace(0, 1, PARTS + 1)[:, None]
    bends = zip(joints, points[1:], joints[1:], strict=False)
    return np.concatenate([(1 - share) ** 2 * a + 2 * share * (1 - share) * b + share**2 * c for a, b, c in bends])


if TYPE_CHECKING:
    from PIL.Image import Image

FASTEST = 50.0  # sheets per second; faster films skip steps
LAST_S = 2.0  # shortest duration of the last frame
LIST_S = 6.0  # duration of the final list of messages
PICTURE_ROWS = 22  # lines that a picture of the game takes
SIDE = 1024  # maximum pixels on a side of a replay's picture
TABLE_BITS = 7  # log2 of the size of a GIF's global table of colours
UNCHANGED = len(COLOURS)  # the index of a GIF's transparent colour
SLOWEST = 10.0  # pictures per second of an MP4; some video players cannot play fewer


class TimedPicture(NamedTuple):
    """A picture of the film, with its time."""

    canvas: Canvas
    start: float  # seconds from the beginning
    seconds: float
    picture: bytes = b""  # of the game, in place of its screen, which is then blank


def count_sheets(story: Story, speed: float) -> int:
    """The number of sheets of a film at `speed` steps per second."""
    return len(_frames(story, speed)) + bool(story.top)


def film(story: Story, speed: float) -> Iterator[TimedPicture]:
    """Yields the sheets of an episode at `speed` steps per second, then its list of messages."""
    columns, rows = needed(story)
    frames, last = _frames(story, speed), story.replay.steps
    for frame, following in zip(frames, [*frames[1:], last], strict=True):
        canvas = compose(story, View(frame, frame < last, speed), rows, columns, keys=False)
        picture = story.replay.picture(frame) if story.pictured else b""
        if picture:
            canvas.chars[: story.rows], canvas.styles[: story.rows] = ord(" "), TEXT
        seconds = (following - frame) / speed if frame < last else max(LAST_S, 1 / speed)
        yield TimedPicture(canvas, frame / speed, seconds, picture)
    if story.top:
        start = last / speed + max(LAST_S, 1 / speed)
        yield TimedPicture(compose(story, View(last, False, speed, MESSAGES), rows, columns, keys=False), start, LIST_S)


def write_film(path: Path, story: Story, speed: float, progress: Callable[[int], None]) -> None:
    """Writes a .cast, .gif or .mp4 atomically; calls `progress` with the number of finished sheets."""
    write = WRITERS[path.suffix.lower()]
    if write is not _write_cast and story.replay.pictures is not None:
        story = story._replace(rows=PICTURE_ROWS, pictured=True)

    def counted() -> Iterator[TimedPicture]:
        for number, sheet in enumerate(film(story, speed), 1):
            yield sheet
            progress(number)

    write_whole(path, lambda file: write(file, story, speed, counted()))


def _write_cast(file: BinaryIO, story: Story, speed: float, sheets: Iterable[TimedPicture]) -> None:
    """Version 2: a header, then one line of JSON per change: https://docs.asciinema.org/manual/asciicast/v2/"""
    columns, rows = needed(story)
    colors = [f"#{bytes(color).hex()}" for color in (BACKGROUND, *PALETTE[1:])]
    theme = {"fg": colors[7], "bg": colors[0], "palette": ":".join(colors)}
    lines: list[Any] = [{
        "version": 2, "width": columns, "height": rows, "title": printable(story.replay.title),
        "env": {"TERM": "xterm-256color"}, "theme": theme,
    }]  # fmt: skip
    before: Canvas | None = None
    end = 0.0
    for sheet in sheets:
        if text := changes(before, sheet.canvas):
            lines.append([round(sheet.start, 3), "o", ("" if before else "\033[?25l") + text])
        before, end = sheet.canvas, sheet.start + sheet.seconds
    lines.append([round(end, 3), "o", "\033[?25h"])  # the end of the last sheet
    file.writelines(f"{json.dumps(line)}\n".encode() for line in lines)


def _frames(story: Story, speed: float) -> list[int]:
    last = story.replay.steps
    return [*range(0, last, math.ceil(speed / FASTEST)), last]


def open_picture(packed: bytes) -> Image:
    """Decodes a WebP picture from any source; raises UserError if it is damaged, of another format, or too large."""
    from PIL import Image

    readable = legible("a picture of a replay", "", SyntaxError, Image.DecompressionBombError)
    with readable, Image.open(io.BytesIO(packed), formats=["WEBP"]) as picture:
        if max(picture.size) > SIDE:
            raise ValueError(f"it has more than {SIDE} pixels on a side")
        return picture.convert("RGB")


@functools.lru_cache(maxsize=1)  # consecutive frames often have the same picture
def _fit(packed: bytes, width: int, height: int) -> np.ndarray:
    from PIL import Image

    picture = open_picture(packed)
    scale = min(width / picture.width, height / picture.height)
    size = max(round(scale * picture.width), 1), max(round(scale * picture.height), 1)
    return np.asarray(picture.resize(size, Image.Resampling.NEAREST if scale >= 3 else Image.Resampling.BILINEAR))


def find_ffmpeg() -> str:
    """Finds the program ffmpeg; raises UserError if it is not installed."""
    if path := shutil.which("ffmpeg"):
        return path
    try:
        import imageio_ffmpeg
    except ImportError:
        raise UserError(
            "an .mp4 needs ffmpeg on the PATH, or `pip install imageio-ffmpeg`; a .gif needs neither"
        ) from None
    return imageio_ffmpeg.get_ffmpeg_exe()


def _write_mp4(file: BinaryIO, story: Story, speed: float, sheets: Iterable[TimedPicture]) -> None:
    program, (columns, rows) = find_ffmpeg(), needed(story)
    sheets_per_second = speed / math.ceil(speed / FASTEST)
    rate = sheets_per_second * math.ceil(SLOWEST / sheets_per_second)
    size = f"{columns * WIDTH}x{rows * HEIGHT}"
    command = [
        program, "-hide_banner", "-loglevel", "error", "-nostdin", "-y",
        "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", f"{rate:.6f}", "-i", "pipe:0",
        "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", file.name,
    ]  # fmt: skip
    with tempfile.TemporaryFile() as complaints:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=complaints) as process:
            shown = 0  # pictures so far; a sheet is repeated according to its duration
            # The exit status, and not a broken pipe, tells of a failure.
            with contextlib.suppress(BrokenPipeError), cast(IO[bytes], process.stdin) as pictures:
                for sheet in sheets:
                    data = _pixels(sheet, story).tobytes()
                    end = max(round(rate * (sheet.start + sheet.seconds)), shown + 1)
                    for _ in range(end - shown):
                        pictures.write(data)
                    shown = end
        if process.returncode:
            complaints.seek(0)
            lines = complaints.read().decode(errors="replace").strip().split("\n")
            why = lines[-1] or f"status {process.returncode}"
            raise UserError(f"{program} could not make the film: {why.strip()}")


def _pixels(sheet: TimedPicture, story: Story) -> np.ndarray:
    """A sheet with its picture of the game, which is as large as fits, in the middle. [H, W, 3] uint8"""
    pixels, room = COLOURS[paint(sheet.canvas)], story.rows * HEIGHT
    if sheet.picture:
        fitted = _fit(sheet.picture, pixels.shape[1], room)
        down, across = (room - fitted.shape[0]) // 2, (pixels.shape[1] - fitted.shape[1]) // 2
        pixels[down : down + fitted.shape[0], across : across + fitted.shape[1]] = fitted
    return pixels


def _write_gif(file: BinaryIO, story: Story, speed: float, sheets: Iterable[TimedPicture]) -> None:
    from PIL import GifImagePlugin, Image

    columns, rows = needed(story)
    height, width = rows * HEIGHT, columns * WIDTH
    colours = np.zeros((2**TABLE_BITS, 3), np.uint8)
    colours[: len(COLOURS)] = COLOURS
    file.write(b"GIF89a" + struct.pack("<HHBBB", width, height, 0xF0 | TABLE_BITS - 1, 0, 0) + colours.tobytes())
    file.write(b"\x21\xff\x0bNETSCAPE2.0\x03\x01" + struct.pack("<H", 0) + b"\0")  # repeat for ever
    before: Canvas | None = None
    pictured = b""  # the previous sheet's picture of the game
    shown = 0  # hundredths of a second since the start; rounding errors of durations would add up
    for sheet in sheets:
        end = round(100 * (sheet.start + sheet.seconds))
        options: dict[str, Any] = {"duration": 10 * (end - shown), "disposal": 1}  # keeps the previous picture
        if sheet.picture and sheet.picture != pictured:
            picture = Image.fromarray(_pixels(sheet, story)).quantize(128)  # its own table of colours
            blocks = GifImagePlugin.getdata(picture, (0, 0), include_color_table=True, **options)
        else:
            pixels, corner = _changed(before if sheet.picture == pictured else None, sheet.canvas)
            blocks = GifImagePlugin.getdata(Image.fromarray(pixels), corner, transparency=UNCHANGED, **options)
        file.writelines(blocks)
        before, shown, pictured = sheet.canvas, end, sheet.picture
    file.write(b";")


def _changed(before: Canvas | None, after: Canvas) -> tuple[np.ndarray, tuple[int, int]]:
    """The smallest part of the picture with all changes, and the position of its upper left corner."""
    if before is None:
        return paint(after), (0, 0)
    changed = (before.chars != after.chars) | (before.styles != after.styles)
    if not changed.any():
        changed[0, 0] = True  # a picture cannot be empty
    rows, columns = (np.flatnonzero(changed.any(axis)) for axis in (1, 0))
    down, across = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    pixels = paint(after, down, across)
    pixels[~np.kron(changed[down, across], np.ones((HEIGHT, WIDTH), bool))] = UNCHANGED
    return pixels, (int(columns[0]) * WIDTH, int(rows[0]) * HEIGHT)


WRITERS = {".cast": _write_cast, ".gif": _write_gif, ".mp4": _write_mp4}  # by the suffix of the file

"""Films of an episode: its sheets as an animated GIF, or as an MP4, which ffmpeg makes from the GIF.

Cells are drawn with Pillow's monospaced font, whose pixels are doubled; what it lacks is drawn as rectangles. The
frames of a GIF contain only the changes. The pictures of a replay may come from an untrusted source.
"""

from __future__ import annotations

import contextlib
import functools
import math
import struct
import subprocess
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from motif_jax.files import write_whole
from motif_jax.replays.replay import BARS, Story, open_picture
from motif_jax.replays.scene import MESSAGES, TEXT, Canvas, View, compose, needed
from motif_jax.screens import BACKGROUND, PALETTE, REVERSED
from motif_jax.structs import UserError
from motif_jax.system.metrics import Progress

FONT_WIDTH, FONT_HEIGHT, SCALE = 6, 11, 2  # pixels of a cell of the font, and how large each is drawn
WIDTH, HEIGHT = SCALE * FONT_WIDTH, SCALE * FONT_HEIGHT
# What must join, and what the font lacks: rectangles in its pixels (left, top, right, bottom).
SHAPES: dict[str, tuple[tuple[float, ...], ...]] = {
    "─": ((0, 5, 6, 6),), "│": ((2, 0, 3, 11),), "┌": ((2, 5, 6, 6), (2, 5, 3, 11)), "┐": ((0, 5, 3, 6), (2, 5, 3, 11)),
    "└": ((2, 5, 6, 6), (2, 0, 3, 6)), "┘": ((0, 5, 3, 6), (2, 0, 3, 6)), "‖": ((1, 2, 2, 9), (3, 2, 4, 9)),
    "→": ((0, 5, 5, 6), (3, 4, 4, 7), (2, 3, 3, 8)), "▶": ((1, 2, 2, 9), (2, 3, 3, 8), (3, 4, 4, 7), (4, 5, 5, 6)),
    "…": ((0, 8, 1, 9), (2, 8, 3, 9), (4, 8, 5, 9)),
}  # fmt: skip
SHAPES |= {bar: ((0, FONT_HEIGHT * (1 - eighths / 8), 5, FONT_HEIGHT),) for eighths, bar in enumerate(BARS, 1)}
SIMPLER = str.maketrans("–—‘’“”", "--''\"\"")

COLOURS = np.array([BACKGROUND, *PALETTE], np.uint8)
TABLE_BITS, UNCHANGED = 5, len(COLOURS)  # log2 of the size of a GIF's table of colours; its transparent colour
_INK = np.arange(1, len(COLOURS), dtype=np.uint8)
OF_STYLE = np.concatenate([np.stack([0 * _INK, _INK], 1), np.stack([_INK, 0 * _INK], 1)])  # then reversed. [styles, 2]
assert len(_INK) == REVERSED

FASTEST = 50.0  # sheets per second; faster films skip steps
LAST_S = 2.0  # shortest duration of the last frame
LIST_S = 6.0  # duration of the final list of messages
PICTURE_ROWS = 22  # lines that a picture of the game takes
SLOWEST = 10.0  # pictures per second of an MP4; some video players cannot play fewer


class TimedPicture(NamedTuple):
    """A picture of the film, with its time."""

    canvas: Canvas
    start: float  # seconds from the beginning
    seconds: float
    picture: bytes = b""  # of the game, in place of its screen, which is then blank


def film(story: Story, speed: float) -> Iterator[TimedPicture]:
    """Yields the sheets of an episode at `speed` steps per second, then its list of messages."""
    columns, rows = needed(story)
    pictured = story.replay.pictures is not None
    frames, last = _frames(story, speed), story.replay.steps
    for frame, following in zip(frames, [*frames[1:], last], strict=True):
        canvas = compose(story, View(frame, frame < last, speed), rows, columns, keys=False)
        picture = story.replay.picture(frame) if pictured else b""
        if picture:
            canvas.chars[: story.rows], canvas.styles[: story.rows] = ord(" "), TEXT
        seconds = (following - frame) / speed if frame < last else max(LAST_S, 1 / speed)
        yield TimedPicture(canvas, frame / speed, seconds, picture)
    if story.top:
        start = last / speed + max(LAST_S, 1 / speed)
        yield TimedPicture(compose(story, View(last, False, speed, MESSAGES), rows, columns, keys=False), start, LIST_S)


def _frames(story: Story, speed: float) -> list[int]:
    last = story.replay.steps
    return [*range(0, last, math.ceil(speed / FASTEST)), last]


# ---- a sheet as pixels


def paint(canvas: Canvas, rows: slice = slice(None), columns: slice = slice(None)) -> np.ndarray:
    """Draws a part of a sheet as indices into COLOURS. [pixels down, pixels across] uint8"""
    chars, styles = canvas.chars[rows, columns], canvas.styles[rows, columns]
    codes, inverse = np.unique(chars, return_inverse=True)
    glyphs = np.stack([_glyph(chr(code)) for code in codes])[inverse.reshape(chars.shape)]  # [R, C, height, width]
    cells = OF_STYLE[styles[..., None, None], glyphs.astype(np.uint8)]
    return cells.transpose(0, 2, 1, 3).reshape(chars.shape[0] * HEIGHT, chars.shape[1] * WIDTH)


@functools.cache
def _glyph(character: str) -> np.ndarray:
    """The pixels that a character covers; those of "?" if it is unknown. [HEIGHT, WIDTH] bool"""
    from PIL import Image, ImageDraw, ImageFont

    glyph = np.zeros((HEIGHT, WIDTH), bool)
    for rectangle in SHAPES.get(character, ()):
        left, top, right, bottom = (round(SCALE * edge) for edge in rectangle)
        glyph[top:bottom, left:right] = True
    if character not in SHAPES:
        letter = character.translate(SIMPLER)
        letter = letter if ord(letter) < 256 else unicodedata.normalize("NFKD", letter)[0]  # without its accents
        drawn = Image.new("1", (2 * FONT_WIDTH, FONT_HEIGHT))
        text = f" {letter}" if ord(letter) < 256 else " ?"  # the font has Latin-1
        ImageDraw.Draw(drawn).text((0, 0), text, fill=1, font=ImageFont.load_default_imagefont())
        pixels = np.asarray(drawn)
        if pixels[:, FONT_WIDTH - 1].any() and not pixels[:, -1].any():  # it begins in the cell before, with room here
            pixels = np.roll(pixels, 1, axis=1)
        glyph = np.kron(pixels[:, FONT_WIDTH:], np.ones((SCALE, SCALE), bool))
    return glyph


def _pixels(sheet: TimedPicture, story: Story) -> np.ndarray:
    """A sheet with its picture of the game, which is as large as fits, in the middle. [H, W, 3] uint8"""
    pixels, room = COLOURS[paint(sheet.canvas)], story.rows * HEIGHT
    fitted = _fit(sheet.picture, pixels.shape[1], room)
    down, across = (room - fitted.shape[0]) // 2, (pixels.shape[1] - fitted.shape[1]) // 2
    pixels[down : down + fitted.shape[0], across : across + fitted.shape[1]] = fitted
    return pixels


def _fit(packed: bytes, width: int, height: int) -> np.ndarray:
    from PIL import Image

    picture = open_picture(packed)
    scale = min(width / picture.width, height / picture.height)
    size = max(round(scale * picture.width), 1), max(round(scale * picture.height), 1)
    return np.asarray(picture.resize(size, Image.Resampling.NEAREST if scale >= 3 else Image.Resampling.BILINEAR))


# ---- the files


class Gif:
    """A writer of animated GIFs."""

    def check(self) -> None:
        """Raises UserError without Pillow."""
        try:
            import PIL  # noqa: F401
        except ImportError:
            raise UserError("a film needs Pillow: pip install pillow") from None

    def write(self, path: Path, story: Story, speed: float) -> None:
        """Writes a film at `speed` steps per second, atomically."""
        if story.replay.pictures is not None:
            story = story._replace(rows=PICTURE_ROWS)
        total = len(_frames(story, speed)) + bool(story.top)
        with contextlib.closing(Progress(path.name, total, "pictures")) as progress:

            def counted() -> Iterator[TimedPicture]:
                for number, sheet in enumerate(film(story, speed), 1):
                    yield sheet
                    progress.update(number)

            write_whole(path, lambda file: self.encode(file, story, speed, counted()))

    def encode(self, file: IO[bytes], story: Story, speed: float, sheets: Iterable[TimedPicture]) -> None:
        """Writes the sheets into a file."""
        encode_gif(file, story, sheets)


class Mp4(Gif):
    """A writer of MP4s."""

    def check(self) -> None:
        """Raises UserError without Pillow or ffmpeg."""
        super().check()
        find_ffmpeg()

    def encode(self, file: IO[bytes], story: Story, speed: float, sheets: Iterable[TimedPicture]) -> None:
        """Writes the sheets as a GIF, of which ffmpeg makes the file."""
        sheets_per_second = speed / math.ceil(speed / FASTEST)
        rate = sheets_per_second * math.ceil(SLOWEST / sheets_per_second)
        with tempfile.NamedTemporaryFile(suffix=".gif") as gif:
            encode_gif(gif, story, sheets)
            gif.flush()
            command = [find_ffmpeg(), "-loglevel", "error", "-nostdin", "-y", "-i", gif.name, "-r", f"{rate:.6f}"]
            command += ["-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", file.name]
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip().split("\n")[-1] or f"status {done.returncode}"
            raise UserError(f"{command[0]} could not make the film: {why.strip()}")


def encode_gif(file: IO[bytes], story: Story, sheets: Iterable[TimedPicture]) -> None:
    """Writes the sheets as a GIF that repeats for ever."""
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


def find_ffmpeg() -> str:
    """Finds the program ffmpeg; raises UserError without imageio's package, which brings it or finds it."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):  # the package or its program is missing
        raise UserError("an .mp4 needs ffmpeg: pip install imageio-ffmpeg; a .gif does not") from None

"""Exports of an episode: a sequence of sheets with durations, as an asciinema cast, an animated GIF or an MP4 film.

The frames of a GIF contain only the changes. Films are encoded by ffmpeg. The pictures of a replay may come from an
untrusted source.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import json
import math
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import numpy as np

from motif_jax.files import write_whole
from motif_jax.replays.canvas import Canvas, changes
from motif_jax.replays.painter import HEIGHT, WIDTH, Painter
from motif_jax.replays.scene import MESSAGES, View, compose, needed
from motif_jax.replays.story import Story
from motif_jax.screens import BACKGROUND, PALETTE, printable
from motif_jax.structs import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

FASTEST = 50.0  # sheets per second; faster films skip steps
LAST_S = 2.0  # shortest duration of the last frame
LIST_S = 6.0  # duration of the final list of messages
PICTURE_ROWS = 22  # lines that a picture of the game takes
SIDE = 1024  # maximum pixels on a side of a replay's picture
TABLE_BITS = 7  # log2 of the size of a GIF's global table of colours
OWN_COLOURS = 128  # size of the local table of a sheet with a picture of the game
KEEP_BELOW = 1  # GIF disposal method: keep the previous picture
SLOWEST = 10.0  # pictures per second of an MP4; some video players cannot play fewer


class TimedPicture(NamedTuple):
    """A picture of the film, with its time."""

    canvas: Canvas
    start: float  # seconds from the beginning
    seconds: float
    picture: bytes = b""  # of the game, in place of its screen, which is then blank


def with_room_for_pictures(story: Story) -> Story:
    """The story, with room for pictures if its replay has any."""
    return story if story.replay.pictures is None else story._replace(rows=PICTURE_ROWS, pictured=True)


def count_sheets(story: Story, speed: float) -> int:
    """The number of sheets of a film at `speed` steps per second."""
    return len(_frames(story, speed)) + bool(story.top)


def film(story: Story, speed: float) -> Iterator[TimedPicture]:
    """Yields the sheets of an episode at `speed` steps per second, then its list of messages."""
    columns, rows = needed(story)
    last = story.replay.steps
    for frame in _frames(story, speed):
        canvas = compose(story, View(frame, frame < last, speed), rows, columns, keys=False)
        picture = story.replay.picture(frame) if story.pictured else b""
        if picture:
            canvas.clear(story.rows)
        following = min(frame + _stride(speed), last)
        seconds = (following - frame) / speed if frame < last else max(LAST_S, 1 / speed)
        yield TimedPicture(canvas, frame / speed, seconds, picture)
    if story.top:
        start = last / speed + max(LAST_S, 1 / speed)
        yield TimedPicture(compose(story, View(last, False, speed, MESSAGES), rows, columns, keys=False), start, LIST_S)


def write_cast(path: Path, story: Story, speed: float, progress: Callable[[int], None]) -> None:
    """Writes an asciinema cast, version 2, atomically; calls `progress` with the number of finished sheets.

    A cast is a header, then one line of JSON per change: https://docs.asciinema.org/manual/asciicast/v2/
    """
    columns, rows = needed(story)
    theme = {"fg": _hex(PALETTE[7]), "bg": _hex(BACKGROUND)}
    theme["palette"] = ":".join(_hex(color) for color in (BACKGROUND, *PALETTE[1:]))
    header = {
        "version": 2, "width": columns, "height": rows, "title": printable(story.replay.title),
        "env": {"TERM": "xterm-256color"}, "theme": theme,
    }  # fmt: skip
    lines = [json.dumps(header)]
    before: Canvas | None = None
    end = 0.0
    for number, sheet in enumerate(film(story, speed), 1):
        text = changes(before, sheet.canvas)
        if text:
            lines.append(json.dumps([round(sheet.start, 3), "o", ("" if before else "\033[?25l") + text]))
        before, end = sheet.canvas, sheet.start + sheet.seconds
        progress(number)
    lines.append(json.dumps([round(end, 3), "o", "\033[?25h"]))  # the end of the last sheet
    write_whole(path, "".join(f"{line}\n" for line in lines).encode())


def _frames(story: Story, speed: float) -> list[int]:
    last = story.replay.steps
    return [*range(0, last, _stride(speed)), last]


def _stride(speed: float) -> int:
    return math.ceil(speed / FASTEST)


def _hex(color: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


def open_picture(packed: bytes) -> Image:
    """Decodes a WebP picture; raises ValueError if it is damaged, of another format, or too large."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(packed), formats=["WEBP"]) as picture:
            if max(picture.size) > SIDE:
                raise ValueError(f"a picture of a replay has more than {SIDE} pixels on a side")
            return picture.convert("RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"a picture of a replay is damaged ({error})") from error


def paste(pixels: np.ndarray, packed: bytes, height: int) -> np.ndarray:
    """Draws a picture in the middle of the first `height` lines of pixels, as large as fits. [H, W, 3] uint8"""
    fitted = _fit(packed, pixels.shape[1], height)
    down, across = (height - fitted.shape[0]) // 2, (pixels.shape[1] - fitted.shape[1]) // 2
    pixels[down : down + fitted.shape[0], across : across + fitted.shape[1]] = fitted
    return pixels


@functools.lru_cache(maxsize=1)  # consecutive frames often have the same picture
def _fit(packed: bytes, width: int, height: int) -> np.ndarray:
    from PIL import Image

    picture = open_picture(packed)
    scale = min(width / picture.width, height / picture.height)
    size = max(round(scale * picture.width), 1), max(round(scale * picture.height), 1)
    return np.asarray(picture.resize(size, Image.Resampling.NEAREST if scale >= 3 else Image.Resampling.BILINEAR))


def find_ffmpeg(flag: str) -> str:
    """Finds the program ffmpeg; raises UserError, which names `flag`, if it is not installed."""
    if path := shutil.which("ffmpeg"):
        return path
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise UserError(
            f"an .mp4 needs ffmpeg on the PATH, or `pip install imageio-ffmpeg`; a .gif needs neither ({flag})"
        )
    import imageio_ffmpeg

    return imageio_ffmpeg.get_ffmpeg_exe()


def write_mp4(path: Path, story: Story, speed: float, progress: Callable[[int], None], flag: str) -> None:
    """Writes an MP4 atomically; calls `progress` with the number of finished sheets."""
    program = find_ffmpeg(flag)
    write_whole(path, lambda file: _write_mp4(file, program, story, speed, progress, flag))


def _write_mp4(
    file: BinaryIO, program: str, story: Story, speed: float, progress: Callable[[int], None], flag: str
) -> None:
    painter, story = Painter(), with_room_for_pictures(story)
    columns, rows = needed(story)
    colours = painter.colours.astype(np.uint8)
    sheets_per_second = speed / _stride(speed)
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
                for number, sheet in enumerate(film(story, speed), 1):
                    pixels = colours[painter.paint(sheet.canvas)]
                    if sheet.picture:
                        pixels = paste(pixels, sheet.picture, story.rows * HEIGHT)
                    data = pixels.tobytes()
                    end = max(round(rate * (sheet.start + sheet.seconds)), shown + 1)
                    for _ in range(end - shown):
                        pictures.write(data)
                    shown = end
                    progress(number)
        if process.returncode:
            complaints.seek(0)
            lines = complaints.read().decode(errors="replace").split("\n")
            why = next((line for line in reversed(lines) if line.strip()), f"status {process.returncode}")
            raise UserError(f"{program} could not make the film: {why.strip()} ({flag})")


def write_gif(path: Path, story: Story, speed: float, progress: Callable[[int], None]) -> None:
    """Writes a GIF atomically; calls `progress` with the number of finished sheets."""
    write_whole(path, lambda file: _write_gif(file, story, speed, progress))


def _write_gif(file: BinaryIO, story: Story, speed: float, progress: Callable[[int], None]) -> None:
    from PIL import GifImagePlugin, Image

    painter, story = Painter(), with_room_for_pictures(story)
    columns, rows = needed(story)
    height, width = rows * HEIGHT, columns * WIDTH
    colours = np.zeros((2**TABLE_BITS, 3), np.uint8)
    colours[: len(painter.colours)] = painter.colours
    unchanged = len(painter.colours)  # this colour is transparent
    file.write(b"GIF89a" + struct.pack("<HHBBB", width, height, 0xF0 | TABLE_BITS - 1, 0, 0) + colours.tobytes())
    file.write(b"\x21\xff\x0bNETSCAPE2.0\x03\x01" + struct.pack("<H", 0) + b"\0")  # repeat for ever
    before: Canvas | None = None
    pictured = b""  # the previous sheet's picture of the game
    shown = 0  # hundredths of a second since the start; rounding errors of durations would add up
    for number, sheet in enumerate(film(story, speed), 1):
        end = round(100 * (sheet.start + sheet.seconds))
        options: dict[str, Any] = {"duration": 10 * (end - shown), "disposal": KEEP_BELOW}
        if sheet.picture != pictured:
            before = None  # draw the whole sheet again
        if sheet.picture and sheet.picture != pictured:
            pixels = colours[painter.paint(sheet.canvas)]
            picture = Image.fromarray(paste(pixels, sheet.picture, story.rows * HEIGHT)).quantize(OWN_COLOURS)
            blocks = GifImagePlugin.getdata(picture, (0, 0), include_color_table=True, **options)
        else:
            pixels, corner = _changed(painter, before, sheet.canvas, unchanged)
            blocks = GifImagePlugin.getdata(Image.fromarray(pixels), corner, transparency=unchanged, **options)
        file.writelines(blocks)
        before, shown, pictured = sheet.canvas, end, sheet.picture
        progress(number)
    file.write(b";")


def _changed(
    painter: Painter, before: Canvas | None, after: Canvas, unchanged: int
) -> tuple[np.ndarray, tuple[int, int]]:
    """The smallest part of the picture with all changes, and the position of its upper left corner."""
    if before is None:
        return painter.paint(after), (0, 0)
    changed = (before.chars != after.chars) | (before.styles != after.styles)
    if not changed.any():
        changed[0, 0] = True  # a picture cannot be empty
    rows, columns = (np.flatnonzero(changed.any(axis)) for axis in (1, 0))
    down, across = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    pixels = painter.paint(after, down, across)
    pixels[~np.kron(changed[down, across], np.ones((HEIGHT, WIDTH), bool))] = unchanged
    return pixels, (int(columns[0]) * WIDTH, int(rows[0]) * HEIGHT)
